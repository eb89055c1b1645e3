"""Programs beside each other for `growth`: each run on a new standard input, in a new sandbox.

Theory of operation. What a program takes to start is no growth: for Python it is as much as the
work on a hundred thousand numbers. So what the reference takes on an input of the smallest size is
taken off all times, and what is left of such a run, made anew beside each input, is the floor:
noise around nothing. Reading the input is the program's own work, and stays in.

Never is the solution's own time taken for the floor: it could make itself look slow on small inputs
and so hide what comes after. What it takes longer to start than the reference is taken off its own
times, up to a bound; beyond that it may be seen to be slower, and never to be as good.

Input and output are files of the sandbox, which may be larger than what is piped.
"""

from dataclasses import replace
from statistics import median

from tiltyard.core.checks import Growth
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import Reason
from tiltyard.core.task import ProgramCase, ProgramSuite, Task
from tiltyard.core.verdict import Component, Gap
from tiltyard.verify.dynamic import growth
from tiltyard.verify.dynamic.bench import Bench, Generator
from tiltyard.verify.dynamic.program_bench import (
    NOT_BUILT,
    Billed,
    NoInputError,
    Pair,
    ProgramBench,
)
from tiltyard.verify.found import without

STARTS = 5
START_SHARE = 0.5
"""Of what ends the climb: so much longer than the reference's may the solution's start be."""


async def measure(
    benches: tuple[Bench, ProgramBench],
    task: Task,
    suite: ProgramSuite,
    *,
    source: bytes,
    seed: int,
) -> tuple[Component, ...]:
    """How a program grows, on inputs that the first bench makes.

    Raises `SandboxError` or `GraderError` when the fault is ours.
    """
    inputs_bench, bench = benches
    limits, inputs = growth.asked(task)
    async with (
        inputs_bench.generator(inputs, seed=seed) as generator,
        bench.pair(task, suite, source) as pair,
    ):
        if pair is None:
            return (without(growth.NAME, Gap.NOT_POSSIBLE, NOT_BUILT),)
        contest = ProgramContest(bench, pair, generator=generator, limits=limits)
        try:
            await contest.begin()
            return (await growth.GrowthMeter(contest, limits, seed=seed).measure(),)
        except NoInputError as error:
            return (without(growth.NAME, Gap.NOT_POSSIBLE, pair.blamed(error)),)


class ProgramContest:
    """A solution's program and its reference's. `begin` comes first."""

    def __init__(
        self, bench: ProgramBench, pair: Pair, *, generator: Generator, limits: Growth
    ) -> None:
        self.bench = bench
        self.pair = pair
        self._generator = generator
        self._limits = limits
        self._smallest = ProgramCase(id="smallest")
        self._starts_s = {"reference": 0.0, "solution": 0.0}
        """What is taken off their times."""
        self.veil = ""

    async def begin(self) -> None:
        """Has both run on the smallest input. Raises `GraderError`, and `SandboxError`."""
        smallest = await self._generator.case(self._limits.size_min)
        if smallest is None:
            raise UnsoundTask("the smallest input that its growth is measured on is too large")
        self._smallest = smallest
        starts: dict[str, list[float]] = {"reference": [], "solution": []}
        for _ in range(STARTS):
            for side, times in starts.items():
                times.append((await self.run(side, smallest)).cpu_s)
        longer_s = min(starts["solution"]) - min(starts["reference"])
        most_s = growth.stop_s(self._limits) * START_SHARE
        start_s = median(starts["reference"])
        self._starts_s = {"reference": start_s, "solution": start_s + min(longer_s, most_s)}
        if longer_s > most_s:
            self.veil = (
                f"on the smallest input it takes {longer_s:.2g} s longer than its reference, "
                "beside which its growth cannot be seen"
            )

    async def turn(self, size: int) -> "ProgramTurn | None":
        """As `Contest.turn`."""
        case = await self._generator.case(size)
        return None if case is None else ProgramTurn(self, case)

    async def floor_s(self) -> float:
        """As `Turn.floor_s`."""
        return (await self.run("reference", self._smallest)).cpu_s

    async def run(self, side: str, case: ProgramCase) -> Billed:
        """Runs one side. Raises `UnsoundTask` for a reference that fails."""
        start_s = self._starts_s[side]
        billed = await self.bench.run(
            self.pair.built[side],
            self.pair.suite.run,
            case,
            by_files=True,
            cpu_s_max=growth.cut_s(self._limits) + start_s,
            wall_s=growth.wall_s(self._limits),
        )
        result = billed.printed.result
        if side == "reference" and not result.ok and result.reason in {Reason.EXIT, Reason.SIGNAL}:
            raise UnsoundTask(
                f"task {self.pair.task.id}: its reference fails on an input of {case.id}: "
                f"{billed.printed.words}"
            )
        return replace(billed, cpu_s=billed.cpu_s - start_s)


class ProgramTurn:
    """One new input of a program."""

    def __init__(self, contest: ProgramContest, case: ProgramCase) -> None:
        self._contest = contest
        self._case = case
        self._billed: dict[str, Billed] = {}

    async def floor_s(self) -> float:
        """As `Turn.floor_s`."""
        return await self._contest.floor_s()

    async def call(self, side: str) -> growth.Took:
        """As `Turn.call`."""
        billed = self._billed[side] = await self._contest.run(side, self._case)
        finished = billed.printed.went_well and not billed.over
        return growth.Took(cpu_s=billed.cpu_s, finished=finished, over=billed.over)

    async def wrong(self) -> str:
        """As `Turn.wrong`."""
        solution = self._billed["solution"].printed
        if not solution.went_well or solution.output is None:
            return solution.words
        reference = self._billed.get("reference")
        if reference is None or not reference.printed.went_well:
            return ""
        pair = self._contest.pair
        case = replace(self._case, expected=reference.printed.output or b"")
        wrong = await self._contest.bench.comparison.wrong_beside(
            pair.task, pair.suite, case, solution.output
        )
        return wrong or ""
