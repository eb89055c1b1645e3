"""The learner gets better by its rewards, repeats itself, and keeps its best weights."""

from pathlib import Path

import pytest
import torch

from tiltyard.core.errors import UsageError
from tiltyard.training.batches import PromptAnswers, answer_batches
from tiltyard.training.bpe import Bpe
from tiltyard.training.checkpoint import load_checkpoint
from tiltyard.training.exchange import LearnedRollout, Question, Reply
from tiltyard.training.learner import Learner
from tiltyard.training.model import ModelShape
from tiltyard.training.recipe import Recipe
from tiltyard.training.trainable import Trainable

pytestmark = pytest.mark.train

PROMPT = "Return the sum.\n1|def f(items):\n2|    return items\n"


def ask(learner: Learner, count: int, label: str = "a") -> list[Reply]:
    return learner.act([Question(key=f"{label}/{i}", text=PROMPT) for i in range(count)])


def group(replies: list[Reply], rewards: list[float | None]) -> list[LearnedRollout]:
    return [
        LearnedRollout(turns=(reply.tokens,), reward=reward)
        for reply, reward in zip(replies, rewards, strict=True)
    ]


def weights_after(learner: Learner, batch: list[list[LearnedRollout]]) -> dict[str, torch.Tensor]:
    learner.update(batch)
    return learner._trainable.weights()


def test_a_toy_is_learned_from_rewards_alone(learner: Learner) -> None:
    def rewarded(reply: Reply) -> float:
        return float(reply.tokens.output_ids[0] % 2 == 0)

    before = sum(map(rewarded, ask(learner, 100, "before"))) / 100
    for step in range(25):
        replies = ask(learner, 24, f"step{step}")
        learner.update([group(replies, [rewarded(reply) for reply in replies])])
    after = sum(map(rewarded, ask(learner, 100, "after"))) / 100
    assert before < 0.7
    assert after > 0.95


def test_equal_calls_give_equal_answers_and_weights(
    shape: ModelShape, recipe: Recipe, tokenizer: Bpe
) -> None:
    results = []
    for _ in range(2):
        trainable = Trainable(shape, torch.float32)
        trainable.master.initialise(torch.Generator().manual_seed(1))
        learner = Learner(recipe, trainable, tokenizer)
        replies = ask(learner, 8)
        metrics = learner.update([group(replies, [1.0, 0.0] * 4)])
        results.append((replies, metrics, ask(learner, 8)))
    assert results[0] == results[1]
    assert results[0][0] != results[0][2]


def test_answers_come_in_the_order_of_the_questions(learner: Learner) -> None:
    questions = [
        Question(key=f"{i % 5}", text=PROMPT if i % 2 else "Other.\n1|x\n") for i in range(10)
    ]
    replies = learner.act(questions)
    for question, reply in zip(questions, replies, strict=True):
        assert learner.act([question])[0].text == reply.text


def test_a_faulted_rollout_changes_no_weight(
    shape: ModelShape, recipe: Recipe, tokenizer: Bpe
) -> None:
    results = []
    for faults in (0, 5):
        trainable = Trainable(shape, torch.float32)
        trainable.master.initialise(torch.Generator().manual_seed(1))
        learner = Learner(recipe, trainable, tokenizer)
        graded = group(ask(learner, 8), [1.0, 0.0, 0.0, 1.0] * 2)
        faulted = group(ask(learner, faults, "faulted"), [None] * faults)
        only_faults = group(ask(learner, 2, "more"), [None, None])
        results.append(weights_after(learner, [faulted + graded, only_faults]))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_a_batch_without_signal_leaves_the_weights_and_says_so(learner: Learner) -> None:
    replies = ask(learner, 4)
    before = learner._trainable.weights()
    metrics = learner.update([group(replies, [0.0] * 4), group(replies, [1.0, None, None, 1.0])])
    after = learner._trainable.weights()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (metrics.groups_used, metrics.groups_dropped, metrics.rollouts_masked) == (0, 2, 2)
    assert metrics.update == 1
    assert metrics.gradient_norm == 0.0
    assert learner.update([]).update == 2


def test_identical_answers_count_as_often_as_they_came(learner: Learner) -> None:
    # On the policy that sampled them every ratio is 1, so the loss is minus the mean advantage of
    # the tokens, each copy counted.
    right, wrong = ask(learner, 2)
    metrics = learner.update([group([right, right, right, wrong], [1.0, 1.0, 1.0, 0.0])])
    good, bad = len(right.tokens.output_ids), len(wrong.tokens.output_ids)
    expected = -(3 * good / 3**0.5 - bad * 3**0.5) / (3 * good + bad)
    assert metrics.loss == pytest.approx(expected, abs=1e-4)


def test_repeated_updates_make_the_rewarded_answer_likelier_until_they_are_clipped(
    learner: Learner,
) -> None:
    replies = ask(learner, 8)
    batch = group(replies, [1.0] + [0.0] * 7)
    good = replies[0].tokens

    def likelihood() -> float:
        scored = answer_batches([PromptAnswers(good.prompt_ids, (good.output_ids,))])
        return float(next(scored).logprobs(learner._trainable.model).detach().sum())

    before = likelihood()
    metrics = [learner.update([batch]) for _ in range(4)]
    assert metrics[0].clipped_fraction == 0.0
    # The same answers again: the policy has moved away from the one that sampled them.
    assert metrics[-1].clipped_fraction > 0.0
    assert likelihood() > before + 1.0


def test_the_best_weights_are_kept(learner: Learner) -> None:
    assert learner.note_score(0.5)
    before = ask(learner, 4)
    for step in range(3):
        replies = ask(learner, 8, f"s{step}")
        learner.update([group(replies, [1.0, 0.0] * 4)])
    assert not learner.note_score(0.4)
    assert ask(learner, 4) != before
    assert learner.use_best() == "0"
    assert ask(learner, 4) == before


def test_a_saved_policy_answers_alike(learner: Learner, recipe: Recipe, tmp_path: Path) -> None:
    learner.update([group(ask(learner, 8), [1.0, 0.0] * 4)])
    learner.save(tmp_path / "one.policy")
    kept = load_checkpoint(tmp_path / "one.policy")
    trainable = Trainable(kept.shape, torch.float32)
    trainable.load(kept.weights)
    again = Learner(recipe, trainable, kept.tokenizer)
    mine, theirs = ask(learner, 8), ask(again, 8)
    assert [reply.tokens for reply in mine] == [reply.tokens for reply in theirs]
    assert kept.notes["policy_version"] == "1"


def test_a_prompt_that_does_not_fit_is_refused(learner: Learner) -> None:
    with pytest.raises(UsageError, match="exceeds the built-in policy's"):
        learner.act([Question(key="a", text="+ " * 5_000)])


@pytest.mark.slow
def test_bf16_learns_as_well(shape: ModelShape, recipe: Recipe, tokenizer: Bpe) -> None:
    trainable = Trainable(shape, torch.bfloat16)
    trainable.master.initialise(torch.Generator().manual_seed(1))
    trainable.publish()
    learner = Learner(recipe, trainable, tokenizer)
    for step in range(25):
        replies = ask(learner, 24, f"step{step}")
        rewards = [float(reply.tokens.output_ids[0] % 2 == 0) for reply in replies]
        learner.update([group(replies, [*rewards])])
    after = [reply.tokens.output_ids[0] % 2 == 0 for reply in ask(learner, 100, "after")]
    assert sum(after) > 90
