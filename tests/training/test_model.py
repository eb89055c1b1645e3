"""Shared prompts, trees and caches against the plain way: each text alone, all of it anew."""

import pytest
import torch

from tiltyard.training.batches import BATCH_TOKENS_MAX, PromptAnswers, answer_batches
from tiltyard.training.model import PolicyModel
from tiltyard.training.sampling import sample, uniform_draws

pytestmark = pytest.mark.train

PROMPTS = [[5, 9, 33, 1], [7, 1], [50, 60, 70, 80, 90, 100, 1]]
ANSWERS = [[[11, 12, 13], [200, 3]], [[44]], [[5, 5, 5, 5], [6], [7, 8], [5, 5, 6]]]


@torch.no_grad()
def plain_logprobs(model: PolicyModel, prompt: list[int], answer: list[int]) -> list[float]:
    """One answer alone: after its first token, the whole text is one causal row."""
    text = tuple(prompt + answer)
    (batch,) = answer_batches([PromptAnswers(text[:1], (text[1:],))])
    found: list[float] = batch.logprobs(model)[-len(answer) :].tolist()
    return found


@torch.no_grad()
def test_a_shared_prompt_scores_answers_as_if_each_had_its_own(model: PolicyModel) -> None:
    groups = [
        PromptAnswers(tuple(prompt), tuple(map(tuple, answers)))
        for prompt, answers in zip(PROMPTS, ANSWERS, strict=True)
    ]
    (batch,) = answer_batches(groups)
    assert [list(group.prompt) for group in batch.groups] == [PROMPTS[1], PROMPTS[0], PROMPTS[2]]
    expected = [
        logprob
        for group in batch.groups
        for answer in group.answers
        for logprob in plain_logprobs(model, list(group.prompt), list(answer))
    ]
    assert batch.logprobs(model).tolist() == pytest.approx(expected, abs=1e-4)
    flat = [token for group in batch.groups for answer in group.answers for token in answer]
    assert batch.targets.tolist() == flat


def test_the_plain_way_is_causal(model: PolicyModel) -> None:
    short = plain_logprobs(model, [5, 9, 33], [7, 8])
    assert plain_logprobs(model, [5, 9, 33], [7, 8, 9, 10])[:2] == pytest.approx(short, abs=1e-5)
    assert plain_logprobs(model, [5, 10, 33], [7, 8]) != pytest.approx(short, abs=1e-5)


def test_sampling_with_caches_reports_what_scoring_finds(model: PolicyModel) -> None:
    draws = [uniform_draws(3, [f"{p}/{i}" for i in range(5)], 6) for p in range(len(PROMPTS))]
    answers = sample(model, PROMPTS, draws, temperature=1.0, stop_ids=range(2, 150))
    for prompt, row in zip(PROMPTS, answers, strict=True):
        assert len(row) == 5
        for answer in row:
            expected = plain_logprobs(model, prompt, list(answer.ids))
            assert list(answer.logprobs) == pytest.approx(expected, abs=1e-4)


def test_dropping_finished_rows_changes_no_answer(model: PolicyModel) -> None:
    # Half of the vocabulary ends an answer, so rows finish at every step and batches are packed
    # again and again; each prompt alone, with one answer, never is.
    draws = [uniform_draws(3, [f"{p}/{i}" for i in range(8)], 12) for p in range(len(PROMPTS))]
    stops = range(2, 160)
    together = sample(model, PROMPTS, draws, temperature=1.0, stop_ids=stops)
    lengths = {len(answer.ids) for row in together for answer in row}
    assert len(lengths) > 3
    for prompt, rows, answers in zip(PROMPTS, draws, together, strict=True):
        for i, answer in enumerate(answers):
            alone = sample(model, [prompt], [rows[i : i + 1]], temperature=1.0, stop_ids=stops)
            assert alone[0][0].ids == answer.ids


