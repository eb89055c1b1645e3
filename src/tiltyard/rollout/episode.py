"""One rollout, from the first turn to the committed outcome."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from tiltyard import __version__
from tiltyard.core.errors import (
    GraderError,
    PolicyError,
    SandboxDied,
    SandboxError,
    SandboxFileError,
)
from tiltyard.core.execution import ExecResult, Reason, SandboxSpec
from tiltyard.core.ids import GroupId, RolloutId
from tiltyard.core.task import Submission, Task
from tiltyard.core.trajectory import Answer, Observation, PolicyReply, Prompt, Step, Trajectory
from tiltyard.core.verdict import Component, Outcome, Verdict
from tiltyard.core.weights import DEFAULT, UNWEIGHTED, Weighting, Weights
from tiltyard.rollout.examples import EXAMPLES_FILE, examples_program, examples_text
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.reward import reward_of

EXAMPLES_TIMEOUT_S = 10.0
FEEDBACK_CHARACTERS_MAX = 2_000

_log = structlog.get_logger(__name__)


class Policy(Protocol):
    """Whatever produces the turns of a rollout."""

    @property
    def name(self) -> str:
        """For records: what it is, without secrets."""
        ...

    async def respond(self, prompt: Prompt) -> PolicyReply:
        """One turn. Raises `PolicyError` when it cannot answer, which is no fault of the model."""
        ...


ReadAnswer = Callable[[str, str], Answer]
"""From the module as it stands and a reply's text to its new source. Never raises."""

Verify = Callable[[RolloutId, Task, Submission], Awaitable[tuple[Verdict, RolloutId | None]]]
"""Judges a submission; the second value names the rollout whose verdict is shared, or None."""


Observe = Callable[[Task, Sandbox], Awaitable[tuple[Component, ...]]]
"""What a task asserts of the sandbox as its agent left it. Raises `GraderError` for a bad task."""


async def observe_nothing(_task: Task, _sandbox: Sandbox) -> tuple[Component, ...]:
    """For tasks that assert nothing of it."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A rollout that is to be made."""

    id: RolloutId
    group: GroupId
    task: Task
    sample: int
    """Index within the group."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all rollouts of a run have in common."""

    policy: Policy
    read_answer: ReadAnswer
    pool: Pool
    spec: SandboxSpec
    """Of the agents' own sandboxes; the limits are each task's."""
    verify: Verify
    turns_max: int
    observe: Observe = observe_nothing
    weighting: Weighting = UNWEIGHTED
    """What rewards are made with."""

    def weights_of(self, task: Task) -> Weights:
        """What a rollout of this task is rewarded with."""
        return self.weighting.of(task.id, task.weights)


class Progress:
    """What is known of a rollout so far, so that it can be recorded however it ends."""

    def __init__(self) -> None:
        self.started_unix_s = time.time()
        self.started = time.monotonic()
        self.steps: list[Step] = []
        self.shared: RolloutId | None = None

    def trajectory(
        self, attempt: Attempt, verdict: Verdict, weights: Weights = DEFAULT
    ) -> Trajectory:
        """The record of the rollout with this verdict, as of now."""
        task = attempt.task
        versions = {
            "tiltyard": __version__,
            "task": task.revision,
            "verifier": verdict.verifier,
            "policy": self.steps[-1].reply.policy_version if self.steps else "",
        }
        if weights != DEFAULT:
            versions["weights"] = weights.digest
        return Trajectory(
            id=attempt.id,
            group=attempt.group,
            task_id=task.id,
            family=task.family,
            steps=tuple(self.steps),
            verdict=verdict,
            reward=reward_of(verdict, weights),
            started_unix_s=self.started_unix_s,
            wall_s=time.monotonic() - self.started,
            seed=attempt.seed,
            versions=versions,
            shared_verdict_of=self.shared,
            weights=None if weights == DEFAULT else weights,
            prompt=_prompt(attempt, task.starter, []),
        )


CANCELLED = Verdict(outcome=Outcome.CANCELLED, detail="stopped before its end")


