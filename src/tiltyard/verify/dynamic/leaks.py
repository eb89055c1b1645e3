"""Whether memory, descriptors or threads grow over many calls, as read from outside.

One process makes hundreds of calls, each on a new input; between calls, at random distances, what
it and its children hold is read from the host's side, where neither a patched module nor memory
outside Python's own counts can hide it. What looks like a leak has to go on for three times as many
calls again, and longer if it slows down: a cache that fills up does not.
"""

import random

from tiltyard.core.checks import Inputs, Leaks
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import Task
from tiltyard.core.verdict import CheckStatus, Component, Curve, Evidence, Gap
from tiltyard.verify.dynamic.bench import Bench, Generator, Session
from tiltyard.verify.dynamic.leak_rule import Reading, Series, Trend, trends
from tiltyard.verify.split.candidate import Gone, Reply, words_of_reply

NAME = "leaks"
CALLS_MIN = 400
"""A leak at every 50th call has left eight marks by then."""
AGAIN, ROUNDS_MAX = 3, 3
"""So many times as many calls are made to be certain of a leak; so often while it slows down."""
SPACING_MAX = 7
RAISES_MAX = 20
"""So many exceptions on end after calls that went well: it has used something up."""
WALL_S = 120.0


class _EndedError(Exception):
    """The solution's process ended."""

    def __init__(self, gone: Gone) -> None:
        super().__init__(gone.evidence)
        self.gone = gone


class LeakMeter:
    """Watches one solution of one task."""

    def __init__(self, bench: Bench, task: Task, source: bytes, *, seed: int) -> None:
        """Raises `GraderError` for a task without inputs."""
        if task.checks.leaks is None or task.checks.inputs is None:
            raise UnsoundTask(
                f"task {task.id} has no inputs for many calls.", fix="give it `checks.inputs`."
            )
        self._bench = bench
        self._module = task.module
        self._limits: Leaks = task.checks.leaks
        self._inputs: Inputs = task.checks.inputs
        self._source = source
        self._seed = seed
        self._rng = random.Random(seed)  # noqa: S311 - so that its seed tells all distances
        self._readings: list[Reading] = []
        self._calls = self._least = 0
        self._raised = 0
        """On end, until now."""
        self._went_well = 0

    async def measure(self) -> Component:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        calls = max(self._limits.calls, CALLS_MIN)
        calls += self._rng.randrange(calls // 10)  # nobody inside knows when it will be over
        warm_up = self._limits.warm_up
        self._least = calls
        ended: Gone | None = None
        async with (
            self._bench.session(wall_s=WALL_S) as session,
            self._bench.generator(self._inputs, seed=self._seed) as generator,
        ):
            try:
                _checked(await session.load(self._module, self._source))
                await self._run(session, generator, warm_up + calls)
                for _ in range(ROUNDS_MAX):
                    if self._told(after=warm_up):
                        break
                    await self._run(session, generator, calls * AGAIN)
                    warm_up = self._calls // 2
            except _EndedError as error:
                ended = error.gone
        if self._used_up or ended is not None:
            warm_up = 0  # it may have happened within it
        return self._component(self._trends(after=warm_up), ended)

    @property
    def _used_up(self) -> bool:
        return self._raised >= RAISES_MAX and self._went_well > 0

    async def _run(self, session: Session, generator: Generator, calls: int) -> None:
        """Makes calls and reads. Raises `_EndedError`, and what a fault of ours raises."""
        until = self._calls + calls
        next_reading = self._calls
        while self._calls < until and not self._used_up:
            if self._calls >= next_reading:
                await self._read(session)
                next_reading = self._calls + self._rng.randint(1, SPACING_MAX)
            size = self._rng.randint(max(self._limits.size // 2, 1), max(self._limits.size, 1))
            request = await generator.request(size)
            if request is None:
                raise UnsoundTask(f"an input of size {size} is too large to cross")
            self._count(_checked(await session.call(request)))

    def _count(self, reply: Reply) -> None:
        self._calls += 1
        if reply.kind == "raised":
            self._raised += 1
        else:
            self._raised = 0
            self._went_well += 1

    async def _read(self, session: Session) -> None:
        footprint = await session.run.footprint()
        if footprint is None:
            return  # its sandbox has ended; the next call says so
        values = {
            Series.PRIVATE: float(footprint.private_bytes),
            Series.DESCRIPTORS: float(footprint.descriptors),
            Series.THREADS: float(footprint.threads),
            Series.PROCESSES: float(footprint.processes),
        }
        held = session.run.memory_bytes()
        if held is not None:
            values[Series.HELD] = float(held)
        self._readings.append(Reading(calls=self._calls, values=values))

    def _trends(self, *, after: int) -> tuple[Trend, ...]:
        until = self._calls - self._raised if self._used_up else self._calls
        kept = [each for each in self._readings if after <= each.calls <= until]
        return trends(kept, bytes_per_call_max=self._limits.bytes_per_call_max)

    def _told(self, *, after: int) -> bool:
        """Whether more calls would tell no more."""
        found = self._trends(after=after)
        suspect = any(each.suspect for each in found)
        sure = any(each.certain for each in found) and self._calls > after + self._least
        return self._used_up or sure or not suspect

    def _component(self, found: tuple[Trend, ...], ended: Gone | None) -> Component:
        evidence = [_evidence(each, self._calls) for each in found if each.leaks]
        memory = next((each for each in found if each.series is Series.PRIVATE), None)
        curves = tuple(each.curve() for each in found)
        if self._used_up:
            at = self._calls - self._raised
            evidence.append(Evidence(message=f"after {at} calls it only raised exceptions"))
        if ended is not None:
            said = f"it ended at call {self._calls + 1}: {words_of_reply(ended)}"
            evidence.append(Evidence(message=said))
        if memory is None or (ended is not None and not any(each.leaks for each in found)):
            ours = ended is None or ended.status is CheckStatus.TIMEOUT
            return Component(
                name=NAME,
                raw=None,
                gap=Gap.UNRESOLVED if ours else Gap.NOT_POSSIBLE,
                evidence=tuple(evidence),
                curves=curves,
            )
        if not evidence:
            why = f"nothing grew over {self._calls} calls"
            evidence.append(Evidence(message=why, code=f"seed {self._seed}"))
            return _done(1.0, memory, evidence, curves=curves)
        return _done(0.0, memory, evidence, curves=curves)


def _checked(reply: Reply | Gone) -> Reply:
    if isinstance(reply, Gone):
        raise _EndedError(reply)
    return reply


def _done(
    normalised: float, memory: Trend, evidence: list[Evidence], *, curves: tuple[Curve, ...]
) -> Component:
    return Component(
        name=NAME,
        raw=memory.line.slope,
        unit="bytes per call",
        normalised=normalised,
        evidence=tuple(evidence),
        curves=curves,
    )


def _evidence(trend: Trend, calls: int) -> Evidence:
    line = trend.line
    return Evidence(
        message=f"{trend.series} grew over {calls} calls: {line.slope:.4g} a call, "
        f"in [{line.low:.4g}, {line.high:.4g}], limit {trend.limit:.4g}",
        value=line.slope,
        unit=f"{trend.unit} per call",
    )
