"""From token ids to padded tensors and back: how answers to shared prompts are scored.

Groups are sorted by size and cut into small batches, because a batch is padded to its longest
prompt and answer, and because activations of a few thousand tokens still fit the processor's
cache, which is worth more here than large products.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiltyard.training.bpe import PAD_ID
from tiltyard.training.model import PolicyModel
from tiltyard.training.sampling import pad_prompts

BATCH_TOKENS_MAX = 3_000
"""Padded tokens of one forward and backward pass, prompts and answers together."""


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """One prompt and the answers to score, with what the loss needs to know of each."""

    prompt: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    sampled_logprobs: tuple[tuple[float, ...], ...] = ()
    advantages: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    """How many identical answers each one stands for; empty means one each."""


@dataclass(frozen=True, slots=True)
class PaddedAnswers:
    """Answers of T prompts, G each, A tokens long, and zero weight where there is only padding."""

    prompts: Tensor
    lengths: Tensor
    inputs: Tensor
    targets: Tensor
    token_weights: Tensor
    sampled_logprobs: Tensor
    advantages: Tensor

    def logprobs(self, model: PolicyModel, temperature: float = 1.0) -> Tensor:
        """[T, G, A] natural-log probabilities of the target tokens at a sampling temperature."""
        logits = model.answer_logits(model.read_prompts(self.prompts, self.lengths), self.inputs)
        scores = torch.log_softmax(logits / temperature, dim=-1)
        return scores.gather(-1, self.targets[..., None])[..., 0]


def padded_batches(groups: Sequence[PromptAnswers]) -> Iterator[PaddedAnswers]:
    """The groups in batches of bounded size, every group once; the order depends on sizes only."""
    ordered = sorted(groups, key=lambda group: (_answer_tokens(group), len(group.prompt)))
    batch: list[PromptAnswers] = []
    for group in ordered:
        if batch and _padded_tokens([*batch, group]) > BATCH_TOKENS_MAX:
            yield _padded(batch)
            batch = []
        batch.append(group)
    if batch:
        yield _padded(batch)


def _answer_tokens(group: PromptAnswers) -> int:
    return len(group.answers) * max(len(answer) for answer in group.answers)


def _padded_tokens(batch: Sequence[PromptAnswers]) -> int:
    prompt = max(len(group.prompt) for group in batch)
    answers = max(len(group.answers) for group in batch)
    length = max(len(answer) for group in batch for answer in group.answers)
    return len(batch) * (prompt + answers * length)


def _padded(batch: Sequence[PromptAnswers]) -> PaddedAnswers:
    prompts, lengths, last = pad_prompts([group.prompt for group in batch])
    shape = (
        len(batch),
        max(len(group.answers) for group in batch),
        max(len(answer) for group in batch for answer in group.answers),
    )
    targets = torch.full(shape, PAD_ID)
    token_weights = torch.zeros(shape)
    sampled = torch.zeros(shape)
    advantages = torch.zeros(shape[:2])
    for row, group in enumerate(batch):
        for column, answer in enumerate(group.answers):
            filled = (row, column, slice(0, len(answer)))
            targets[filled] = torch.tensor(answer)
            token_weights[filled] = group.weights[column] if group.weights else 1.0
            if group.sampled_logprobs:
                sampled[filled] = torch.tensor(group.sampled_logprobs[column])
        if group.advantages:
            advantages[row, : len(group.answers)] = torch.tensor(group.advantages)
    inputs = torch.cat([last[:, None, None].expand(*shape[:2], 1), targets[..., :-1]], dim=-1)
    return PaddedAnswers(prompts, lengths, inputs, targets, token_weights, sampled, advantages)
