"""What the hidden suite costs in a cold process, beside the reference's cost in the same session.

Each run has a sandbox of its own, made for it; solution and reference take turns, and so does a
module or program that does nothing, whose cost (starting, reading calls) is taken from both. CPU
time and memory are the sandbox's cgroup's: threads, children, daemons, mappings, shared memory and
files in memory are all in them, and so is whatever a module does while it is loaded. A clock inside
is never asked.
"""

from dataclasses import dataclass
from math import log
from statistics import median
from typing import Protocol

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import MIB
from tiltyard.core.verdict import Component, Evidence, Gap
from tiltyard.verify.found import without

ROUNDS = 3
SIDES = ("floor", "reference", "solution")
WALL_EXTRA_S = 3.0
"""It was quick enough for the hidden suite; that the machine is busier now is not its fault."""
RATIO_FULL, RATIO_NONE = 1.25, 8.0
"""Of the reference's cost: up to the first it is worth all, from the second on nothing; between, by
the logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One thing that is billed. `small` is added to both sides: less is noise."""

    name: str
    unit: str
    small: float


KINDS = (
    _Kind(name="cost_cpu", unit="s", small=0.002),
    _Kind(name="cost_wall", unit="s", small=0.01),
    _Kind(name="cost_memory", unit="bytes", small=1.0 * MIB),
    _Kind(name="cost_io", unit="bytes", small=65_536.0),
)
Bill = tuple[float, ...]
"""One figure for each kind, in their order."""


class Bills(Protocol):
    """What is billed, of any kind."""

    async def bill(self, side: str) -> tuple[Bill, str]:
        """Runs `floor`, `reference` or `solution` once more in a new sandbox; what it took, and
        what was not right, if anything. Raises `SandboxError` or `GraderError` for a fault of
        ours."""
        ...


class CostMeter:
    """Bills one solution of one task."""

    def __init__(self, bills: Bills) -> None:
        self._bills = bills

    async def measure(self) -> tuple[Component, ...]:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        bills: dict[str, list[Bill]] = {side: [] for side in SIDES}
        for _ in range(ROUNDS):
            for side in SIDES:
                bill, wrong = await self._bills.bill(side)
                if wrong and side == "reference":
                    raise UnsoundTask(f"its reference: {wrong}")
                if wrong and side == "solution":
                    return unbilled(Gap.NOT_POSSIBLE, wrong)
                bills[side].append(bill)
        return tuple(
            _component(kind, *(median(bill[at] for bill in bills[side]) for side in SIDES))
            for at, kind in enumerate(KINDS)
        )


def unbilled(gap: Gap, why: str) -> tuple[Component, ...]:
    """All kinds of cost, not measured."""
    return tuple(without(kind.name, gap, why) for kind in KINDS)


def _component(kind: _Kind, floor: float, reference: float, solution: float) -> Component:
    ours, theirs = max(solution - floor, 0.0), max(reference - floor, 0.0)
    ratio = (ours + kind.small) / (theirs + kind.small)
    share = log(RATIO_NONE / ratio) / log(RATIO_NONE / RATIO_FULL)
    words = f"{ours:.4g} {kind.unit} beside the reference's {theirs:.4g} {kind.unit}"
    return Component(
        name=kind.name,
        raw=ours,
        reference=theirs,
        unit=kind.unit,
        normalised=min(max(share, 0.0), 1.0),
        evidence=(Evidence(message=words, value=ratio, unit="of the reference's"),),
    )
