"""What a mode found of a submission, before the front makes a verdict of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tiltyard.core.verdict import Assurance, Check, Component


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one run of a mode. A fault of ours is raised instead."""

    checks: tuple[Check, ...] = ()
    """Every expected id exactly once."""
    problem: str = ""
    """Why there was nothing to judge, by the agent's doing; empty when there was."""
    tamper: tuple[str, ...] = ()
    components: tuple[Component, ...] = ()
    """Measures beside the checks, such as a script's own number."""
    assurance: Assurance | None = None
    cpu_s: float = 0.0
    seed: int | None = None
    """Of what measures draw; None where each draws its own."""
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What it depends on, such as `suite` (a digest) and `seed` (of fresh inputs)."""
