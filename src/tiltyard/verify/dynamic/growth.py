"""How CPU time grows with the input, beside the reference in the same session.

Sizes climb from the smallest, each a little random, until a call takes long enough; then the tail
is filled, and around a size that took too long the gap is closed, so that functions which explode
have points as well. Every time is of a fresh run on a new input, and the two sides take turns. Both
sides' answers are compared: being fast and wrong on large inputs earns nothing.
"""

import math
import random
from dataclasses import dataclass, field, replace
from statistics import pstdev
from typing import Protocol

from tiltyard.core.checks import Growth, Inputs
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import Task
from tiltyard.core.verdict import Component, Evidence, Gap
from tiltyard.verify.crossing import LARGE_BYTES, beside_the_loop
from tiltyard.verify.dynamic.growth_rule import CLEAR, Judged, Sample, Side, judge, noise_of
from tiltyard.verify.found import without

NAME = "growth"
FLOOR_RUNS = 12
SPREAD_S_MIN = 0.000_15
"""What the floor varies by on a quiet machine; it may seem calmer than it is going to be."""
STEP_LOW, STEP_HIGH = 1.5, 2.0
STOP_SHARE, CUT_SHARE = 1 / 30, 1 / 12
"""Of `seconds_max`: a call that takes the first ends the climb; at the second it is cut off."""
FILL_POINTS, FILL_ROUNDS = 18, 4
FILL_SHARE = 0.8
"""Of `seconds_max`: no side is measured again that has used more."""
FILL_TAIL = 8.0
"""The tail is filled from the largest size over this."""
CLOSE_TRIES = 3
WALL_FACTOR, WALL_EXTRA_S = 10.0, 5.0
"""A call may wait for a busy machine; one that sleeps through this is cut off as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What one side took for one input, in a place of its own."""

    cpu_s: float
    """As billed from outside, with all that it started."""
    finished: bool
    """It answered, rightly or not."""
    over: bool = False
    """It was ended because it had used more than it might."""


class Turn(Protocol):
    """One new input, and what was answered to it."""

    async def floor_s(self) -> float:
        """CPU time of what does nothing, to be taken off both sides' times."""
        ...

    async def call(self, side: str) -> Took:
        """Has `reference` or `solution` answer. Raises `SandboxError`."""
        ...

    async def wrong(self) -> str:
        """How the solution's answer is not the reference's, in words; empty when it is, or when
        there is none of the reference's to compare with."""
        ...


class Contest(Protocol):
    """Solution and reference, of any kind."""

    @property
    def veil(self) -> str:
        """What may hide how the solution grows, so that nobody can say that it is as good as its
        reference; empty for nothing."""
        ...

    async def turn(self, size: int) -> Turn | None:
        """A new input of a size; None when it may not cross. Raises `GraderError`."""
        ...


def asked(task: Task) -> tuple[Growth, Inputs]:
    """What a task asks for. Raises `UnsoundTask` for one without inputs."""
    if task.checks.growth is None or task.checks.inputs is None:
        raise UnsoundTask(f"task {task.id} has no inputs to grow.", fix="give it `checks.inputs`.")
    return task.checks.growth, task.checks.inputs


def cut_s(limits: Growth) -> float:
    """CPU time at which one call is cut off."""
    return limits.seconds_max * CUT_SHARE


def wall_s(limits: Growth) -> float:
    """Wall time at which one call is cut off."""
    return cut_s(limits) * WALL_FACTOR + WALL_EXTRA_S


def stop_s(limits: Growth) -> float:
    """CPU time of a call that ends the climb."""
    return limits.seconds_max * STOP_SHARE


