"""Many rollouts at once: bounded, independent, each recorded when it ends."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.task import Submission, Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.rollout.episode import Attempt, Setting, Verify, cancelled_trajectory, run_episode

Record = Callable[[Trajectory], Awaitable[None]]
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

    Each is recorded as soon as it ends. When cancelled, those under way are recorded as cancelled,
    their sandboxes are released, and the cancellation goes on. An error of `record` ends the run.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency} must be positive")
    queue = enumerate(planned)
    done: dict[int, Trajectory] = {}

    async def work() -> None:
        for number, attempt in queue:
            try:
                trajectory = await run_episode(attempt, setting)
            except asyncio.CancelledError:
                await asyncio.shield(record(cancelled_trajectory(attempt)))
                raise
            await record(trajectory)
            done[number] = trajectory

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return [done[number] for number in sorted(done)]


class SharedVerdicts:
    """Identical answers to one task are verified once; every record says whose verdict it has.

    Only a verdict about the submission is shared. A fault of ours is not: the next one tries anew.
    Make one for each batch; it keeps every answer of it.
    """

    def __init__(self, verify: Callable[[Task, Submission], Awaitable[Verdict]]) -> None:
        self._verify = verify
        self._locks: dict[tuple[TaskId, tuple[tuple[str, bytes], ...]], asyncio.Lock] = {}
        self._known: dict[
            tuple[TaskId, tuple[tuple[str, bytes], ...]], tuple[RolloutId, Verdict]
        ] = {}

    async def __call__(
        self, rollout_id: RolloutId, task: Task, submission: Submission
    ) -> tuple[Verdict, RolloutId | None]:
        key = (task.id, tuple(sorted(submission.files.items())))
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self._known:
                owner, verdict = self._known[key]
                return verdict, owner
            verdict = await self._verify(task, submission)
            if verdict.outcome in {Outcome.GRADED, Outcome.AGENT_FAULT}:
                self._known[key] = (rollout_id, verdict)
            return verdict, None


def verify_each(verify: Callable[[Task, Submission], Awaitable[Verdict]]) -> Verify:
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
