"""A checkpoint comes back whole, or its damage is noticed."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.training.bpe import Bpe
from tiltyard.training.checkpoint import (
    Checkpoint,
    CheckpointDamaged,
    load_checkpoint,
    save_checkpoint,
)
from tiltyard.training.model import ModelShape, PolicyModel
from tiltyard.training.trainable import Trainable

pytestmark = pytest.mark.train


@pytest.fixture
def saved(tmp_path: Path, model: PolicyModel, shape: ModelShape, tokenizer: Bpe) -> Path:
    path = tmp_path / "deep" / "one.policy"
    weights = dict(model.named_parameters())
    save_checkpoint(
        path, Checkpoint(shape=shape, tokenizer=tokenizer, weights=weights, notes={"step": 3})
    )
    return path


def test_a_checkpoint_comes_back(
    saved: Path, model: PolicyModel, shape: ModelShape, tokenizer: Bpe
) -> None:
    kept = load_checkpoint(saved)
    assert kept.shape == shape
    assert kept.tokenizer == tokenizer
    assert kept.notes == {"step": 3}
    for name, weight in model.named_parameters():
        assert torch.equal(kept.weights[name], weight)
    assert [path.name for path in saved.parent.iterdir()] == ["one.policy"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_any_changed_byte_is_noticed(saved: Path, place: int, flip: int) -> None:
    content = bytearray(saved.read_bytes())
    content[place % len(content)] ^= flip
    damaged = saved.with_name("damaged")
    damaged.write_bytes(content)
    with pytest.raises(CheckpointDamaged):
        load_checkpoint(damaged)


@pytest.mark.parametrize("kept_bytes", [0, 10, 32, 500, -1])
def test_a_cut_file_is_noticed(saved: Path, kept_bytes: int) -> None:
    saved.write_bytes(saved.read_bytes()[:kept_bytes])
    with pytest.raises(CheckpointDamaged):
        load_checkpoint(saved)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name a file"):
        load_checkpoint(tmp_path / "none")


def test_a_directory_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, shape: ModelShape, tokenizer: Bpe
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    checkpoint = Checkpoint(shape=shape, tokenizer=tokenizer, weights={}, notes={})
    with pytest.raises(StoreError, match="Free space"):
        save_checkpoint(in_the_way / "one.policy", checkpoint)


def test_weights_that_do_not_fit_are_refused_and_change_nothing(shape: ModelShape) -> None:
    trainable = Trainable(shape, torch.float32)
    trainable.master.initialise(torch.Generator().manual_seed(0))
    before = trainable.weights()
    name = next(iter(before))
    for strange in (
        {},
        {**before, name: before[name][:1]},
        {**before, name: before[name] * float("nan")},
    ):
        with pytest.raises(ValueError, match="weight"):
            trainable.load(strange)
    assert all(torch.equal(before[key], value) for key, value in trainable.weights().items())
