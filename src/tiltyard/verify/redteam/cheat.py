"""What a cheat is, and in which ways a task can be judged that it may be aimed at. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum

from tiltyard.core.checks import Checks
from tiltyard.core.task import PytestSuite, RepositorySuite, ScriptSuite, Submission, Task

CLASSES = {
    "a": "forged values",
    "b": "exits and statuses",
    "c": "shipped files",
    "d": "tampering inside",
    "e": "resources and crashes",
    "f": "leaks and awareness",
    "g": "performance gaming",
    "h": "static analysis gaming",
}
"""The classes of the catalogue, by the letter that an id begins with."""


class Aim(StrEnum):
    """The way of judging that a cheat is aimed at."""

    SPLIT = "split"
    OVERLAY = "overlay"
    SCRIPT = "script"


ALL_AIMS = frozenset(Aim)


def aims_of(task: Task) -> frozenset[Aim]:
    """What a cheat may be aimed at to be tried on a task. Cheats of what shares a process with
    pytest are tried on all tasks that have pytest files, however these are run."""
    match task.hidden:
        case PytestSuite():
            return frozenset({Aim.SPLIT, Aim.OVERLAY})
        case RepositorySuite():
            return frozenset({Aim.OVERLAY})
        case ScriptSuite():
            return frozenset({Aim.SCRIPT})
        case _:
            return frozenset({Aim.SPLIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """One cheat, made for one task."""

    id: str
    """Stable, the same for every task: the letter of its class, and words."""
    about: str
    """One line."""
    aims: frozenset[Aim] = ALL_AIMS
    ends: frozenset[str] = frozenset()
    """How checks of plain calls may fail by it, as their statuses; empty when they need not."""
    submission: Submission
    twin: Submission
    """The same answer without the trick: what the cheat must not be worth more than."""
    right: bool = False
    """The twin is a right answer: the trick is to be measured better than it."""
    strict: bool = False
    """No single measure may be better than the twin's; otherwise their mean counts, because a
    trick may well be found out by another measure than the one it is aimed at."""
    checks: Checks = field(default_factory=Checks)
    """What is measured of it, of all that its task asks for."""

    @property
    def letter(self) -> str:
        return self.id[0]
