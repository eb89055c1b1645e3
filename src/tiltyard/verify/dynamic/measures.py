"""The dynamic measures that a task asks for, after its hidden suite has been passed in full.

There is no performance to speak of before full correctness: of a submission that failed a check, or
that reached for the verifier, nothing is measured. A fault of ours costs the measure, never the
verdict.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from tiltyard.core.errors import GraderError, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import ProgramSuite, Submission, Task
from tiltyard.core.verdict import Component, Gap
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter
from tiltyard.verify.dynamic import (
    cost,
    function_cost,
    function_growth,
    growth,
    leaks,
    program_cost,
    program_growth,
)
from tiltyard.verify.dynamic.bench import Bench, NotCountedError
from tiltyard.verify.dynamic.memcheck import MemcheckMeter, Memchecks
from tiltyard.verify.dynamic.program_bench import ProgramBench
from tiltyard.verify.found import Found, without
from tiltyard.verify.room import Room
from tiltyard.verify.submission import take

_log = structlog.get_logger(__name__)


class DynamicMeasures(Room):
    """Cost, growth and leaks. Use with `async with`; safe to call concurrently: they take turns."""

    def __init__(self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec) -> None:
        """`spec` is what solutions are measured under; one is measured at a time."""
        self._bench = Bench(provider, interpreter=interpreter, spec=spec)
        self._programs = ProgramBench(provider, spec=spec, python=interpreter.python)
        self._memchecks = Memchecks(self._programs)
        self._turn = asyncio.Lock()
        super().__init__(self._bench, self._programs)

    async def measure(
        self, task: Task, submission: Submission, found: Found
    ) -> tuple[Component, ...]:
        """What the task's checks ask for, and nothing else. Raises only when cancelled."""
        checks = task.checks
        if not (checks.cost or checks.growth or checks.leaks):
            return ()
        taken = take(task, submission)
        may = found.all_passed and not (found.tamper or taken.problem)
        source, seed = taken.source, _seed(found)
        meters: list[tuple[Measure, Missing]] = []
        if checks.cost:
            meters.append((self._cost(task, source, seed), cost.unbilled))
        if checks.growth is not None:
            meters.append((self._growth(task, source, seed), _missing(growth.NAME)))
        if checks.leaks is not None:
            meters.append((self._leaks(task, source, seed), _missing(leaks.NAME)))
        components: list[Component] = []
        for measure, missing in meters:
            if not may:
                why = "nothing is measured before every check has passed"
                components += missing(Gap.NOT_POSSIBLE, why)
                continue
            async with self._turn:
                components += await _taken(measure, missing, task)
        return tuple(components)

    def _cost(self, task: Task, source: bytes, seed: int) -> "Measure":
        suite = task.hidden
        if isinstance(suite, ProgramSuite):
            return partial(
                program_cost.measure, self._programs, task, suite, source=source, seed=seed
            )
        return partial(function_cost.measure, self._bench, task, source=source, seed=seed)

    def _growth(self, task: Task, source: bytes, seed: int) -> "Measure":
        suite = task.hidden
        if isinstance(suite, ProgramSuite):
            benches = (self._bench, self._programs)
            return partial(program_growth.measure, benches, task, suite, source=source, seed=seed)
        return partial(function_growth.measure, self._bench, task, source=source, seed=seed)

    def _leaks(self, task: Task, source: bytes, seed: int) -> "Measure":
        async def measure() -> tuple[Component, ...]:
            if isinstance(task.hidden, ProgramSuite):
                meter = MemcheckMeter(self._memchecks, task, task.hidden, source)
                return (await meter.measure(),)
            return (await leaks.LeakMeter(self._bench, task, source, seed=seed).measure(),)

        return measure


Measure = Callable[[], Awaitable[tuple[Component, ...]]]
Missing = Callable[[Gap, str], tuple[Component, ...]]


def _seed(found: Found) -> int:
    return secrets.randbits(32) if found.seed is None else found.seed


def _missing(name: str) -> Missing:
    def missing(gap: Gap, why: str) -> tuple[Component, ...]:
        return (without(name, gap, why),)

    return missing


async def _taken(measure: Measure, missing: Missing, task: Task) -> tuple[Component, ...]:
    try:
        return await measure()
    except NotCountedError as error:
        return missing(Gap.UNRESOLVED, str(error))
    except (GraderError, SandboxError) as error:
        _log.info("measure_lost", task_id=task.id, error=str(error))
        return missing(Gap.INFRA, str(error))
