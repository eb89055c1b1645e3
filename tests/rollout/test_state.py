"""What a task asserts of its agent's sandbox is looked at before that is given back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sample_policies import Replies
from tiltyard.core.checks import Checks, StateCheck, StateKind
from tiltyard.core.ids import GroupId, RolloutId
from tiltyard.core.task import Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.rollout.episode import Attempt, Progress, Setting, run_episode
from tiltyard.wiring import Yard

pytestmark = pytest.mark.sandbox


def asserting(task: Task, *checks: StateCheck) -> Task:
    return replace(task, checks=Checks(state=checks))


async def run_one(task: Task, setting: Setting) -> Trajectory:
    attempt = Attempt(id=RolloutId("r"), group=GroupId("g"), task=task, sample=0, seed=7)
    return await run_episode(attempt, setting, Progress())


@pytest.mark.parametrize("turns", [1, 2])
async def test_the_state_is_a_component_of_the_verdict(
    task: Task, make_setting: Callable[..., Setting], yard: Yard, turns: int
) -> None:
    leaves = f"{task.reference}\nopen('/workspace/left.txt', 'w').write('here')\n"
    wanted = asserting(
        task,
        StateCheck(id="left", kind=StateKind.FILE, path="left.txt", equals="here"),
        StateCheck(id="gone", kind=StateKind.ABSENT, path="nothing", weight=3.0),
    )
    setting = make_setting(
        Replies(lambda _: leaves), turns_max=turns, observe=yard.verifier.observe
    )
    done = await run_one(wanted, setting)
    assert done.verdict.outcome is Outcome.GRADED, done.verdict.detail
    state = next(each for each in done.verdict.components if each.name == "state")
    # With one turn nobody ran the code in the agent's sandbox, so it left nothing there.
    assert state.raw == (1.0 if turns > 1 else 0.75)
    assert yard.pool.counts.in_use == 0


async def test_a_bad_assertion_is_the_tasks_fault(
    task: Task, make_setting: Callable[..., Setting], yard: Yard
) -> None:
    bad = StateCheck(id="bad", kind=StateKind.FILE, path="solution.py", matches="(")
    setting = make_setting(Replies(lambda _: task.reference), observe=yard.verifier.observe)
    done = await run_one(asserting(task, bad), setting)
    assert (done.verdict.outcome, done.reward.value) == (Outcome.GRADER_FAULT, None)
