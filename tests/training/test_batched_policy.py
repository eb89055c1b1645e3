"""Batches are sent when all live rollouts wait, sorted, and nobody is stalled by another's end."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from tiltyard.core.errors import PolicyError, UsageError
from tiltyard.core.ids import TaskId
from tiltyard.core.trajectory import PolicyReply, PolicyTokens, Prompt, Step
from tiltyard.training.batched_policy import BatchedPolicy, batched_policy
from tiltyard.training.exchange import Question, Reply

pytestmark = pytest.mark.train


class Echo:
    """A learner that answers with the question's key, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[Question]] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def act(self, questions: Sequence[Question]) -> list[Reply]:
        self.batches.append(list(questions))
        await self.answers.wait()
        tokens = PolicyTokens(prompt_ids=(), output_ids=(), logprobs=())
        return [
            Reply(text=question.key, tokens=tokens, truncated=False, policy_version="3")
            for question in questions
        ]


def prompt(task: str, sample: int, earlier: int = 0) -> Prompt:
    step = Step(reply=PolicyReply(text="", policy_version=""), code=None)
    return Prompt(
        task_id=TaskId(task),
        instruction="Do.",
        code="x\n",
        earlier=(step,) * earlier,
        sample=sample,
    )


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_batch_is_sent_when_the_last_live_rollout_asks() -> None:
    echo = Echo()
    async with batched_policy(echo.act, label="l") as policy, asyncio.TaskGroup() as tasks:
        policy.expect(3)
        first = [tasks.create_task(policy.respond(prompt("a", i))) for i in range(2)]
        await settle()
        assert echo.batches == []
        last = await policy.respond(prompt("a", 2))
    assert len(echo.batches) == 1
    assert [task.result().text for task in first] == ["l/a/0/0", "l/a/1/0"]
    assert last.policy_version == "3"


@pytest.mark.parametrize("seed", range(5))
async def test_batches_do_not_depend_on_the_order_of_arrival(seed: int) -> None:
    asked = [prompt(task, sample) for task in ("b", "a", "c") for sample in range(11)]
    Random(seed).shuffle(asked)  # noqa: S311 - an order of arrival
    echo = Echo()
    async with batched_policy(echo.act, label="l") as policy, asyncio.TaskGroup() as tasks:
        policy.expect(len(asked))
        answers = [(p, tasks.create_task(policy.respond(p))) for p in asked]
    (batch,) = echo.batches
    assert [question.key for question in batch] == [
        f"l/{task}/{sample}/0" for task in "abc" for sample in range(11)
    ]
    for given, answer in answers:
        assert answer.result().text == f"l/{given.task_id}/{given.sample}/0"


async def rollout(policy: BatchedPolicy, task: str, turns: int) -> None:
    try:
        for turn in range(turns):
            await policy.respond(prompt(task, 0, turn))
    finally:
        policy.leave()


async def test_rollouts_of_different_lengths_never_wait_for_those_that_left() -> None:
    echo = Echo()
    async with batched_policy(echo.act, label="l") as policy, asyncio.TaskGroup() as tasks:
        policy.expect(4)
        for task, turns in (("a", 1), ("b", 3), ("c", 2), ("d", 0)):
            tasks.create_task(rollout(policy, task, turns))
    assert [[question.key for question in batch] for batch in echo.batches] == [
        ["l/a/0/0", "l/b/0/0", "l/c/0/0"],
        ["l/b/0/1", "l/c/0/1"],
        ["l/b/0/2"],
    ]
    assert policy.live == 0


async def test_a_member_cancelled_before_its_batch_is_sent_stalls_nobody() -> None:
    echo = Echo()
    async with batched_policy(echo.act, label="l") as policy, asyncio.TaskGroup() as tasks:
        policy.expect(3)
        members = [tasks.create_task(rollout(policy, task, 1)) for task in "ab"]
        await settle()
        members[0].cancel()
        await settle()
        assert echo.batches == []  # the third may still come
        tasks.create_task(rollout(policy, "c", 1))
    assert [[question.key for question in batch] for batch in echo.batches] == [
        ["l/b/0/0", "l/c/0/0"]
    ]


@pytest.mark.parametrize("cancelled", [0, 2])
async def test_a_member_cancelled_while_its_batch_is_answered_stalls_nobody(
    cancelled: int,
) -> None:
    # Member 2 is the one whose question completed the batch.
    echo = Echo()
    echo.answers.clear()
    async with batched_policy(echo.act, label="l") as policy, asyncio.TaskGroup() as tasks:
        policy.expect(3)
        members = [tasks.create_task(rollout(policy, task, 2)) for task in "abc"]
        await settle()
        assert len(echo.batches) == 1
        members[cancelled].cancel()
        echo.answers.set()
    assert len(echo.batches[0]) == 3
    assert len(echo.batches[1]) == 2
    assert [task.cancelled() for task in members].count(True) == 1


async def test_the_last_to_leave_sends_the_batch_of_those_who_wait() -> None:
    echo = Echo()
    async with batched_policy(echo.act, label="l") as policy:
        policy.expect(2)
        waiting = asyncio.ensure_future(policy.respond(prompt("a", 0)))
        await settle()
        assert not waiting.done()
        policy.leave()
        assert (await waiting).text == "l/a/0/0"


async def test_a_learner_that_fails_fails_every_member_as_a_policy_fault() -> None:
    async def act(_: Sequence[Question]) -> list[Reply]:
        raise UsageError("too long")

    async with batched_policy(act, label="l") as policy:
        policy.expect(2)
        answers = [asyncio.ensure_future(policy.respond(prompt("a", i))) for i in range(2)]
        for answer in answers:
            with pytest.raises(PolicyError, match="too long"):
                await answer


async def test_uncounted_rollouts_are_refused() -> None:
    async with batched_policy(Echo().act, label="l") as policy:
        with pytest.raises(UsageError, match="announced"):
            await policy.respond(prompt("a", 0))
        with pytest.raises(UsageError, match="announced"):
            policy.leave()
