"""A warm start is made once, found again, and made anew when its file is damaged."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tiltyard.training.recipe import Recipe
from tiltyard.training.warm_start import WarmStarted, WarmStartProgress, warm_start

pytestmark = pytest.mark.train


def made(recipe: Recipe, cache: Path, heard: list[WarmStartProgress] | None = None) -> WarmStarted:
    heard = [] if heard is None else heard
    return warm_start(recipe, cache_dir=cache, precision=torch.float32, report=heard.append)


def same_weights(one: WarmStarted, other: WarmStarted) -> bool:
    mine, theirs = one.trainable.weights(), other.trainable.weights()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.slow
def test_it_is_cached_by_what_shapes_it_and_repairs_its_cache(
    recipe: Recipe, tmp_path: Path
) -> None:
    heard: list[WarmStartProgress] = []
    first = made(recipe, tmp_path, heard)
    assert not first.from_cache
    assert [progress.step for progress in heard] == [2, 4]
    assert all(0.0 < progress.loss < 7.0 for progress in heard)  # chance is ln 300 = 5.7

    second = made(recipe, tmp_path)
    assert second.from_cache
    assert second.tokenizer == first.tokenizer
    assert (second.exact_match, second.steps) == (first.exact_match, 4)
    assert same_weights(first, second)

    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    third = made(recipe, tmp_path)
    assert not third.from_cache
    assert same_weights(first, third)
    assert made(replace(recipe, updates=7, learning_rate=0.5), tmp_path).from_cache

    other = made(replace(recipe, seed=1), tmp_path)
    assert not other.from_cache
    assert not same_weights(first, other)
    assert len(list(tmp_path.iterdir())) == 2
