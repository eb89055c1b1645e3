"""The verifier: a submission in, a verdict out; never an exception for what a submission does.

A fault of ours is told apart by who saw it: only this side declares one, from what the supervisor,
the cgroup and its own code say, never from what a solution printed, returned or exited with. A lost
sandbox is tried once more in a new one, and the verdict says so; a second loss is an infrastructure
fault without a reward.
"""

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Self

import structlog

from tiltyard.core.errors import GraderError, SandboxError, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import Component, Outcome, Verdict
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.zygotes import Interpreter
from tiltyard.verify.found import Found
from tiltyard.verify.provenance import mode_of, provenance_of
from tiltyard.verify.script.mode import ScriptMode
from tiltyard.verify.split.mode import SplitMode
from tiltyard.verify.state.observe import StateChecks
from tiltyard.verify.static.checks import StaticChecks, tool_versions
from tiltyard.verify.submission import reference_of, whole_problem

VERSIONS = MappingProxyType({"split": "split-1", "overlay": "overlay-1", "script": "script-1"})
"""Raised whenever a mode may find something else of the same submission."""
TRIES = 2
TIME_LIMIT_S_MAX = 3600.0

_log = structlog.get_logger(__name__)


class Verifier:
    """Verifies tasks of every kind. Use with `async with`; safe to call concurrently."""

    def __init__(
        self,
        provider: Provider,
        *,
        interpreter: Interpreter,
        spec: SandboxSpec,
        cells_max: int = 4,
        image: str = "",
    ) -> None:
        """`spec` is what solutions and tests run under; `cells_max` bounds each kind of cell.
        `image` is a digest of what sandboxes start from, for the record."""
        self._image = image
        self._split = SplitMode(provider, interpreter=interpreter, spec=spec, cells_max=cells_max)
        self._script = ScriptMode(provider, spec=spec)
        self._state = StateChecks(provider, interpreter=interpreter, spec=spec)
        self._static = StaticChecks(provider, interpreter=interpreter, spec=spec)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._split)
        await self._opened.enter_async_context(self._script)
        await self._opened.enter_async_context(self._state)
        await self._opened.enter_async_context(self._static)
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
        rooms = (self._split, self._script, self._state, self._static)
        return sum(each.sandboxes for each in rooms)

    async def verify(self, task: Task, submission: Submission) -> Verdict:
        """Judges a submission. Raises only when cancelled."""
        started = time.monotonic()
        for attempt in range(1, TRIES + 1):
            try:
                found = await self._judge(task, submission)
                measured = await self._static.measure(task, submission, found)
                found = replace(found, components=(*found.components, *measured))
                provenance = dict(self._provenance(task))
                if measured:
                    provenance["static_tools"] = tool_versions()
                return _verdict(found, MappingProxyType(provenance), attempt, started)
            except GraderError as error:
                return self._fault(Outcome.GRADER_FAULT, task, error, started)
            except SandboxError as error:
                _log.warning(
                    "verification_lost", task_id=task.id, attempt=attempt, error=str(error)
                )
                lost = error
        return self._fault(Outcome.INFRA_FAULT, task, lost, started)

    async def observe(self, task: Task, sandbox: Sandbox) -> tuple[Component, ...]:
        """What the task asserts of the state in which an agent left its sandbox, if anything.

        Call it while the sandbox lives, and add the result to the verdict. Raises `GraderError`
        for an assertion that cannot be made.
        """
        if not task.checks.state:
            return ()
        return (await self._state.observe(sandbox, task.checks.state),)

    async def verify_reference(self, task: Task) -> Verdict:
        """Judges a task's own reference, by a script of the task's where files alone do not make
        it. Raises only when cancelled."""
        started = time.monotonic()
        try:
            if not isinstance(task.hidden, ScriptSuite):
                return await self.verify(task, reference_of(task))
            found = await self._script.judge_reference(task)
            return _verdict(found, self._provenance(task), 1, started)
        except GraderError as error:
            return self._fault(Outcome.GRADER_FAULT, task, error, started)
        except SandboxError as error:
            return self._fault(Outcome.INFRA_FAULT, task, error, started)

    def _provenance(self, task: Task) -> Mapping[str, str]:
        return provenance_of(task, image=self._image)

    def _fault(self, outcome: Outcome, task: Task, error: Exception, started: float) -> Verdict:
        return Verdict(
            outcome=outcome,
            detail=str(error),
            task_unsound=isinstance(error, UnsoundTask),
            provenance=self._provenance(task),
            verifier=VERSIONS[mode_of(task.hidden)],
            wall_s=time.monotonic() - started,
        )

    async def _judge(self, task: Task, submission: Submission) -> Found:
        if not 0 < task.time_limit_s <= TIME_LIMIT_S_MAX:
            raise UnsoundTask(
                f"task {task.id} has a time limit of {task.time_limit_s} s.",
                fix=f"give it one of at most {TIME_LIMIT_S_MAX:.0f} s.",
            )
        if problem := whole_problem(submission):
            return Found(problem=problem, tamper=(problem,))
        if isinstance(task.hidden, ScriptSuite):
            return await self._script.judge(task, submission)
        return await self._split.judge(task, submission)


def _verdict(found: Found, provenance: Mapping[str, str], attempt: int, started: float) -> Verdict:
    again = "verified again after a sandbox was lost" if attempt > 1 else ""
    return Verdict(
        outcome=Outcome.AGENT_FAULT if found.problem else Outcome.GRADED,
        checks=found.checks,
        tamper=found.tamper,
        components=found.components,
        detail=found.problem or again,
        assurance=found.assurance,
        provenance=provenance,
        verifier=VERSIONS[provenance["mode"]],
        wall_s=time.monotonic() - started,
        cpu_s=found.cpu_s,
    )
