"""What a provider can do on this machine: a typed report, feature by feature, with the fixes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tiltyard.core.execution import Enforcement, Limit


class Health(StrEnum):
    """How a probed feature stands."""

    OK = "ok"
    WEAK = "weak"
    """Sandboxes work, but something is held less strictly."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One probed feature."""

    feature: str
    health: Health
    detail: str
    fix: str = ""
    """What to do; empty when nothing need be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityReport:
    """Everything that was probed."""

    findings: tuple[Finding, ...]
    isolation: str
    """The rung in force; empty when no sandbox can be made."""
    enforced: Mapping[Limit, Enforcement]

    @property
    def usable(self) -> bool:
        return all(finding.health is not Health.MISSING for finding in self.findings)
