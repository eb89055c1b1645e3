"""What the hidden suite costs in a cold process, beside the reference's cost in the same session.

Each run has a sandbox of its own, made for it; solution and reference take turns, and so does an
empty module, whose cost (reading the calls, starting) is taken from both. CPU time and memory are
the sandbox's cgroup's: threads, children, daemons, mappings, shared memory and files in memory are
all in them, and so is whatever a module does while it is loaded. A clock inside is never asked.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import median

from tiltyard.core.checks import Inputs
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import MIB
from tiltyard.core.task import CallSuite, Task
from tiltyard.core.verdict import CheckStatus, Component, Evidence, Gap
from tiltyard.verify.dynamic.bench import Bench, Session
from tiltyard.verify.split.calls import judge_calls, requests_of
from tiltyard.verify.split.candidate import Gone

ROUNDS = 3
WALL_EXTRA_S = 3.0
"""It was quick enough for the hidden suite; that the machine is busier now is not its fault."""
INPUTS = 20
SIZE = 256
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
Work = Callable[[Session, bytes], Awaitable[str]]
"""Loads a source and makes the calls; says what was not right, or nothing."""


class CostMeter:
    """Bills one solution of one task."""

    def __init__(self, bench: Bench, task: Task, source: bytes, *, seed: int) -> None:
        self._bench = bench
        self._task = task
        self._source = source
        self._seed = seed

    async def measure(self) -> tuple[Component, ...]:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        work = await self._work()
        if work is None:
            return without(Gap.UNRESOLVED, "its suite is not made of calls, and it has no inputs")
        sources = {
            "floor": b"",
            "reference": self._task.reference.encode(),
            "solution": self._source,
        }
        bills: dict[str, list[Bill]] = {side: [] for side in sources}
        for _ in range(ROUNDS):
            for side, source in sources.items():
                bill, wrong = await self._bill(work, source)
                if wrong and side == "reference":
                    raise UnsoundTask(f"task {self._task.id}: its reference: {wrong}")
                if wrong and side == "solution":
                    return without(Gap.NOT_POSSIBLE, wrong)
                bills[side].append(bill)
        return tuple(
            _component(kind, *(median(bill[at] for bill in each) for each in bills.values()))
            for at, kind in enumerate(KINDS)
        )

    async def _work(self) -> Work | None:
        suite = self._task.hidden
        if isinstance(suite, CallSuite) and suite.cases:
            requests = requests_of(suite)
            return partial(_judged, self._task.module, suite, requests)
        if self._task.checks.inputs is None:
            return None
        requests = await self._made(self._task.checks.inputs)
        return partial(_called, self._task.module, requests)

    async def _made(self, inputs: Inputs) -> tuple[bytes, ...]:
        async with self._bench.generator(inputs, seed=self._seed) as generator:
            made = [await generator.request(SIZE) for _ in range(INPUTS)]
        return tuple(request for request in made if request is not None)

    async def _bill(self, work: Work, source: bytes) -> tuple[Bill, str]:
        wall_s = self._task.time_limit_s * 2 + WALL_EXTRA_S
        async with self._bench.cold_session(wall_s=wall_s) as session:
            before = await session.run.footprint()
            started_s = time.monotonic()
            wrong = await work(session, source)
            took_s = time.monotonic() - started_s
            used = session.run.used()
            after = await session.run.footprint()
        moved = after.io_bytes - before.io_bytes if after is not None and before is not None else 0
        cpu_s = (used.cpu_s or 0.0) - session.start_s
        return (cpu_s, took_s, float(used.memory_peak_bytes or 0), float(moved)), wrong


def without(gap: Gap, why: str) -> tuple[Component, ...]:
    """All kinds of cost, not measured."""
    evidence = (Evidence(message=why),)
    return tuple(Component(name=kind.name, raw=None, gap=gap, evidence=evidence) for kind in KINDS)


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