async def run_episode(attempt: Attempt, setting: Setting, progress: Progress) -> Trajectory:
    """Makes one rollout. Whatever fails is recorded in it; only cancelling raises.

    `progress` is a new one; when this is cancelled it holds what there is to record.
    """
    try:
        verdict = await _turns(attempt, setting, progress)
    except (PolicyError, SandboxError) as error:
        verdict = Verdict(outcome=Outcome.INFRA_FAULT, detail=str(error))
    except GraderError as error:
        verdict = Verdict(outcome=Outcome.GRADER_FAULT, detail=str(error))
    except asyncio.CancelledError:
        if _being_cancelled():
            raise
        # Something below was cancelled by itself: a defect of ours, like any other.
        _log.exception("rollout_failed", rollout_id=attempt.id)
        verdict = Verdict(outcome=Outcome.INFRA_FAULT, detail="internal error: cancelled inside")
    except Exception as error:  # noqa: BLE001 - the boundary of one rollout
        # A defect of ours in one rollout must not end the others, nor look like the policy's.
        _log.exception("rollout_failed", rollout_id=attempt.id)
        detail = f"internal error: {type(error).__name__}: {error}"
        verdict = Verdict(outcome=Outcome.INFRA_FAULT, detail=detail)
    return progress.trajectory(attempt, verdict, setting.weights_of(attempt.task))


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _turns(attempt: Attempt, setting: Setting, progress: Progress) -> Verdict:
    task = attempt.task
    code, answered = task.starter, False
    async with AsyncExitStack() as held:
        sandbox: Sandbox | None = None
        for turn in range(setting.turns_max):
            reply = await setting.policy.respond(_prompt(attempt, code, progress.steps))
            answer = setting.read_answer(code, reply.text)
            if answer.code is None:
                progress.steps.append(_unread(reply, answer.problem))
                continue
            code, answered = answer.code, True
            if turn + 1 == setting.turns_max:
                # Nobody would read what running the examples shows.
                progress.steps.append(Step(reply=reply, code=code))
                break
            if sandbox is None:
                sandbox = await held.enter_async_context(_own(setting, task))
            execution, observation = await _try_examples(sandbox, task, code)
            progress.steps.append(
                Step(reply=reply, code=code, execution=execution, observation=observation)
            )
            if observation.solved:
                break
        state: tuple[Component, ...] = ()
        if task.checks.state:
            # Also one that was never used has a state, and it may be what the task wants changed.
            if sandbox is None:
                sandbox = await held.enter_async_context(_own(setting, task))
            state = await setting.observe(task, sandbox)
    if not answered:
        problem = progress.steps[-1].problem if progress.steps else "no turn was allowed"
        return Verdict(outcome=Outcome.AGENT_FAULT, detail=problem)
    submission = Submission(files={f"{task.module}.py": code.encode("utf-8", "replace")})
    verdict, progress.shared = await setting.verify(attempt.id, task, submission)
    return replace(verdict, components=(*verdict.components, *state)) if state else verdict


def _own(setting: Setting, task: Task) -> AbstractAsyncContextManager[Sandbox]:
    """A sandbox for the agent alone."""
    return setting.pool.sandbox(replace(setting.spec, limits=task.limits))


def _prompt(attempt: Attempt, code: str, steps: list[Step]) -> Prompt:
    task = attempt.task
    return Prompt(
        task_id=task.id,
        instruction=task.instruction,
        examples=examples_text(task.visible),
        code=code,
        earlier=tuple(steps),
        sample=attempt.sample,
    )


def _unread(reply: PolicyReply, problem: str) -> Step:
    observation = Observation(text=problem, solved=False)
    return Step(reply=reply, code=None, problem=problem, observation=observation)


async def _try_examples(
    sandbox: Sandbox, task: Task, code: str
) -> tuple[ExecResult | None, Observation]:
    """Writes the code into the agent's own sandbox and runs the visible examples there.

    What earlier turns did to their own files, disk or interpreter is theirs to read about; only the
    loss of the sandbox is a fault of ours.
    """
    try:
        await sandbox.write(f"{task.module}.py", code.encode("utf-8", "replace"))
        await sandbox.write(EXAMPLES_FILE, examples_program(task))
    except SandboxFileError as error:
        return None, Observation(text=str(error), solved=False)
    execution = await sandbox.run(
        ["python", "-B", EXAMPLES_FILE], timeout_s=EXAMPLES_TIMEOUT_S, cpu_s=int(EXAMPLES_TIMEOUT_S)
    )
    if execution.lost:
        raise SandboxDied(f"sandbox {sandbox.id} was lost while the examples ran.")
    said = (execution.stdout.text + execution.stderr.text).strip()
    if execution.reason is not Reason.EXIT:
        said = f"{said}\nstopped: {execution.reason} {execution.detail}".strip()
    return execution, Observation(text=said[-FEEDBACK_CHARACTERS_MAX:], solved=execution.ok)
