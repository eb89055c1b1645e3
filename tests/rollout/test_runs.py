"""Many rollouts at once: bounds, recording, cancelling, shared verdicts."""

import asyncio
import time
from collections.abc import Callable

import pytest

from sample_policies import Replies
from tiltyard.core.errors import StoreError
from tiltyard.core.ids import RolloutId
from tiltyard.core.task import Split, Submission, Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Verdict
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import (
    SharedVerdicts,
    attempts,
    outcome_counts,
    run_attempts,
    verify_each,
)
from tiltyard.tasks.repair import make_task
from tiltyard.wiring import Yard


def test_attempts_repeat_under_a_seed_and_differ_within_a_group(task: Task) -> None:
    first = list(attempts([task], samples=3, seed=1))

    assert first == list(attempts([task], samples=3, seed=1))
    assert len({each.seed for each in first}) == len({each.id for each in first}) == 3
    assert {each.group for each in first} == {task.id}
    assert {each.seed for each in first}.isdisjoint(
        each.seed for each in attempts([task], samples=3, seed=2)
    )


class TestSharedVerdicts:
    """Identical answers cost one verification; faults are never shared."""

    async def test_one_verification_for_identical_answers_at_once(self, task: Task) -> None:
        calls = 0

        async def verify(_task: Task, _submission: Submission) -> Verdict:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            return Verdict(outcome=Outcome.GRADED)

        shared = SharedVerdicts(verify)
        answer = Submission(files={"solution.py": b"x = 1"})
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(shared(RolloutId(str(number)), task, answer))
                for number in range(5)
            ]

        assert calls == 1
        assert sorted(str(each.result()[1]) for each in asked) == ["0", "0", "0", "0", "None"]

    async def test_a_fault_is_tried_anew(self, task: Task) -> None:
        outcomes = iter((Outcome.INFRA_FAULT, Outcome.GRADED))

        async def verify(_task: Task, _submission: Submission) -> Verdict:
            return Verdict(outcome=next(outcomes))

        shared = SharedVerdicts(verify)
        answer = Submission(files={"solution.py": b"x = 1"})
        first, _ = await shared(RolloutId("a"), task, answer)
        second, owner = await shared(RolloutId("b"), task, answer)

        assert (first.outcome, second.outcome) == (Outcome.INFRA_FAULT, Outcome.GRADED)
        assert owner is None

    async def test_an_ending_that_depends_on_the_machine_is_not_shared(self, task: Task) -> None:
        checks = iter((CheckStatus.TIMEOUT, CheckStatus.PASSED))

        async def verify(_task: Task, _submission: Submission) -> Verdict:
            return Verdict(outcome=Outcome.GRADED, checks=(Check(id="a", status=next(checks)),))

        shared = SharedVerdicts(verify)
        answer = Submission(files={"solution.py": b"x = 1"})
        first, _ = await shared(RolloutId("a"), task, answer)
        second, owner = await shared(RolloutId("b"), task, answer)

        assert (first.all_passed, second.all_passed, owner) == (False, True, None)

    async def test_another_answer_and_another_task_are_verified(self, task: Task) -> None:
        seen: list[tuple[str, bytes]] = []

        async def verify(judged: Task, submission: Submission) -> Verdict:
            seen.append((judged.id, submission.files["solution.py"]))
            return Verdict(outcome=Outcome.GRADED)

        other = make_task(99, split=Split.TRAIN)
        shared = SharedVerdicts(verify)
        for judged, source in ((task, b"1"), (task, b"2"), (other, b"1")):
            await shared(RolloutId("r"), judged, Submission(files={"solution.py": source}))

        assert len(seen) == 3


