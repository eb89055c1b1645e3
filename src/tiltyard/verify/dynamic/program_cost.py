"""A program's bills: its hidden cases, each in a sandbox made for it.

The floor is a program that does nothing and is run in the same way, with the same input. Solution
and reference are written in one language, so what that takes to start is in both.
"""

import random

from tiltyard.core.task import ProgramCase, ProgramSuite, Task
from tiltyard.core.verdict import Component, Gap
from tiltyard.verify.dynamic.cost import WALL_EXTRA_S, Bill, CostMeter, unbilled
from tiltyard.verify.dynamic.program_bench import (
    NOT_BUILT,
    Billed,
    NoInputError,
    Pair,
    ProgramBench,
)
from tiltyard.verify.split.program_runs import CAPTURED_BYTES_MAX

CASES_MAX = 20
"""Of a larger suite so many are drawn: each is run nine times."""
NOTHING = ("/bin/true",)


async def measure(
    bench: ProgramBench, task: Task, suite: ProgramSuite, *, source: bytes, seed: int
) -> tuple[Component, ...]:
    """What a program costs. Raises `SandboxError` or `GraderError` when the fault is ours."""
    async with bench.pair(task, suite, source) as pair:
        if pair is None:
            return unbilled(Gap.NOT_POSSIBLE, NOT_BUILT)
        try:
            return await CostMeter(ProgramBills(bench, pair, seed=seed)).measure()
        except NoInputError as error:
            return unbilled(Gap.NOT_POSSIBLE, pair.blamed(error))


class ProgramBills:
    """Bills one solution of one task, beside its reference."""

    def __init__(self, bench: ProgramBench, pair: Pair, *, seed: int) -> None:
        self._bench = bench
        self._pair = pair
        self._wall_s = pair.task.time_limit_s * 2 + WALL_EXTRA_S
        cases = pair.suite.cases
        drawn = random.Random(seed)  # noqa: S311 - so that its seed tells which
        self._cases = cases if len(cases) <= CASES_MAX else tuple(drawn.sample(cases, CASES_MAX))

    async def bill(self, side: str) -> tuple[Bill, str]:
        """As `Bills.bill`: times and bytes of all cases, and the highest peak of memory."""
        cpu_s = wall_s = memory = moved = 0.0
        wrong = ""
        for case in self._cases:
            billed = await self._run(side, case)
            cpu_s += billed.cpu_s
            wall_s += billed.printed.result.wall_s
            memory = max(memory, float(billed.printed.result.memory_peak_bytes))
            moved += billed.io_bytes
            if side != "floor" and (wrong := await self._wrong(case, billed)):
                break
        return (cpu_s, wall_s, memory, moved), wrong

    async def _run(self, side: str, case: ProgramCase) -> Billed:
        return await self._bench.run(
            self._pair.built["reference" if side == "floor" else side],
            NOTHING if side == "floor" else self._pair.suite.run,
            case,
            by_files=len(case.expected) > CAPTURED_BYTES_MAX,
            cpu_s_max=self._wall_s,
            wall_s=self._wall_s,
        )

    async def _wrong(self, case: ProgramCase, billed: Billed) -> str:
        """What was not right, though it was before; empty for nothing."""
        output, result = billed.printed.output, billed.printed.result
        exited = case.exit_code is None or result.exit_code == case.exit_code
        if output is None or not exited or billed.over:
            wrong: str | None = billed.printed.words
        else:
            wrong = await self._bench.comparison.wrong_again(
                self._pair.task, self._pair.suite, case, output
            )
        return f"{case.id} failed when it was billed: {wrong}" if wrong else ""
