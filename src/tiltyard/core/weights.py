"""How much each part of a verdict counts in the reward: values, without any file. Pure.

They are here because a task may bring its own. `verify/weights_file.py` reads them from TOML,
`verify/reward.py` applies them.
"""

import fnmatch
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tiltyard.core.ids import TaskId


class Unresolved(StrEnum):
    """What becomes of a measure that was taken and says nothing."""

    DROP = "drop"
    """It counts for nobody in the group; the other weights grow in proportion."""
    ZERO = "zero"
    """It is worth 0 for whoever has it: where noise is rare and hiding from a measure is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which raw measure is worth 1 and which 0, on a straight line; either may be the larger."""

    best: float
    worst: float
    relative: bool = False
    """True: both are multiples of what the task's reference measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentWeight:
    """What one component counts, beside the tests."""

    weight: float
    """Relative to the other weights; not negative."""
    bounds: Bounds | None = None
    """None: as the measure itself was normalised."""
    quantum: float = 0.0
    """What it is worth is rounded down to a multiple of this, one nth of 1; 0 rounds nothing."""
    unresolved: Unresolved = Unresolved.DROP


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How a reward is made of a verdict. The default pays for full correctness and nothing else."""

    tests: float = 1.0
    """What the tests count, or in script mode the script's own number."""
    partial: bool = False
    """True: a share of the tests is paid, from the best constant answer's share up."""
    gate: bool = True
    """True: until everything is correct, nothing but the tests pays."""
    quantum: float = 0.0
    """The reward is rounded down to a multiple of this, one nth of 1; 0 rounds nothing."""
    components: Mapping[str, ComponentWeight] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def digest(self) -> str:
        """The same for equal weights, whatever file they come from; 16 hexadecimal digits."""
        parts = [f"{self.tests!r} {self.partial} {self.gate} {self.quantum!r}"]
        for name, each in sorted(self.components.items()):
            parts.append(f"{name!r} {each!r}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


DEFAULT = Weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The weights of a whole run: one set for all tasks, and others for tasks of some names."""

    default: Weights | None = None
    """None: each task's own weights, and `DEFAULT` for one that has none."""
    by_task: tuple[tuple[str, Weights], ...] = ()
    """Globs of task ids, each with the weights that then hold instead; the first that fits."""

    def of(self, task_id: TaskId, own: Weights | None = None) -> Weights:
        """The weights of a task. `own` are those that it brings; None for a task without any."""
        for pattern, weights in self.by_task:
            if fnmatch.fnmatchcase(task_id, pattern):
                return weights
        return self.default or own or DEFAULT


UNWEIGHTED = Weighting()
"""What each task brings itself, else the default weights."""