@dataclass(slots=True, kw_only=True)
class _Climb:
    """What was measured until now. Sides: the reference's and the solution's."""

    samples: list[Sample] = field(default_factory=list)
    spread_s: float = 0.0
    spent_s: dict[str, float] = field(default_factory=lambda: {"reference": 0.0, "solution": 0.0})
    top: dict[str, int] = field(default_factory=lambda: {"reference": 0, "solution": 0})
    """The largest size that a side finished."""
    cut: dict[str, int] = field(default_factory=dict)
    """The smallest size at which a side was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Sizes to fill, and the sides to measure there."""

    top: int
    low: float
    sides: list[str]


class _WrongError(Exception):
    """The solution's answer is not the reference's."""


class GrowthMeter:
    """Measures one solution of one task."""

    def __init__(self, contest: Contest, limits: Growth, *, seed: int) -> None:
        self._contest = contest
        self._limits = limits
        self._rng = random.Random(seed)  # noqa: S311 - so that its seed tells all sizes
        self._seed = seed
        self._climb = _Climb()

    async def measure(self) -> Component:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        self._climb.spread_s = await self._spread()
        try:
            await self._ascend()
            await self._close()
            judged = await self._filled()
        except _WrongError as error:
            return without(NAME, Gap.NOT_POSSIBLE, str(error))
        if judged.side is Side.WITHIN and self._contest.veil:
            unsure = replace(judged, side=Side.UNRESOLVED, excess=None, why=self._contest.veil)
            return _component(unsure, self._seed)
        return _component(judged, self._seed)

    async def _filled(self) -> Judged:
        """Fills the tail until it says something, or the time is used up, or it is enough."""
        for _ in range(FILL_ROUNDS):
            before = len(self._climb.samples)
            await self._fill()
            judged = await beside_the_loop(LARGE_BYTES + 1, self._judge, self._climb)
            if judged.side is not Side.UNRESOLVED or len(self._climb.samples) == before:
                break
        return judged

    def _judge(self, climb: _Climb) -> Judged:
        tolerance = self._limits.tolerance
        return judge(climb.samples, spread_s=climb.spread_s, tolerance=tolerance)

    async def _spread(self) -> float:
        turn = await self._contest.turn(self._limits.size_min)
        if turn is None:
            raise UnsoundTask("the smallest input that its growth is measured on cannot cross")
        floors = [await turn.floor_s() for _ in range(FLOOR_RUNS)]
        # The first may still find the cell's caches cold.
        return max(pstdev(floors[1:]), SPREAD_S_MIN)

    async def _ascend(self) -> None:
        size = self._limits.size_min
        sides = ["reference", "solution"]
        while sides and size <= self._limits.size_max:
            if not await self._sample(size, sides):
                return
            last = self._climb.samples[-1]
            sides = [side for side in sides if self._goes_on(side, last)]
            if size == self._limits.size_max:
                return
            step = self._rng.uniform(STEP_LOW, STEP_HIGH)
            size = min(max(int(size * step), size + 1), self._limits.size_max)

    def _goes_on(self, side: str, last: Sample) -> bool:
        used_s = last.reference_s if side == "reference" else last.solution_s
        return (
            used_s is not None
            and used_s < stop_s(self._limits)
            and self._climb.spent_s[side] < self._limits.seconds_max / 2
        )

    async def _close(self) -> None:
        """Finds larger sizes that can be finished, below those that could not."""
        for _ in range(CLOSE_TRIES):
            gaps = {
                side: (self._climb.top[side], cut)
                for side, cut in self._climb.cut.items()
                if self._climb.top[side] and cut / self._climb.top[side] > 1.1
            }
            if not gaps:
                return
            for low, high in sorted(set(gaps.values())):
                size = round(math.sqrt(low * high))
                if low < size < high:
                    await self._sample(size, ["reference", "solution"])

    async def _fill(self) -> None:
        """Adds sizes near the top that both finish, and near each one's own."""
        tops = self._climb.top
        if not all(tops.values()):
            return
        both = ["reference", "solution"]
        together = min(tops.values())
        windows = [self._window(together, both)]
        if not self._is_clear(together, both):  # then what both finish says nothing
            windows = [self._window(top, [side]) for side, top in tops.items()]
        elif max(tops.values()) >= together * STEP_HIGH:
            ahead = max(tops, key=lambda side: tops[side])
            windows.append(self._window(tops[ahead], [ahead]))
        for number in range(FILL_POINTS):
            await self._fill_within(windows[number % len(windows)])

    async def _fill_within(self, window: _Window) -> None:
        spent = max(self._climb.spent_s[side] for side in window.sides)
        if spent > self._limits.seconds_max * FILL_SHARE:
            return
        # More near the top: the square root of a uniform share of the way up.
        way = math.sqrt(self._rng.random())
        size = round(window.low * (window.top / window.low) ** way)
        await self._sample(size, window.sides)

    def _window(self, top: int, sides: list[str]) -> _Window:
        """From where times are clear of noise, and at most `FILL_TAIL` below the top."""
        sizes = sorted(each.size for each in self._climb.samples if each.size <= top)
        clear = [size for size in sizes if self._is_clear(size, sides)]
        # From the next smaller one on: somewhere between the two lie the first that are.
        edge = max((size for size in sizes if size < clear[0]), default=0) if clear else 0
        low = max(top / FILL_TAIL, edge, self._limits.size_min)
        return _Window(top=top, low=min(low, top), sides=sides)

    def _is_clear(self, size: int, sides: list[str]) -> bool:
        """Whether a size was measured, and all the sides' times at it are clear of noise."""
        each = next(each for each in self._climb.samples if each.size == size)
        times = {"reference": each.reference_s, "solution": each.solution_s}
        least = CLEAR * noise_of(each, spread_s=self._climb.spread_s) + each.floor_s
        return all((times[side] or 0.0) > least for side in sides)

    async def _sample(self, size: int, sides: list[str]) -> bool:
        """Measures the sides on one new input; False when it may not cross, or the reference dies
        of it, so that there is nothing to compare with.

        Raises `_WrongError` where the answers differ.
        """
        turn = await self._contest.turn(size)
        if turn is None:
            return False
        floor_s = await turn.floor_s()
        took: dict[str, Took] = {}
        for side in sorted(sides, reverse=self._rng.random() < 0.5):
            took[side] = await turn.call(side)
            self._note(side, size, took[side])
        reference, solution = took.get("reference"), took.get("solution")
        if reference is not None and not reference.finished and not reference.over:
            return False
        if solution is not None and not solution.over and (wrong := await turn.wrong()):
            raise _WrongError(f"not the reference's answer at size {size}: {wrong}")
        self._climb.samples.append(
            Sample(
                size=size,
                floor_s=floor_s,
                reference_s=_finished(reference),
                solution_s=_finished(solution),
                reference_cut=reference is not None and reference.over,
                cut_s=solution.cpu_s if solution is not None and solution.over else None,
            )
        )
        return True

    def _note(self, side: str, size: int, took: Took) -> None:
        climb = self._climb
        climb.spent_s[side] += took.cpu_s
        if took.over:
            climb.cut[side] = min(climb.cut.get(side, size), size)
        elif took.finished:
            climb.top[side] = max(climb.top[side], size)


def _finished(took: Took | None) -> float | None:
    return None if took is None or took.over else took.cpu_s


def _component(judged: Judged, seed: int) -> Component:
    evidence = (
        Evidence(
            message=f"{judged.side}: {judged.why}",
            code=f"seed {seed}",
            value=judged.excess,
            unit="powers of the size over the reference",
        ),
    )
    if judged.excess is None:
        return Component(
            name=NAME, raw=None, gap=Gap.UNRESOLVED, evidence=evidence, curves=judged.curves
        )
    over = judged.excess - judged.allowed if judged.side is Side.SLOWER else 0.0
    return Component(
        name=NAME,
        raw=judged.excess,
        unit="powers",
        normalised=1.0 - min(max(over, 0.0), 1.0),
        evidence=evidence,
        curves=judged.curves,
    )
