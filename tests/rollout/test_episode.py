"""One rollout: turns, feedback, outcome, reward, and sandboxes given back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from sample_policies import Replies, Unreachable
from tiltyard.core.errors import SandboxDied
from tiltyard.core.execution import MIB, Limits
from tiltyard.core.ids import GroupId, RolloutId
from tiltyard.core.task import Submission, Task
from tiltyard.core.trajectory import Prompt, Trajectory
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.rollout.episode import Attempt, Progress, Setting, run_episode
from tiltyard.rollout.runs import verify_each
from tiltyard.wiring import Yard

pytestmark = pytest.mark.sandbox


async def run_one(task: Task, setting: Setting) -> Trajectory:
    attempt = Attempt(id=RolloutId("r"), group=GroupId("g"), task=task, sample=0, seed=7)
    return await run_episode(attempt, setting, Progress())


async def test_a_right_answer_earns_the_reward_in_one_turn(
    task: Task, make_setting: Callable[..., Setting], yard: Yard
) -> None:
    done = await run_one(task, make_setting(Replies(lambda _: task.reference)))

    assert (done.verdict.outcome, done.reward.value) == (Outcome.GRADED, 1.0)
    assert len(done.steps) == 1
    assert done.steps[0].observation is not None
    assert done.steps[0].observation.solved
    assert done.versions["task"] == task.revision
    assert yard.pool.counts.in_use == 0


async def test_failing_examples_are_fed_back_and_the_next_turn_sees_them(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    policy = Replies(lambda prompt: task.reference if prompt.earlier else task.starter)

    done = await run_one(task, make_setting(policy))

    assert [step.observation.solved for step in done.steps if step.observation] == [False, True]
    seen = policy.prompts[1].earlier[0].observation
    assert seen is not None
    assert "examples pass" in seen.text
    assert policy.prompts[1].code == task.starter
    assert done.reward.value == 1.0


async def test_the_policy_is_shown_nothing_secret(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    policy = Replies(lambda _: task.starter)
    await run_one(task, make_setting(policy, turns_max=2))

    told = repr(policy.prompts)
    changed = next(
        line
        for line, before in zip(task.reference.splitlines(), task.starter.splitlines(), strict=True)
        if line != before
    )
    assert changed.strip() not in told


@pytest.mark.parametrize(
    ("reply", "reward"),
    [("", 0.0), ("\x00\x01 not python \ud800", 0.0), ("x = '" + "a" * 2_000_000 + "'", 0.0)],
    ids=["no code", "garbage", "huge"],
)
async def test_a_bad_answer_is_the_agents_and_ends_in_one_outcome(
    task: Task, make_setting: Callable[..., Setting], reply: str, reward: float
) -> None:
    done = await run_one(task, make_setting(Replies(lambda _: reply), turns_max=2))

    assert done.verdict.outcome in {Outcome.AGENT_FAULT, Outcome.GRADED}
    assert done.reward.value == reward


async def test_code_that_wrecks_its_own_sandbox_is_judged_all_the_same(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    wreck = (
        "import os, shutil\n"
        "for name in ('/workspace', '/tmp', '/opt/tiltyard/env/bin'):\n"
        "    shutil.rmtree(name, ignore_errors=True)\n"
        "try:\n"
        "    with open('/var/fill', 'wb') as file:\n"
        "        for _ in range(400):\n"
        "            file.write(b'x' * 1_000_000)\n"
        "except OSError:\n"
        "    pass\n"
    )
    done = await run_one(task, make_setting(Replies(lambda _: wreck), turns_max=3))

    assert (done.verdict.outcome, done.reward.value) == (Outcome.GRADED, 0.0)
    assert len(done.steps) == 3


async def test_an_unreachable_model_is_no_reward(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    done = await run_one(task, make_setting(Unreachable()))

    assert (done.verdict.outcome, done.reward.value) == (Outcome.INFRA_FAULT, None)
    assert "start the server" in done.verdict.detail


async def test_a_lost_verifier_is_no_reward(
    task: Task, make_setting: Callable[..., Setting], yard: Yard
) -> None:
    async def lost(_task: Task, _submission: Submission) -> Verdict:
        raise SandboxDied("gone")

    setting = make_setting(Replies(lambda _: task.reference), verify=verify_each(lost))
    done = await run_one(task, setting)

    assert (done.verdict.outcome, done.reward.value) == (Outcome.INFRA_FAULT, None)
    assert yard.pool.counts.in_use == 0


async def test_a_defect_of_a_policy_ends_its_rollout_only_and_teaches_nothing(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    def broken(_: Prompt) -> str:
        raise ZeroDivisionError

    done = await run_one(task, make_setting(Replies(broken)))

    assert (done.verdict.outcome, done.reward.value) == (Outcome.INFRA_FAULT, None)
    assert "ZeroDivisionError" in done.verdict.detail


async def test_a_cancellation_from_below_is_a_fault_of_ours(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    async def cancelled(_task: Task, _submission: Submission) -> Verdict:
        raise asyncio.CancelledError

    setting = make_setting(Replies(lambda _: task.reference), verify=verify_each(cancelled))
    done = await run_one(task, setting)

    assert (done.verdict.outcome, done.reward.value) == (Outcome.INFRA_FAULT, None)


async def test_a_tasks_limits_are_its_agents_limits(
    task: Task, make_setting: Callable[..., Setting]
) -> None:
    hungry = "held = bytearray(300_000_000)\n" + task.reference
    small = replace(task, limits=Limits(memory_bytes=128 * MIB, disk_bytes=32 * MIB))
    done = await run_one(small, make_setting(Replies(lambda _: hungry), turns_max=2))

    assert done.steps[0].execution is not None
    assert not done.steps[0].execution.ok
    roomy = await run_one(task, make_setting(Replies(lambda _: hungry), turns_max=2))
    assert roomy.steps[0].execution is not None
    assert roomy.steps[0].execution.ok
