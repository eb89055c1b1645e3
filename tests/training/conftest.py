"""A tiny policy: enough layers and heads for every path, small enough for milliseconds."""

import pytest
import torch

from tiltyard.training.bpe import Bpe, learn_bpe
from tiltyard.training.learner import Learner
from tiltyard.training.model import ModelShape, PolicyModel
from tiltyard.training.recipe import Recipe, WarmStartPlan
from tiltyard.training.trainable import Trainable

TEXT = b"""Return the sum of the numbers in items that are greater than 3.
1|def sum_above(items):
2|    total = 0
3|    for x in items:
4|        if x > 3:
5|            total += x
6|    return total
"""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As in the learner's process; more threads stall on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> Bpe:
    return learn_bpe([TEXT] * 2, vocabulary=320)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    plan = WarmStartPlan(tasks_per_step=2, reading_steps=2, steps_max=2, check_every=2)
    return Recipe(
        vocabulary=300,
        channels=16,
        layers=2,
        heads=2,
        warm_start=plan,
        learning_rate=0.1,
        warm_up_updates=1,
        replay_answers=0,
    )


@pytest.fixture
def shape(tokenizer: Bpe) -> ModelShape:
    return ModelShape(vocabulary=tokenizer.vocabulary, channels=16, layers=2, heads=2)


@pytest.fixture
def model(shape: ModelShape) -> PolicyModel:
    made = PolicyModel(shape)
    made.initialise(torch.Generator().manual_seed(1))
    return made


@pytest.fixture
def learner(shape: ModelShape, recipe: Recipe, tokenizer: Bpe) -> Learner:
    trainable = Trainable(shape, torch.float32)
    trainable.master.initialise(torch.Generator().manual_seed(1))
    return Learner(recipe, trainable, tokenizer)
