"""The formulas against numbers worked out by hand, and the masks as properties."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from tiltyard.training.grpo import clipped_fraction, group_advantages, has_signal, policy_loss

pytestmark = pytest.mark.train

rewards = st.one_of(st.none(), st.sampled_from([0.0, 0.2, 0.5, 1.0]))


def test_advantages_are_deviations_in_units_of_the_standard_deviation() -> None:
    # mean 0.25, population deviation sqrt(3) / 4
    found = group_advantages([1.0, 0.0, 0.0, 0.0])
    assert found == pytest.approx([math.sqrt(3.0), *[-1 / math.sqrt(3.0)] * 3])


def test_a_fault_of_ours_is_no_part_of_its_group() -> None:
    found = group_advantages([1.0, None, 0.0, None])
    assert found == pytest.approx([1.0, 0.0, -1.0, 0.0])


def test_rewards_that_hardly_differ_teach_nothing() -> None:
    assert not has_signal(group_advantages([0.96, 0.97, 0.98, 0.97]))
    assert has_signal(group_advantages([0.85, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("group", [[], [None], [1.0], [1.0, None], [0.0] * 4, [None, None]])
def test_a_group_without_contrast_is_dropped(group: list[float | None]) -> None:
    found = group_advantages(group)
    assert found == [0.0] * len(group)
    assert not has_signal(found)


@given(st.lists(rewards, max_size=12), st.integers(0, 12))
def test_adding_a_faulted_member_changes_no_other_advantage(
    group: list[float | None], place: int
) -> None:
    with_fault = [*group[:place], None, *group[place:]]
    found = group_advantages(with_fault)
    assert found.pop(min(place, len(group))) == 0.0
    assert found == group_advantages(group)


@given(st.lists(rewards, min_size=2, max_size=12))
def test_advantages_sum_to_zero_and_have_unit_deviation(group: list[float | None]) -> None:
    found = [a for a, r in zip(group_advantages(group), group, strict=True) if r is not None]
    assert sum(found) == pytest.approx(0.0, abs=1e-9)
    if has_signal(found):
        assert sum(a * a for a in found) / len(found) == pytest.approx(1.0)


def loss_of(ratio: float, advantage: float) -> float:
    new = torch.tensor([[math.log(ratio)]])
    old = torch.zeros(1, 1)
    return float(policy_loss(new, old, torch.tensor([[advantage]]), torch.ones(1, 1), tokens=1.0))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.2, 2.0, -2.4),
        (1.5, 2.0, -2.56),  # capped at 1.28
        (0.5, 2.0, -1.0),  # a good answer that lost ground is pulled back in full
        (0.5, -2.0, 1.6),  # capped at 0.8
        (0.9, -2.0, 1.8),
        (1.5, -2.0, 3.0),  # a bad answer that gained ground is pushed down in full
    ],
)
def test_a_token_contributes_the_clipped_surrogate(
    ratio: float, advantage: float, expected: float
) -> None:
    assert loss_of(ratio, advantage) == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_averaged_over_tokens_not_over_answers() -> None:
    new = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    advantages = torch.tensor([[1.0], [-1.0]]).expand(2, 3)
    loss = policy_loss(new, torch.zeros(2, 3), advantages, mask, tokens=4.0)
    assert float(loss.detach()) == pytest.approx(-(3 * 1.0 + 1 * -1.0) / 4)
    loss.backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[-0.25, -0.25, -0.25], [0.25, 0.0, 0.0]]


def test_a_weight_of_three_is_three_identical_answers() -> None:
    new = torch.tensor([[0.1, -0.2]], requires_grad=True)
    old, advantage = torch.zeros(1, 2), torch.full((1, 2), 1.5)
    once = policy_loss(new, old, advantage, torch.full((1, 2), 3.0), tokens=6.0)
    three = policy_loss(
        new.expand(3, 2), old.expand(3, 2), advantage.expand(3, 2), torch.ones(3, 2), tokens=6.0
    )
    assert float(once.detach()) == pytest.approx(float(three.detach()))


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf"), 1e4])
def test_what_is_masked_never_reaches_loss_or_gradient(strange: float) -> None:
    mask = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    clean = torch.tensor([[0.1, 0.0], [0.0, 0.0]], requires_grad=True)
    dirty = torch.tensor([[0.1, strange], [strange, strange]], requires_grad=True)
    advantages = torch.tensor([[1.0], [-1.0]]).expand(2, 2)
    results = []
    for new in (clean, dirty):
        loss = policy_loss(new, torch.zeros(2, 2), advantages, mask, tokens=1.0)
        loss.backward()
        assert new.grad is not None
        results.append((float(loss.detach()), float(new.grad[0, 0])))
    assert results[0] == results[1]


def test_the_clipped_fraction_counts_tokens_by_weight() -> None:
    new = torch.tensor([[0.0, 1.0], [-1.0, 5.0]])
    weights = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    assert clipped_fraction(new, torch.zeros(2, 2), weights) == pytest.approx(3 / 4)
