"""What a mode found of a submission, before the front makes a verdict of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tiltyard.core.verdict import Assurance, Check, CheckStatus, Component, Evidence, Gap

EVIDENCE_CHARACTERS_MAX = 512 * 1024
"""Of all checks together; of a verdict that says more, the last checks keep their status only."""
WORDS_CHARACTERS_MAX = 1_500
"""Of one sign or one piece of evidence."""
SIGNS_MAX = 100
EVIDENCE_MAX = 200
"""Pieces for each component."""
COMPONENTS_MAX = 200


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

    @property
    def all_passed(self) -> bool:
        """Whether there was something to judge, and every check of it passed."""
        passed = (check.status is CheckStatus.PASSED for check in self.checks)
        return not self.problem and bool(self.checks) and all(passed)


def without(name: str, gap: Gap, why: str) -> Component:
    """A component that was not measured, and why, in words."""
    return Component(name=name, raw=None, gap=gap, evidence=(Evidence(message=why),))


def bounded(found: Found) -> Found:
    """The same within what a record may hold, whatever modes, measures and tools had to say."""
    left = EVIDENCE_CHARACTERS_MAX
    checks: list[Check] = []
    for check in found.checks:
        words = check.evidence[: min(left, WORDS_CHARACTERS_MAX)]
        left -= len(words)
        checks.append(check if words == check.evidence else replace(check, evidence=words))
    tamper = tuple(sign[:WORDS_CHARACTERS_MAX] for sign in found.tamper)
    if len(tamper) > SIGNS_MAX:
        tamper = (*tamper[:SIGNS_MAX], f"and {len(tamper) - SIGNS_MAX} more signs")
    components = (
        replace(each, evidence=tuple(map(_cut, each.evidence[:EVIDENCE_MAX])))
        for each in found.components[:COMPONENTS_MAX]
    )
    return replace(found, checks=tuple(checks), tamper=tamper, components=tuple(components))


def _cut(evidence: Evidence) -> Evidence:
    if len(evidence.message) <= WORDS_CHARACTERS_MAX:
        return evidence
    return replace(evidence, message=evidence.message[:WORDS_CHARACTERS_MAX])
