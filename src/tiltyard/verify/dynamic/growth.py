"""How CPU time grows with the input, beside the reference in the same session.

Sizes climb from the smallest, each a little random, until a call takes long enough; then the tail
is filled, and around a size that took too long the gap is closed, so that functions which explode
have points as well. Every time is of a fresh run on a new input, and the two sides take turns. Both
sides' answers are compared: being fast and wrong on large inputs earns nothing.
"""

import math
import random
from dataclasses import dataclass, field
from statistics import pstdev

from tiltyard.core.checks import Growth, Inputs
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import CallSuite, Compare, Task
from tiltyard.core.values import Value
from tiltyard.core.verdict import Component, Evidence, Gap
from tiltyard.verify.compare import same
from tiltyard.verify.crossing import LARGE_BYTES, beside_the_loop
from tiltyard.verify.dynamic.bench import Bench, Called, Generator
from tiltyard.verify.dynamic.growth_rule import CLEAR, Judged, Sample, Side, judge, noise_of
from tiltyard.verify.split.candidate import Gone, Reply, words_of_reply

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

    def __init__(self, bench: Bench, task: Task, source: bytes, *, seed: int) -> None:
        """Raises `GraderError` for a task without inputs."""
        if task.checks.growth is None or task.checks.inputs is None:
            raise UnsoundTask(
                f"task {task.id} has no inputs to grow.", fix="give it `checks.inputs`."
            )
        self._bench = bench
        self._task = task
        self._limits: Growth = task.checks.growth
        self._inputs: Inputs = task.checks.inputs
        self._rng = random.Random(seed)  # noqa: S311 - so that its seed tells all sizes
        self._seed = seed
        nothing = f"globals()[{self._inputs.target!r}] = lambda *_: None\n"
        self._sources = {
            "floor": nothing.encode(),
            "reference": task.reference.encode(),
            "solution": source,
        }
        self._cut_s = self._limits.seconds_max * CUT_SHARE
        self._stop_s = self._limits.seconds_max * STOP_SHARE
        self._climb = _Climb()

    async def measure(self) -> Component:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        async with self._bench.generator(self._inputs, seed=self._seed) as generator:
            self._climb.spread_s = await self._spread(generator)
            try:
                await self._ascend(generator)
                await self._close(generator)
                judged = await self._filled(generator)
            except _WrongError as error:
                return Component(
                    name=NAME,
                    raw=None,
                    gap=Gap.NOT_POSSIBLE,
                    evidence=(Evidence(message=str(error)),),
                )
        return _component(judged, self._seed)

    async def _filled(self, generator: Generator) -> Judged:
        """Fills the tail until it says something, or the time is used up, or it is enough."""
        for _ in range(FILL_ROUNDS):
            before = len(self._climb.samples)
            await self._fill(generator)
            judged = await beside_the_loop(LARGE_BYTES + 1, self._judge, self._climb)
            if judged.side is not Side.UNRESOLVED or len(self._climb.samples) == before:
                break
        return judged

    def _judge(self, climb: _Climb) -> Judged:
        tolerance = self._limits.tolerance
        return judge(climb.samples, spread_s=climb.spread_s, tolerance=tolerance)

    async def _spread(self, generator: Generator) -> float:
        request = await generator.request(self._limits.size_min)
        if request is None:
            raise UnsoundTask(f"task {self._task.id}: its smallest input is too large to cross")
        floors = [await self._call("floor", request) for _ in range(FLOOR_RUNS)]
        # The first may still find the cell's caches cold.
        return max(pstdev(each.cpu_s for each in floors[1:]), SPREAD_S_MIN)

    async def _ascend(self, generator: Generator) -> None:
        size = self._limits.size_min
        sides = ["reference", "solution"]
        while sides and size <= self._limits.size_max:
            if not await self._sample(generator, size, sides):
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
            and used_s < self._stop_s
            and self._climb.spent_s[side] < self._limits.seconds_max / 2
        )

    async def _close(self, generator: Generator) -> None:
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
                    await self._sample(generator, size, ["reference", "solution"])

    async def _fill(self, generator: Generator) -> None:
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
            await self._fill_within(generator, windows[number % len(windows)])

    async def _fill_within(self, generator: Generator, window: _Window) -> None:
        spent = max(self._climb.spent_s[side] for side in window.sides)
        if spent > self._limits.seconds_max * FILL_SHARE:
            return
        # More near the top: the square root of a uniform share of the way up.
        way = math.sqrt(self._rng.random())
        size = round(window.low * (window.top / window.low) ** way)
        await self._sample(generator, size, window.sides)

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

    async def _sample(self, generator: Generator, size: int, sides: list[str]) -> bool:
        """Measures the sides on one new input; False when it may not cross.

        Raises `_WrongError` where the answers differ.
        """
        request = await generator.request(size)
        if request is None:
            return False
        floor = await self._call("floor", request)
        called: dict[str, Called] = {}
        for side in sorted(sides, reverse=self._rng.random() < 0.5):
            called[side] = await self._call(side, request)
            self._note(side, size, called[side])
        reference, solution = called.get("reference"), called.get("solution")
        if solution is not None and not solution.over:
            await self._compare(size, reference, solution)
        if reference is not None and isinstance(reference.reply, Gone) and not reference.over:
            return False
        self._climb.samples.append(
            Sample(
                size=size,
                floor_s=floor.cpu_s,
                reference_s=_finished(reference),
                solution_s=_finished(solution),
                reference_cut=reference is not None and reference.over,
                cut_s=solution.cpu_s if solution is not None and solution.over else None,
            )
        )
        return True

    def _note(self, side: str, size: int, called: Called) -> None:
        climb = self._climb
        climb.spent_s[side] += called.cpu_s
        if called.over:
            climb.cut[side] = min(climb.cut.get(side, size), size)
        elif isinstance(called.reply, Reply):
            climb.top[side] = max(climb.top[side], size)

    async def _call(self, side: str, request: bytes) -> Called:
        return await self._bench.call_cold(
            module=self._task.module,
            source=self._sources[side],
            request=request,
            cpu_s_max=self._cut_s,
            wall_s=self._cut_s * WALL_FACTOR + WALL_EXTRA_S,
        )

    async def _compare(self, size: int, reference: Called | None, solution: Called) -> None:
        if reference is None or isinstance(reference.reply, Gone):
            right = isinstance(solution.reply, Reply)
        elif isinstance(solution.reply, Gone):
            right = False
        else:
            replies = (reference.reply, solution.reply)
            ways = ways_to_compare(self._task, self._inputs.target)
            right = await beside_the_loop(
                sum(each.size_bytes for each in replies), lambda both: agree(*both, ways), replies
            )
        if not right:
            raise _WrongError(
                f"not the reference's answer at size {size}: {words_of_reply(solution.reply)}"
            )


def ways_to_compare(task: Task, target: str) -> frozenset[Compare]:
    """How the hidden suite compares what a function returns; exactly, where it does not say."""
    cases = task.hidden.cases if isinstance(task.hidden, CallSuite) else ()
    ways = frozenset(case.compare for case in cases if case.target == target)
    return ways or frozenset({Compare.EXACT})


def agree(reference: Reply, solution: Reply, ways: frozenset[Compare]) -> bool:
    """Whether two replies are the same answer. Where any of several are right, all values are."""
    if reference.kind != solution.kind:
        return False
    if reference.kind == "raised":
        return reference.rest[:1] == solution.rest[:1]
    if reference.kind != "value" or Compare.ANY_OF in ways:
        return True
    one, other = reference.rest[0], solution.rest[0]
    if Compare.UNORDERED in ways:
        one, other = _in_some_order(one), _in_some_order(other)
    return same(one, other, tolerance=1e-9)


def _in_some_order(value: Value) -> Value:
    return sorted(value, key=repr) if isinstance(value, (list, tuple)) else value


def _finished(called: Called | None) -> float | None:
    return None if called is None or called.over else called.cpu_s


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
