"""The verifier: a submission in, a verdict out; never an exception for what a submission does.

A fault of ours is told apart by who saw it: only this side declares one, from what the supervisor,
the cgroup and its own code say, never from what a solution printed, returned or exited with. A lost
sandbox is tried once more in a new one, and the verdict says so; a second loss is an infrastructure
fault without a reward.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import structlog

from tiltyard.core.errors import GraderError, SandboxError, UnscoredAnswer, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import RepositorySuite, ScriptSuite, Submission, Task
from tiltyard.core.verdict import Component, Outcome, Verdict
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.zygotes import Interpreter
from tiltyard.verify.dynamic.measures import DynamicMeasures
from tiltyard.verify.found import Found, bounded
from tiltyard.verify.judge.rubric import Judge
from tiltyard.verify.overlay.mode import OverlayMode
from tiltyard.verify.provenance import provenance_of
from tiltyard.verify.room import Room
from tiltyard.verify.script.mode import ScriptMode
from tiltyard.verify.split.mode import SplitMode
from tiltyard.verify.state.observe import StateChecks
from tiltyard.verify.static.checks import StaticChecks, tool_versions
from tiltyard.verify.submission import reference_of, whole_problem

VERSIONS = MappingProxyType({"split": "split-3", "overlay": "overlay-4", "script": "script-3"})
"""Raised whenever a mode may find something else of the same submission."""
TRIES = 2
TIME_LIMIT_S_MAX = 3600.0

_log = structlog.get_logger(__name__)


Told = Callable[[str], object]


class Measure(Protocol):
    """Something that is measured of a submission beside its tests."""

    async def measure(
        self, task: Task, submission: Submission, found: Found
    ) -> tuple[Component, ...]:
        """What the task asks for, and nothing else. A fault of ours is a gap; raises `GraderError`
        where the task is at fault."""
        ...


class Verifier(Room):
    """Verifies tasks of every kind. Use with `async with`; safe to call concurrently."""

    def __init__(
        self,
        provider: Provider,
        *,
        interpreter: Interpreter,
        spec: SandboxSpec,
        cells_max: int = 4,
        image: str = "",
        judge: Judge | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        """`spec` is what solutions and tests run under; `cells_max` bounds each kind of cell.
        `image` is a digest of what sandboxes start from, for the record. `judge` is asked where a
        task has a rubric; without one nobody is. What takes long to find out about a task is kept
        in `cache_dir` for other processes; None keeps nothing."""
        self._image = image
        self._split = SplitMode(provider, interpreter=interpreter, spec=spec, cells_max=cells_max)
        self._overlay = OverlayMode(
            provider,
            interpreter=interpreter,
            spec=spec,
            cells_max=cells_max,
            cache_dir=cache_dir,
            image=image,
        )
        self._script = ScriptMode(provider, spec=spec)
        self._state = StateChecks(provider, interpreter=interpreter, spec=spec)
        self._static = StaticChecks(provider, interpreter=interpreter, spec=spec)
        self._dynamic = DynamicMeasures(provider, interpreter=interpreter, spec=spec)
        self._measures: dict[str, Measure] = {
            "the static checks": self._static,
            "cost, growth and leaks": self._dynamic,
        }
        self._judge_name = "" if judge is None else judge.name
        if judge is not None:
            self._measures["the rubric"] = judge
        modes = (self._split, self._overlay, self._script)
        super().__init__(*modes, self._state, self._static, self._dynamic)

    async def verify(
        self,
        task: Task,
        submission: Submission,
        *,
        seed: int | None = None,
        told: Told | None = None,
    ) -> Verdict:
        """Judges a submission. Raises only when cancelled.

        `seed` fixes what is drawn for it alone, such as new inputs; None draws one, and the
        verdict's `provenance` names it. `told` hears in words what is done next; None tells nobody.
        """
        started = time.monotonic()
        if seed is None:
            seed = secrets.randbits(48)  # the same for a second try: a loss is no new draw
        provenance = await self._provenance(task)
        tell = told or (lambda _: None)
        for attempt in range(1, TRIES + 1):
            try:
                tell("the hidden tests")
                found = replace(await self._judge(task, submission, seed=seed), seed=seed)
                for name, measure in self._measures.items():
                    tell(name)
                    more = await measure.measure(task, submission, found)
                    found = replace(found, components=(*found.components, *more))
                return _verdict(task, bounded(found), provenance, attempt, started)
            except GraderError as error:
                return _fault(Outcome.GRADER_FAULT, provenance, error, started)
            except SandboxError as error:
                _log.info("verification_lost", task_id=task.id, attempt=attempt, error=str(error))
                lost = error
        return _fault(Outcome.INFRA_FAULT, provenance, lost, started)

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
        told = await self._provenance(task)
        try:
            if not isinstance(task.hidden, ScriptSuite):
                return await self.verify(task, reference_of(task))
            found = await self._script.judge_reference(task)
            return _verdict(task, bounded(found), told, 1, started)
        except GraderError as error:
            return _fault(Outcome.GRADER_FAULT, told, error, started)
        except SandboxError as error:
            return _fault(Outcome.INFRA_FAULT, told, error, started)

    async def _provenance(self, task: Task) -> Mapping[str, str]:
        # In a thread: a suite may have megabytes, and its digest is remembered for few.
        told = await asyncio.to_thread(provenance_of, task, image=self._image)
        more = {"static_tools": tool_versions()} if task.checks.static else {}
        if task.checks.rubric is not None and self._judge_name:
            more["judge"] = self._judge_name
        return MappingProxyType({**told, **more})

    async def _judge(self, task: Task, submission: Submission, *, seed: int) -> Found:
        if not 0 < task.time_limit_s <= TIME_LIMIT_S_MAX:
            raise UnsoundTask(
                f"task {task.id} has a time limit of {task.time_limit_s} s.",
                fix=f"give it one of at most {TIME_LIMIT_S_MAX:.0f} s.",
            )
        if problem := whole_problem(submission):
            return Found(problem=problem, tamper=(problem,))
        if isinstance(task.hidden, RepositorySuite):
            return await self._overlay.judge(task, submission)
        if isinstance(task.hidden, ScriptSuite):
            return await self._script.judge(task, submission)
        return await self._split.judge(task, submission, seed=seed)


def _fault(
    outcome: Outcome, provenance: Mapping[str, str], error: Exception, started: float
) -> Verdict:
    alone = isinstance(error, UnscoredAnswer)
    return Verdict(
        outcome=outcome,
        tamper=("no reward, though the reference has one",) if alone else (),
        detail=str(error),
        task_unsound=isinstance(error, UnsoundTask),
        provenance=provenance,
        verifier=VERSIONS[provenance["mode"]],
        wall_s=time.monotonic() - started,
    )


def _verdict(
    task: Task, found: Found, provenance: Mapping[str, str], attempt: int, started: float
) -> Verdict:
    again = "verified again after a sandbox was lost" if attempt > 1 else ""
    return Verdict(
        outcome=Outcome.AGENT_FAULT if found.problem else Outcome.GRADED,
        checks=found.checks,
        tamper=found.tamper,
        components=found.components,
        detail=found.problem or again,
        assurance=found.assurance,
        baseline=task.baseline,
        provenance=MappingProxyType({**_seeds(task, found), **found.provenance, **provenance}),
        verifier=VERSIONS[provenance["mode"]],
        wall_s=time.monotonic() - started,
        cpu_s=found.cpu_s,
    )


def _seeds(task: Task, found: Found) -> Mapping[str, str]:
    """The seed, where something was drawn from it."""
    drawn = task.checks.inputs is not None and found.seed is not None
    return {"seed": str(found.seed)} if drawn else {}