def test_an_answer_ends_with_its_first_stop_or_is_truncated(model: PolicyModel) -> None:
    draws = [uniform_draws(0, [str(i) for i in range(40)], 6)]
    answers = sample(model, [[9, 1]], draws, temperature=1.0, stop_ids=range(2, 60))[0]
    for answer in answers:
        stopped = [2 <= token < 60 for token in answer.ids]
        assert not any(stopped[:-1])
        assert answer.truncated == (not stopped[-1])
        assert not answer.truncated or len(answer.ids) == 6
    assert {answer.truncated for answer in answers} == {True, False}


def test_equal_draws_give_equal_answers_and_keys_are_independent(model: PolicyModel) -> None:
    draws = [uniform_draws(4, ["a", "b"], 8)]
    first = sample(model, [[9, 1]], draws, temperature=1.0, stop_ids=[2])
    again = sample(model, [[9, 1]], draws, temperature=1.0, stop_ids=[2])
    assert first == again
    assert first[0][0].ids != first[0][1].ids
    assert (uniform_draws(4, ["b"], 8) == draws[0][1:]).all()
    assert (uniform_draws(5, ["b"], 8) != draws[0][1:]).any()


def test_draws_are_uniform_in_the_half_open_interval() -> None:
    draws = uniform_draws(0, [str(i) for i in range(2_000)], 20)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    assert abs(draws.mean() - 0.5) < 0.01
    assert abs(draws.var() - 1 / 12) < 0.005


@torch.no_grad()
def test_samples_follow_the_distribution_at_any_temperature(model: PolicyModel) -> None:
    model.embedding.weight.mul_(40.0)  # make it far from uniform
    single = PromptAnswers((9, 1), tuple((token,) for token in range(model.shape.vocabulary)))
    (batch,) = answer_batches([single])
    logits = batch.logprobs(model)
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, dim=-1)
        draws = [uniform_draws(0, [str(i) for i in range(4_000)], 1)]
        answers = sample(model, [[9, 1]], draws, temperature=temperature, stop_ids=[2])[0]
        counts = torch.bincount(torch.tensor([a.ids[0] for a in answers]), minlength=len(expected))
        assert float((counts / 4_000 - expected).abs().max()) < 0.03
        assert answers[0].logprobs[0] == pytest.approx(
            float(expected[answers[0].ids[0]].log()), abs=1e-4
        )


def test_special_tokens_are_never_sampled(model: PolicyModel) -> None:
    draws = [uniform_draws(0, [str(i) for i in range(500)], 4)]
    answers = sample(model, [[9, 1]], draws, temperature=5.0, stop_ids=[2])[0]
    assert not {0, 1} & {token for answer in answers for token in answer.ids}


@torch.no_grad()
def test_padding_and_neighbours_change_no_score(model: PolicyModel) -> None:
    short = PromptAnswers((5, 9, 1), ((11, 12),))
    long = PromptAnswers(tuple([8] * 40 + [1]), (tuple([20] * 12), (21,)))
    (alone,) = answer_batches([short])
    (beside,) = answer_batches([long, short])
    assert beside.tokens.shape == (4, 64)
    expected = alone.logprobs(model).tolist()
    assert beside.logprobs(model)[:2].tolist() == pytest.approx(expected, abs=1e-5)


def test_every_token_has_its_answers_advantage_and_weight() -> None:
    group = PromptAnswers(
        (5, 1), ((7, 8, 9), (4,)), ((-1.0, -2.0, -3.0), (-4.0,)), (0.5, -1.5), (2.0, 1.0)
    )
    (batch,) = answer_batches([group])
    assert batch.sampled_logprobs().tolist() == [-1.0, -2.0, -3.0, -4.0]
    assert batch.advantages().tolist() == [0.5, 0.5, 0.5, -1.5]
    assert batch.weights().tolist() == [2.0, 2.0, 2.0, 1.0]


def test_batches_hold_every_group_once_and_are_bounded() -> None:
    groups = [PromptAnswers(tuple([3] * n), ((n, n),)) for n in range(1, 300)]
    batches = list(answer_batches(groups))
    assert sorted(g.prompt for b in batches for g in b.groups) == [g.prompt for g in groups]
    assert all(batch.tokens.numel() <= BATCH_TOKENS_MAX for batch in batches)
    assert len(batches) > 10
