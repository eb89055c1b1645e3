"""Whole rollouts, eight at once, beside systems that do nothing but verify.

What is measured is only counted when the verdict was the right one.
"""

import itertools
from collections.abc import Awaitable, Callable

from board import Board
from race import System, race
from sandboxes import SPEC, at_rest
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.task import Task
from tiltyard.core.trajectory import Answer, PolicyReply, Prompt
from tiltyard.rollout.episode import Attempt, Progress, Setting, run_episode
from tiltyard.rollout.runs import verify_each
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.verify.verifier import Verifier
from verifications import (
    CONCURRENCY,
    SLICE_S,
    TASKS,
    check,
    peers_of,
    repair_tasks,
    trials,
    verifier_of,
)


async def under_load(board: Board) -> None:
    """Whole rollouts, eight at once; the peers do nothing but verify."""
    tasks = repair_tasks(TASKS)
    async with (
        NativeProvider() as provider,
        Pool(provider) as pool,
        verifier_of(provider) as verifier,
        peers_of(board, "rollouts", tasks) as peers,
    ):
        racing = [
            System(name="one-turn", once=_rollouts(pool, verifier, tasks, turns_max=1)),
            System(
                name="two-turns",
                once=_rollouts(pool, verifier, tasks, turns_max=2),
                settle=lambda: at_rest(pool),
            ),
            *peers,
        ]
        await race(board, "rollouts", racing, concurrency=CONCURRENCY, slice_s=SLICE_S)


class ScriptedPolicy:
    """Answers with the starter until its last turn, and then with what the script says."""

    name = "scripted"

    def __init__(self, turns_max: int) -> None:
        self._turns_max = turns_max
        self.script: dict[tuple[TaskId, int], str] = {}

    async def respond(self, prompt: Prompt) -> PolicyReply:
        last = len(prompt.earlier) + 1 == self._turns_max
        text = self.script[prompt.task_id, prompt.sample] if last else prompt.code
        return PolicyReply(text=text, policy_version="scripted-1")


def _rollouts(
    pool: Pool, verifier: Verifier, tasks: list[Task], *, turns_max: int
) -> Callable[[], Awaitable[None]]:
    policy = ScriptedPolicy(turns_max)
    for task in tasks:
        policy.script |= {(task.id, 0): task.starter, (task.id, 1): task.reference}
    setting = Setting(
        policy=policy,
        read_answer=lambda _code, reply: Answer(code=reply),
        pool=pool,
        spec=SPEC,
        verify=verify_each(verifier.verify),
        turns_max=turns_max,
    )
    answers, numbers = trials(tasks), itertools.count()

    async def once() -> None:
        trial, number = next(answers), next(numbers)
        attempt = Attempt(
            id=RolloutId(f"bench.{number}"),
            group=GroupId(trial.task.id),
            task=trial.task,
            sample=int(trial.right),
            seed=number,
        )
        trajectory = await run_episode(attempt, setting, Progress())
        verdict = trajectory.verdict
        check(trial, verdict.outcome, trajectory.reward, verdict.detail)

    return once