@pytest.mark.sandbox
class TestRunAttempts:
    """The runner over real sandboxes."""

    async def test_every_rollout_is_recorded_once_and_returned_in_order(
        self, make_setting: Callable[..., Setting], yard: Yard
    ) -> None:
        tasks = {made.id: made for made in (make_task(n, split=Split.TRAIN) for n in range(6))}
        policy = Replies(
            lambda prompt: (
                tasks[prompt.task_id].reference
                if prompt.sample % 2
                else tasks[prompt.task_id].starter
            )
        )
        recorded: list[str] = []

        async def record(trajectory: Trajectory) -> None:
            recorded.append(trajectory.id)

        planned = list(attempts(tasks.values(), samples=4, seed=0))
        done = await run_attempts(
            planned, make_setting(policy, turns_max=1), concurrency=8, record=record
        )

        assert [each.id for each in done] == [each.id for each in planned]
        assert sorted(recorded) == sorted(each.id for each in planned)
        assert [each.reward.value for each in done] == [0.0, 1.0] * 12
        assert outcome_counts(done)[Outcome.GRADED] == 24
        assert sum(each.shared_verdict_of is not None for each in done) == 12
        assert yard.pool.counts.in_use == 0

    async def test_cancelling_records_what_was_under_way_and_releases_it(
        self, task: Task, make_setting: Callable[..., Setting], yard: Yard
    ) -> None:
        verifying = asyncio.Event()
        arrived = 0

        async def hang(_task: Task, _submission: Submission) -> Verdict:
            nonlocal arrived
            arrived += 1
            if arrived == 3:
                verifying.set()
            await asyncio.Event().wait()
            raise AssertionError

        recorded: list[Trajectory] = []

        async def record(trajectory: Trajectory) -> None:
            recorded.append(trajectory)

        setting = make_setting(Replies(lambda _: task.reference), verify=verify_each(hang))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                run_attempts(
                    attempts([task], samples=5, seed=0), setting, concurrency=3, record=record
                )
            )
            await verifying.wait()
            running.cancel()
            await asyncio.wait((running,))

        assert running.cancelled()
        assert sorted(each.id for each in recorded) == [f"{task.id}.{n}" for n in range(3)]
        assert {each.verdict.outcome for each in recorded} == {Outcome.CANCELLED}
        assert all(each.reward.value is None for each in recorded)
        assert all(each.steps for each in recorded)
        assert yard.pool.counts.in_use == 0

    async def test_cancelling_loses_no_rollout_that_had_ended(
        self, task: Task, make_setting: Callable[..., Setting]
    ) -> None:
        recorded: list[Trajectory] = []
        all_wait, go_on = asyncio.Event(), asyncio.Event()
        waiting = 0

        async def slow_disk(trajectory: Trajectory) -> None:
            nonlocal waiting
            waiting += 1
            if waiting == 3:
                all_wait.set()
            await go_on.wait()
            recorded.append(trajectory)

        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                run_attempts(
                    attempts([task], samples=3, seed=0),
                    make_setting(Replies(lambda _: task.reference)),
                    concurrency=3,
                    record=slow_disk,
                )
            )
            await all_wait.wait()
            running.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.wait((running,))

        assert running.cancelled()
        assert [each.reward.value for each in recorded] == [1.0, 1.0, 1.0]

    async def test_a_store_that_cannot_write_stops_the_run(
        self, task: Task, make_setting: Callable[..., Setting], yard: Yard
    ) -> None:
        async def record(_trajectory: Trajectory) -> None:
            raise StoreError("the disk is full.")

        setting = make_setting(Replies(lambda _: task.reference))
        with pytest.RaisesGroup(StoreError, flatten_subgroups=True):
            await run_attempts(
                attempts([task], samples=1, seed=0), setting, concurrency=1, record=record
            )
        assert yard.pool.counts.in_use == 0

    async def test_the_event_loop_is_never_blocked_for_long(
        self, make_setting: Callable[..., Setting]
    ) -> None:
        """Invariant 7, in the CPU time of the loop's thread: the machine is shared."""
        tasks = {made.id: made for made in (make_task(n, split=Split.TRAIN) for n in range(40))}
        policy = Replies(lambda prompt: tasks[prompt.task_id].starter)
        turns_cpu_s: list[float] = []

        async def record(_trajectory: Trajectory) -> None:
            return

        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                run_attempts(
                    attempts(tasks.values(), samples=2, seed=0),
                    make_setting(policy, turns_max=2),
                    concurrency=16,
                    record=record,
                )
            )
            while not running.done():
                before = time.thread_time()
                await asyncio.sleep(0)
                turns_cpu_s.append(time.thread_time() - before)

        assert max(turns_cpu_s) < 0.05
