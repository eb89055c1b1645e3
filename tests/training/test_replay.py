"""Right answers of mixed groups are kept, bounded, and drawn by the seed."""

from dataclasses import replace

import pytest
import torch

from tiltyard.training.batches import PromptAnswers
from tiltyard.training.bpe import Bpe
from tiltyard.training.exchange import LearnedRollout, Question
from tiltyard.training.learner import Learner
from tiltyard.training.model import ModelShape
from tiltyard.training.recipe import Recipe
from tiltyard.training.replay import KEPT_MAX, SolvedAnswers
from tiltyard.training.trainable import Trainable

pytestmark = pytest.mark.train


def solved(prompt: int, advantages: tuple[float, ...], weights: tuple[float, ...]) -> PromptAnswers:
    answers = tuple((prompt, i) for i in range(len(advantages)))
    return PromptAnswers((prompt, 1), answers, (), advantages, weights)


def drawn(kept: SolvedAnswers) -> list[tuple[int, ...]]:
    return sorted(answer for group in kept.draw() for answer in group.answers)


def test_only_right_answers_of_groups_that_were_mostly_wrong_are_kept(recipe: Recipe) -> None:
    kept = SolvedAnswers(replace(recipe, replay_answers=3))
    kept.keep(solved(5, (1.0, -1.0, 2.0), (2.0, 5.0, 1.0)))
    kept.keep(solved(6, (-1.0, -1.0), (4.0, 4.0)))
    kept.keep(solved(7, (0.3, -2.0), (7.0, 1.0)))
    assert drawn(kept) == []
    kept.keep(solved(8, (1.0, -1.0), (6.0, 2.0)))
    assert drawn(kept) == [(5, 0), (5, 2), (8, 0)]


def test_a_seed_fixes_the_draws_and_old_answers_are_forgotten(recipe: Recipe) -> None:
    draws = []
    for seed in (1, 1, 2):
        kept = SolvedAnswers(replace(recipe, seed=seed, replay_answers=20))
        for prompt in range(KEPT_MAX + 500):
            kept.keep(solved(prompt, (1.0, -1.0), (1.0, 7.0)))
        draws.append([drawn(kept) for _ in range(50)])
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert min(answer[0] for batch in draws[0] for answer in batch) >= 500


def test_answers_of_one_prompt_share_it_and_a_count_of_zero_turns_it_off(recipe: Recipe) -> None:
    kept = SolvedAnswers(replace(recipe, replay_answers=2))
    off = SolvedAnswers(replace(recipe, replay_answers=0))
    for each in (kept, off):
        each.keep(solved(5, (1.0, -1.0, 2.0), (2.0, 5.0, 1.0)))
    assert [len(group.answers) for group in kept.draw()] == [2]
    assert off.draw() == []


def test_updates_imitate_what_earlier_updates_found(
    shape: ModelShape, recipe: Recipe, tokenizer: Bpe
) -> None:
    trainable = Trainable(shape, torch.float32)
    trainable.master.initialise(torch.Generator().manual_seed(1))
    learner = Learner(replace(recipe, replay_answers=12), trainable, tokenizer)
    counts = []
    for step in range(8):
        text = f"Return {step % 3}.\n1|def f(x):\n2|    return x\n"
        replies = learner.act([Question(key=f"{step}/{i}", text=text) for i in range(8)])
        group = [
            LearnedRollout(turns=(reply.tokens,), reward=float(i < 4))
            for i, reply in enumerate(replies)
        ]
        counts.append(learner.update([group]).answers_replayed)
    # Four right answers an update: the first twelve are there after three of them.
    assert counts == [0, 0, 0, 12, 12, 12, 12, 12]
