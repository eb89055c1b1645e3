"""What a mode found of a submission, before the front makes a verdict of it."""

from dataclasses import dataclass

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
