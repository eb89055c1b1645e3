"""Group-relative policy optimisation: advantages and the loss, as pure functions.

Group-relative advantages are those of GRPO (Shao et al. 2024, "DeepSeekMath", section 4.1). The
loss has DAPO's two corrections (Yu et al. 2025): the upper clip is wider than the lower one, so
that unlikely good answers may grow ("clip-higher"), and it is averaged over tokens instead of
over answers, so that a long answer's tokens weigh as much as a short one's. No KL term.

Two masks are this project's own. A rollout without a reward (a fault of ours) is not part of its
group at all: it moves neither mean nor deviation and gets no gradient. Rewards are rounded to a
grid and groups of small spread are dropped, because dividing by the deviation would otherwise
blow up a difference of a hundredth between answers that are all right.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

REWARD_GRID: Final = 0.05
REWARD_SPREAD_MIN: Final = 0.1
"""Best minus worst reward below which a group teaches nothing. The grid alone would not do: two
nearly equal rewards may lie on either side of a rounding border."""
CLIP_LOW: Final = 0.2
CLIP_HIGH: Final = 0.28


def group_advantages(rewards: Sequence[float | None]) -> list[float]:
    """Advantage of each member of one group: (reward - mean) / standard deviation.

    Mean and (population) deviation are over the members that have a reward, after rounding to
    `REWARD_GRID`. A member whose reward is None gets 0. All get 0 when the rewarded members hardly
    differ (`REWARD_SPREAD_MIN`): such a group teaches nothing and `has_signal` is false for it.
    """
    earned = [reward for reward in rewards if reward is not None]
    if not earned or max(earned) - min(earned) < REWARD_SPREAD_MIN:
        return [0.0] * len(rewards)
    steps = [None if reward is None else round(reward / REWARD_GRID) for reward in rewards]
    present = [step for step in steps if step is not None]
    mean = sum(present) / len(present)
    deviation = (sum((step - mean) ** 2 for step in present) / len(present)) ** 0.5
    return [0.0 if step is None else (step - mean) / deviation for step in steps]


def has_signal(advantages: Sequence[float]) -> bool:
    """Whether a group with these advantages changes the policy at all."""
    return any(advantage != 0.0 for advantage in advantages)


def policy_loss(
    logprobs: Tensor,
    sampled_logprobs: Tensor,
    advantages: Tensor,
    token_weights: Tensor,
    *,
    tokens: float,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> Tensor:
    """The clipped surrogate to minimise, a scalar.

    The tensors have one shape and one entry a token, which has its answer's advantage. Its term is
    `-min(ratio * advantage, clip(ratio, 1 - clip_low, 1 + clip_high) * advantage)` with
    `ratio = exp(logprob - sampled_logprob)` (Schulman et al. 2017, equation 7). `token_weights`
    is 0 outside an answer, 1 inside, and n inside one that stands for n identical answers.
    `tokens` is what the sum is divided by: the weight of the whole batch, of which this call may
    see a part.
    """
    ratio = torch.exp(logprobs - sampled_logprobs)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    terms = torch.minimum(ratio * advantages, clipped * advantages)
    # where, not a product: a masked token's term may be inf, and inf * 0 would poison the sum.
    terms = torch.where(token_weights > 0, terms * token_weights, torch.zeros_like(terms))
    return -terms.sum() / tokens


def clipped_fraction(
    logprobs: Tensor,
    sampled_logprobs: Tensor,
    token_weights: Tensor,
    *,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> float:
    """Part of the tokens whose ratio lies outside the clip range."""
    ratio = torch.exp(logprobs - sampled_logprobs)
    outside = (ratio < 1.0 - clip_low) | (ratio > 1.0 + clip_high)
    weight = token_weights.sum().clamp(min=1e-9)
    return float((outside * token_weights).sum() / weight)
