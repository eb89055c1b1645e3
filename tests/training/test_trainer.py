"""The trainer: the same plan gives the same calls, however fast each rollout is verified."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import Submission, Task
from tiltyard.core.trajectory import PolicyTokens, Trajectory
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Verdict
from tiltyard.training.exchange import LearnedRollout, Question, Reply
from tiltyard.training.trainer import Moment, Trainer, TrainPlan, TrainReport

PLAN = TrainPlan(
    seed=3,
    updates=5,
    groups=3,
    samples=4,
    evaluate_every=2,
    validation_tasks=4,
    test_tasks=6,
    unseen_tasks=4,
    evaluation_samples=2,
)


class RecordingLearner:
    """Answers by the question's key, and writes down every call in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.version = 0

    async def act(self, questions: Sequence[Question]) -> list[Reply]:
        self.calls.append(("act", self.version, [question.key for question in questions]))
        await asyncio.sleep(0)
        return [self._reply(question) for question in questions]

    def _reply(self, question: Question) -> Reply:
        number = sum(question.key.encode()) % 7
        tokens = PolicyTokens(prompt_ids=(1,), output_ids=(number,), logprobs=(-1.0,))
        text = f"1|def answer_{number}():\n"
        return Reply(text=text, tokens=tokens, truncated=False, policy_version=str(self.version))

    async def update(self, groups: Sequence[Sequence[LearnedRollout]]) -> None:
        self.calls.append(("update", [[each.reward for each in group] for group in groups]))
        self.version += 1

    async def note_score(self, score: float) -> bool:
        self.calls.append(("note_score", score))
        return True

    async def use_best(self) -> str:
        self.calls.append(("use_best",))
        return str(self.version)


async def train(
    plan: TrainPlan, *, delays_seed: int, faults: frozenset[int] = frozenset()
) -> tuple[TrainReport, RecordingLearner, list[Trajectory]]:
    """Runs a plan with a judge that finishes in a random order."""
    learner = RecordingLearner()
    delays = random.Random(delays_seed)  # noqa: S311 - only the order of things
    recorded: list[Trajectory] = []
    moments: list[Moment] = []

    async def judge(_task: Task, submission: Submission) -> Verdict:
        for _ in range(delays.randrange(20)):
            await asyncio.sleep(0)
        number = int(submission.files["solution.py"].split(b"answer_")[1][:1])
        if number in faults:
            return Verdict(outcome=Outcome.INFRA_FAULT, detail="the sandbox was lost")
        status = CheckStatus.PASSED if number % 2 else CheckStatus.WRONG_ANSWER
        return Verdict(outcome=Outcome.GRADED, checks=(Check(id="a", status=status),))

    async def record(trajectory: Trajectory) -> None:
        recorded.append(trajectory)

    no_pool: Any = None  # single-turn rollouts need no sandbox of their own
    any_learner: Any = learner
    trainer = Trainer(
        plan,
        learner=any_learner,
        pool=no_pool,
        spec=SandboxSpec(),
        verify=judge,
        record=record,
        on_moment=moments.append,
    )
    report = await trainer.run()
    assert moments[-1].rollouts == len(recorded)
    return report, learner, recorded


async def test_equal_plans_give_equal_runs_in_whatever_order_rollouts_end() -> None:
    first = await train(PLAN, delays_seed=1)
    second = await train(PLAN, delays_seed=2)

    assert first[1].calls == second[1].calls
    assert (first[0].curve, first[0].validation) == (second[0].curve, second[0].validation)
    assert sorted(each.id for each in first[2]) == sorted(each.id for each in second[2])


async def test_another_seed_is_another_run() -> None:
    first = await train(PLAN, delays_seed=1)
    other = await train(TrainPlan(**{**_fields(PLAN), "seed": 4}), delays_seed=1)

    assert first[1].calls != other[1].calls


async def test_a_batch_is_learned_from_one_update_after_it_was_sampled() -> None:
    _, learner, _ = await train(PLAN, delays_seed=1)
    kinds = [call[0] for call in learner.calls if call[0] in {"act", "update"}]
    sampled = [call[1] for call in learner.calls if call[0] == "act" and "update" in call[2][0]]

    assert sampled == [0, 0, 1, 2, 3]
    assert kinds.count("update") == PLAN.updates


async def test_groups_are_the_samples_of_one_task_and_faults_are_masked() -> None:
    report, learner, recorded = await train(PLAN, delays_seed=1, faults=frozenset({3}))
    updates = [call[1] for call in learner.calls if call[0] == "update"]

    assert all(
        [len(group) for group in groups] == [PLAN.samples] * PLAN.groups for groups in updates
    )
    assert any(reward is None for groups in updates for group in groups for reward in group)
    assert report.outcomes[Outcome.INFRA_FAULT] == sum(
        each.verdict.outcome is Outcome.INFRA_FAULT for each in recorded
    )
    assert len({each.id for each in recorded}) == len(recorded) == report.rollouts


async def test_no_text_is_in_two_of_the_held_out_sets() -> None:
    _, learner, _ = await train(PLAN, delays_seed=1)
    tasks = {
        name: {
            key.split("/")[-3]
            for call in learner.calls
            if call[0] == "act"
            for key in call[2]
            if key.startswith(name)
        }
        for name in ("validation", "test-before", "unseen-before")
    }

    assert [len(tasks[name]) for name in tasks] == [4, 6, 4]
    assert not tasks["validation"] & tasks["test-before"]


async def test_a_run_that_only_loses_rollouts_stops_and_says_so() -> None:
    with pytest.raises(SandboxError, match="the sandbox was lost"):
        await train(PLAN, delays_seed=1, faults=frozenset(range(7)))


async def test_a_run_out_of_time_ends_early_and_says_so() -> None:
    report, _, _ = await train(TrainPlan(**{**_fields(PLAN), "budget_s": 0.0}), delays_seed=1)

    assert report.cut_short
    assert report.updates == 2
    assert report.validation[-1][0] == 2


def _fields(plan: TrainPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__slots__}
