"""A function's bills: its hidden calls, or calls on new inputs, in a run made for them."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tiltyard.core.task import CallSuite, Task
from tiltyard.core.verdict import CheckStatus, Component, Gap
from tiltyard.verify.dynamic.bench import Bench, Session
from tiltyard.verify.dynamic.cost import WALL_EXTRA_S, Bill, CostMeter, unbilled
from tiltyard.verify.split.calls import judge_calls, requests_of
from tiltyard.verify.split.candidate import Gone

INPUTS = 20
SIZE = 256
Work = Callable[[Session, bytes], Awaitable[str]]
"""Loads a source and makes the calls; says what was not right, or nothing."""


async def measure(bench: Bench, task: Task, *, source: bytes, seed: int) -> tuple[Component, ...]:
    """What a function costs. Raises `SandboxError` or `GraderError` when the fault is ours."""
    work = await _work(bench, task, seed=seed)
    if work is None:
        return unbilled(Gap.UNRESOLVED, "its suite is not made of calls, and it has no inputs")
    return await CostMeter(FunctionBills(bench, task, source, work=work)).measure()


class FunctionBills:
    """Bills the functions of one task; the floor is an empty module."""

    def __init__(self, bench: Bench, task: Task, source: bytes, *, work: Work) -> None:
        """`work` is what both are billed for."""
        self._bench = bench
        self._wall_s = task.time_limit_s * 2 + WALL_EXTRA_S
        self._work = work
        self._sources = {
            "floor": b"",
            "reference": task.reference.encode(),
            "solution": source,
        }

    async def bill(self, side: str) -> tuple[Bill, str]:
        """As `Bills.bill`."""
        async with self._bench.cold_session(wall_s=self._wall_s) as session:
            before = await session.run.footprint()
            started_s = time.monotonic()
            wrong = await self._work(session, self._sources[side])
            took_s = time.monotonic() - started_s
            used = session.run.used()
            after = await session.run.footprint()
        moved = after.io_bytes - before.io_bytes if after is not None and before is not None else 0
        cpu_s = (used.cpu_s or 0.0) - session.start_s
        return (cpu_s, took_s, float(used.memory_peak_bytes or 0), float(moved)), wrong


async def _work(bench: Bench, task: Task, *, seed: int) -> Work | None:
    """What a task's functions are billed for; None when there is nothing. Raises `GraderError`."""
    suite = task.hidden
    if isinstance(suite, CallSuite) and suite.cases:
        return partial(_judged, task.module, suite, requests_of(suite))
    if task.checks.inputs is None:
        return None
    async with bench.generator(task.checks.inputs, seed=seed) as generator:
        made = [await generator.request(SIZE) for _ in range(INPUTS)]
    return partial(_called, task.module, tuple(each for each in made if each is not None))


async def _judged(
    module: str, suite: CallSuite, requests: tuple[bytes, ...], session: Session, source: bytes
) -> str:
    checks = await judge_calls(
        session.candidate, module=module, source=source, suite=suite, requests=requests
    )
    failed = [check for check in checks if check.status is not CheckStatus.PASSED]
    return f"{failed[0].id} failed when it was billed: {failed[0].evidence}" if failed else ""


async def _called(module: str, requests: Sequence[bytes], session: Session, source: bytes) -> str:
    replies = [await session.load(module, source)]
    replies += [await session.call(request) for request in requests]
    gone = next((reply for reply in replies if isinstance(reply, Gone)), None)
    return f"it ended when it was billed: {gone.evidence}" if gone is not None else ""
