"""Many rollouts at once: bounded, independent, each recorded when it ends."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.task import Submission, Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import CheckStatus, Outcome, Verdict
from tiltyard.core.weights import DEFAULT
from tiltyard.rollout.episode import CANCELLED, Attempt, Progress, Setting, Verify, run_episode
from tiltyard.tasks.concurrently import for_each
from tiltyard.verify.reward import Judged, rewards_of_run

REMEMBERED_TASKS_MAX = 4_096
"""More than any batch has; a run over more tasks must not keep all of their answers."""
ANSWERED = frozenset(
    {
        CheckStatus.PASSED,
        CheckStatus.WRONG_ANSWER,
        CheckStatus.EXCEPTION,
        CheckStatus.BAD_VALUE_TYPE,
    }
)
"""How a check ends when the solution answered it, whatever the answer."""

Judge = Callable[[Task, Submission], Awaitable[Verdict]]
"""`Verifier.verify`."""

Record = Callable[[Trajectory], Coroutine[Any, Any, None]]
"""Makes a finished rollout durable. Raises when it cannot; that stops the run."""


def attempts(
    tasks: Iterable[Task], *, samples: int, seed: int, label: str = ""
) -> Iterator[Attempt]:
    """`samples` attempts at each task, as one group; the same arguments give the same attempts.

    `label` tells groups of the same task apart within a run.
    """
    for task in tasks:
        group = GroupId(f"{label}{task.id}")
        for sample in range(samples):
            yield Attempt(
                id=RolloutId(f"{group}.{sample}"),
                group=group,
                task=task,
                sample=sample,
                seed=derived_seed(seed, task.id, label, sample),
            )


def derived_seed(seed: int, task_id: TaskId, label: str, sample: int) -> int:
    """A rollout's own seed: 63 bits that depend on nothing but these."""
    digest = hashlib.sha256(f"{seed}\0{task_id}\0{label}\0{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


async def run_attempts(
    planned: Iterable[Attempt], setting: Setting, *, concurrency: int, record: Record
) -> list[Trajectory]:
    """Makes every rollout, at most `concurrency` at once; returns them in the order planned.

    Each is recorded as soon as it ends, with the reward that it has by itself; those returned have
    the rewards of whole groups (`rewarded_by_group`), and are what to learn from. When cancelled,
    those under way are recorded as cancelled, those that had ended are recorded all the same, their
    sandboxes are released, and the cancellation goes on. An error of `record` ends the run. Raises
    UsageError when `concurrency` is not positive.
    """
    done: dict[int, Trajectory] = {}

    async def make(number: int, attempt: Attempt) -> None:
        progress = Progress()
        try:
            trajectory = await run_episode(attempt, setting, progress)
        except asyncio.CancelledError:
            await _to_its_end(record(_cancelled(attempt, setting, progress)))
            raise
        await _to_its_end(record(trajectory))
        done[number] = trajectory

    await for_each(planned, make, concurrency=concurrency)
    # In a thread: weighing ten thousand takes longer than the event loop may stand still.
    return await asyncio.to_thread(rewarded_by_group, [done[number] for number in sorted(done)])


def rewarded_by_group(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Rollouts of a run, in their order, each with the reward that it has in its group.

    This is what a learner is to be given, and what `tiltyard rescore` makes of the same records by
    the same weights. Whole groups are given: who is left out is not compared with.
    """
    ended = list(trajectories)
    judged = [
        Judged(
            group=each.group,
            task=each.task_id,
            weights=each.weights or DEFAULT,
            verdict=each.verdict,
        )
        for each in ended
    ]
    rewards = rewards_of_run(judged)
    return [replace(each, reward=reward) for each, reward in zip(ended, rewards, strict=True)]


def _cancelled(attempt: Attempt, setting: Setting, progress: Progress) -> Trajectory:
    return progress.trajectory(attempt, CANCELLED, setting.weights_of(attempt.task))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Waits for work that must not be left half-way; a cancellation goes on when it is done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait((task,))
        task.result()
        raise


@dataclass(slots=True)
class _Answers:
    """What is known of one task's answers, by their digest."""

    locks: dict[bytes, asyncio.Lock] = field(default_factory=dict)
    verdicts: dict[bytes, tuple[RolloutId, Verdict]] = field(default_factory=dict)


class SharedVerdicts:
    """Identical answers to one task are verified once; every record says whose verdict it has.

    Only a verdict that follows from the answer alone is shared: neither a fault of ours, nor an
    ending that depends on the machine, such as a timeout. The tasks judged last are remembered.
    """

    def __init__(self, verify: Judge) -> None:
        self._verify = verify
        self._tasks: OrderedDict[TaskId, _Answers] = OrderedDict()

    async def __call__(
        self, rollout_id: RolloutId, task: Task, submission: Submission
    ) -> tuple[Verdict, RolloutId | None]:
        answers = self._tasks.setdefault(task.id, _Answers())
        self._tasks.move_to_end(task.id)
        if len(self._tasks) > REMEMBERED_TASKS_MAX:
            self._tasks.popitem(last=False)
        key = _digest(submission)
        async with answers.locks.setdefault(key, asyncio.Lock()):
            if key in answers.verdicts:
                owner, verdict = answers.verdicts[key]
                return verdict, owner
            verdict = await self._verify(task, submission)
            if _follows_from_the_answer(verdict):
                answers.verdicts[key] = (rollout_id, verdict)
            return verdict, None


def _digest(submission: Submission) -> bytes:
    digest = hashlib.sha256()
    named = {path: _raw(target) for path, target in submission.links.items()}
    strange = {path: _raw(kind) for path, kind in submission.odd.items()}
    for entries in (submission.files, named, strange):
        digest.update(len(entries).to_bytes(8, "little"))
        for path, content in sorted(entries.items()):
            for part in (_raw(path), content):
                digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _follows_from_the_answer(verdict: Verdict) -> bool:
    if verdict.outcome is Outcome.AGENT_FAULT:
        return True
    return verdict.outcome is Outcome.GRADED and all(
        check.status in ANSWERED for check in verdict.checks
    )


def verify_each(verify: Judge) -> Verify:
    """A `Verify` that shares nothing."""

    async def each(
        _: RolloutId, task: Task, submission: Submission
    ) -> tuple[Verdict, RolloutId | None]:
        return await verify(task, submission), None

    return each


def outcome_counts(trajectories: Sequence[Trajectory]) -> dict[Outcome, int]:
    """How many rollouts ended in each way; every outcome is named."""
    return {
        outcome: sum(trajectory.verdict.outcome is outcome for trajectory in trajectories)
        for outcome in Outcome
    }
