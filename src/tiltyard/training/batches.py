"""From token ids to rows of tensors: how answers that share a prompt are scored.

A group is one row: its prompt, then its answers one behind the other. Groups are sorted by the
length of their row and cut into small batches, because a batch is padded to its longest row, and
because activations of a few thousand tokens still fit the processor's cache, which is worth more
here than large products. Widths and numbers of rows are rounded up, so that few shapes occur: the
kernels for bf16 are made anew for every new one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiltyard.training.bpe import PAD_ID
from tiltyard.training.columns import round_up
from tiltyard.training.model import PolicyModel

BATCH_TOKENS_MAX = 3_072
"""Tokens of one forward and backward pass, padding included, unless one row alone has more."""
_ROWS_STEP = 4


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """One prompt and the answers to score, with what the loss needs to know of each."""

    prompt: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    sampled_logprobs: tuple[tuple[float, ...], ...] = ()
    advantages: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    """How many identical answers each one stands for; empty means one each."""

    @property
    def row_tokens(self) -> int:
        """Positions of its row: the last token of an answer is predicted, never read."""
        return len(self.prompt) + sum(len(answer) - 1 for answer in self.answers)


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """Rows of T groups, S positions long, and their N answer tokens in one flat list."""

    tokens: Tensor
    positions: Tensor
    branches: Tensor
    """[T, S]: 0 in the prompt, the answer's number from 1 in an answer, -1 behind them. Rows
    that only fill up the batch are all 0."""
    wanted: Tensor
    """[N]: the place in the flattened rows that predicts each answer token."""
    targets: Tensor
    """[N]: the answer tokens, group by group."""
    groups: tuple[PromptAnswers, ...]

    def logprobs(self, model: PolicyModel, temperature: float = 1.0) -> Tensor:
        """[N] natural-log probabilities of the answer tokens at a sampling temperature."""
        mask = _tree_mask(self.branches, model.embedding.weight.dtype)
        logits = model.logits_at(self.tokens, self.positions, mask, self.wanted)
        scores = torch.log_softmax(logits / temperature, dim=-1)
        return scores.gather(-1, self.targets[:, None])[:, 0]

    def sampled_logprobs(self) -> Tensor:
        """[N], as they were when the answers were sampled."""
        each = (logprobs for group in self.groups for logprobs in group.sampled_logprobs)
        return torch.tensor([logprob for logprobs in each for logprob in logprobs])

    def advantages(self) -> Tensor:
        """[N], that of its answer for each token."""
        return self._per_token([group.advantages for group in self.groups])

    def weights(self) -> Tensor:
        """[N], that of its answer for each token."""
        ones = [group.weights or (1.0,) * len(group.answers) for group in self.groups]
        return self._per_token(ones)

    def _per_token(self, values: Sequence[Sequence[float]]) -> Tensor:
        lengths = [len(answer) for group in self.groups for answer in group.answers]
        flat = torch.tensor([value for of_group in values for value in of_group])
        return flat.repeat_interleave(torch.tensor(lengths))


def answer_batches(groups: Sequence[PromptAnswers]) -> Iterator[AnswerBatch]:
    """The groups in batches of bounded size, every group once; the order depends on sizes only."""
    batch: list[PromptAnswers] = []
    for group in sorted(groups, key=lambda group: group.row_tokens):
        # Sorted, so the newest row is the longest.
        rows = round_up(len(batch) + 1, _ROWS_STEP)
        if batch and rows * round_up(group.row_tokens) > BATCH_TOKENS_MAX:
            yield _batch(batch)
            batch = []
        batch.append(group)
    if batch:
        yield _batch(batch)


def _batch(groups: Sequence[PromptAnswers]) -> AnswerBatch:
    width = round_up(max(group.row_tokens for group in groups))
    tokens, positions, branches = [], [], []
    wanted: list[int] = []
    targets: list[int] = []
    for row, group in enumerate(groups):
        ids = list(group.prompt)
        places = list(range(len(ids)))
        branch = [0] * len(ids)
        last = row * width + len(ids) - 1
        for number, answer in enumerate(group.answers, start=1):
            start = row * width + len(ids)
            wanted += [last, *range(start, start + len(answer) - 1)]
            targets += answer
            ids += answer[:-1]
            places += range(len(group.prompt), len(group.prompt) + len(answer) - 1)
            branch += [number] * (len(answer) - 1)
        padding = width - len(ids)
        tokens.append(ids + [PAD_ID] * padding)
        positions.append(places + [0] * padding)
        branches.append(branch + [-1] * padding)
    for filled in (tokens, positions, branches):
        filled.extend([[0] * width] * (round_up(len(groups), _ROWS_STEP) - len(groups)))
    return AnswerBatch(
        torch.tensor(tokens),
        torch.tensor(positions),
        torch.tensor(branches),
        torch.tensor(wanted),
        torch.tensor(targets),
        tuple(groups),
    )


def _tree_mask(branches: Tensor, dtype: torch.dtype) -> Tensor:
    # [T, 1, S, S]: to what came before in the prompt or in one's own answer. Padding may look at
    # the prompt as well: a row of a softmax with nothing to look at would be NaN.
    looking, seen = branches[:, :, None], branches[:, None, :]
    allowed = ((seen == 0) | (seen == looking)).tril_()
    mask = torch.zeros(allowed.shape, dtype=dtype)
    return mask.masked_fill_(~allowed, float("-inf"))[:, None]
