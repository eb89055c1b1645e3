"""The verifier: a submission in, a verdict out; never an exception for what a submission does.

A fault of ours is told apart by who saw it: only this side declares one, from what the supervisor,
the cgroup and its own code say, never from what a solution printed, returned or exited with. A lost
sandbox is tried once more in a new one, and the verdict says so; a second loss is an infrastructure
fault without a reward.
"""

import time
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog

from tiltyard.core.errors import GraderError, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import Submission, Task
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter
from tiltyard.verify.dynamic.measures import DynamicMeasures
from tiltyard.verify.found import Found
from tiltyard.verify.split.mode import SplitMode

VERSION = "split-1"
TRIES = 2
TIME_LIMIT_S_MAX = 3600.0

_log = structlog.get_logger(__name__)


class Verifier:
    """Verifies tasks of every kind. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int = 4
    ) -> None:
        """`spec` is what solutions and tests run under; `cells_max` bounds each kind of cell."""
        self._split = SplitMode(provider, interpreter=interpreter, spec=spec, cells_max=cells_max)
        self._dynamic = DynamicMeasures(provider, interpreter=interpreter, spec=spec)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._split)
        await self._opened.enter_async_context(self._dynamic)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return self._split.sandboxes + self._dynamic.sandboxes

    async def verify(self, task: Task, submission: Submission) -> Verdict:
        """Judges a submission. Raises only when cancelled."""
        started = time.monotonic()
        for attempt in range(1, TRIES + 1):
            try:
                found = await self._judge(task, submission)
                measured = await self._dynamic.measure(task, submission, found)
                found = replace(found, components=(*found.components, *measured))
                return _verdict(found, attempt, started)
            except GraderError as error:
                return _fault(Outcome.GRADER_FAULT, error, started)
            except SandboxError as error:
                _log.warning(
                    "verification_lost", task_id=task.id, attempt=attempt, error=str(error)
                )
                lost = error
        return _fault(Outcome.INFRA_FAULT, lost, started)

    async def _judge(self, task: Task, submission: Submission) -> Found:
        if not 0 < task.time_limit_s <= TIME_LIMIT_S_MAX:
            raise GraderError(
                f"task {task.id} has a time limit of {task.time_limit_s} s.",
                fix=f"give it one of at most {TIME_LIMIT_S_MAX:.0f} s.",
            )
        return await self._split.judge(task, submission)


def _verdict(found: Found, attempt: int, started: float) -> Verdict:
    again = "verified again after a sandbox was lost" if attempt > 1 else ""
    return Verdict(
        outcome=Outcome.AGENT_FAULT if found.problem else Outcome.GRADED,
        checks=found.checks,
        tamper=found.tamper,
        components=found.components,
        detail=found.problem or again,
        assurance=found.assurance,
        verifier=VERSION,
        wall_s=time.monotonic() - started,
        cpu_s=found.cpu_s,
    )


def _fault(outcome: Outcome, error: Exception, started: float) -> Verdict:
    return Verdict(
        outcome=outcome, detail=str(error), verifier=VERSION, wall_s=time.monotonic() - started
    )
