"""Batched sampling with a shared prompt and a growing cache.

Randomness is passed in as uniform numbers, one for each answer and position, and those are made
from a key (`uniform_draws`), never from a shared stream of a generator. So which answer a rollout
gets depends on the seed and on the rollout's own name, not on who else was in the batch or on the
order of arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tiltyard.training.bpe import PAD_ID
from tiltyard.training.model import PolicyModel

_KEEP_FRACTION = 0.75
"""A batch is packed anew when fewer than this part of its rows is still unfinished; packing copies
the caches, which costs about as much as one step."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled answer: its ids, their natural-log probabilities, and whether it was cut."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    truncated: bool


def uniform_draws(seed: int, keys: Sequence[str], count: int) -> NDArray[np.float32]:
    """Uniform numbers in [0, 1), one row of `count` for each key, fixed by `seed` and the key."""
    digests = [
        blake2b(f"{seed}/{block}/{key}".encode(), digest_size=64).digest()
        for key in keys
        for block in range((count + 15) // 16)
    ]
    words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(keys), -1)[:, :count]
    # 23 bits: a product with the sum of probabilities then never rounds up to that sum.
    return (words >> 9).astype(np.float32) * np.float32(2.0**-23)


@torch.inference_mode()
def sample(
    model: PolicyModel,
    prompts: Sequence[Sequence[int]],
    draws: Sequence[NDArray[np.float32]],
    *,
    temperature: float,
    stop_ids: Sequence[int],
) -> list[list[Sampled]]:
    """Sample answers for each prompt; `draws[i]` [answers, steps] sets how many, and how long.

    The prompts share one batch and the answers of a prompt share its cache. An answer ends with
    the first of `stop_ids` (kept) or is truncated after `steps` tokens. Every prompt needs the
    same `steps`; the log-probabilities are those of the distribution sampled from.
    """
    answers_max = max(len(rows) for rows in draws)
    steps = draws[0].shape[1]
    uniform = torch.zeros(len(prompts), answers_max, steps)
    alive = torch.zeros(len(prompts), answers_max, dtype=torch.bool)
    for task, rows in enumerate(draws):
        uniform[task, : len(rows)] = torch.from_numpy(rows)
        alive[task, : len(rows)] = True
    state = _Batch.begin(model, prompts, uniform, alive)
    stops = torch.zeros(model.shape.vocabulary, dtype=torch.bool)
    stops[list(stop_ids)] = True
    ids = torch.full((len(prompts), answers_max, steps), PAD_ID)
    logprobs = torch.zeros(len(prompts), answers_max, steps)
    lengths = torch.zeros(len(prompts), answers_max, dtype=torch.long)
    for step in range(steps):
        logits = state.next_logits(model, step)
        chosen, scores = _choose(logits / temperature, state.uniform[:, :, step])
        ids[state.task, state.answer, step] = torch.where(state.alive, chosen, PAD_ID)
        logprobs[state.task, state.answer, step] = scores
        lengths[state.task, state.answer] += state.alive
        state.inputs = chosen
        state.alive = state.alive & ~stops[chosen]
        if not state.pack():
            break
    ended = stops[ids.gather(2, (lengths - 1).clamp(min=0)[:, :, None])[:, :, 0]]
    return [
        [
            Sampled(tuple(row[:n]), tuple(scores[:n]), not done)
            for row, scores, n, done in zip(*columns, strict=True)
        ][: len(rows)]
        for rows, *columns in zip(
            draws, ids.tolist(), logprobs.tolist(), lengths.tolist(), ended.tolist(), strict=True
        )
    ]


def _choose(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of the cumulative distribution at `uniform`; ids and their log-probabilities."""
    scores = torch.log_softmax(logits, dim=-1)
    cumulative = scores.exp().cumsum(dim=-1)
    target = uniform[..., None] * cumulative[..., -1:]
    chosen = torch.searchsorted(cumulative, target, right=True)
    return chosen[..., 0], scores.gather(-1, chosen)[..., 0]


class _Batch:
    """The unfinished part of a sampling batch: who is in it, and their keys and values.

    Each layer's `past` is [T, H, P + A * G, D]: the prompt's columns, then one column an answer
    for each position, so that the columns filled so far are always a prefix.
    """

    def __init__(self, past: list[tuple[Tensor, Tensor]], lengths: Tensor, mask: Tensor) -> None:
        self.past = past
        self.lengths = lengths
        self.mask = mask
        self.inputs: Tensor
        self.uniform: Tensor
        self.alive: Tensor
        self.task: Tensor
        self.answer: Tensor

    @classmethod
    def begin(
        cls, model: PolicyModel, prompts: Sequence[Sequence[int]], uniform: Tensor, alive: Tensor
    ) -> "_Batch":
        tokens, lengths, last = _pad_prompts(prompts)
        tasks, answers, steps = uniform.shape
        past = [
            (_with_room(keys, answers * steps), _with_room(values, answers * steps))
            for keys, values in model.read_prompts(tokens)
        ]
        outside = torch.arange(tokens.shape[1]) >= lengths[:, None]
        padding = torch.zeros(outside.shape, dtype=past[0][0].dtype)
        padding.masked_fill_(outside, float("-inf"))
        batch = cls(past, lengths, _answer_mask(padding[:, None], answers, steps))
        batch.inputs = last[:, None].expand(tasks, answers)
        batch.uniform, batch.alive = uniform, alive
        batch.task = torch.arange(tasks)[:, None].expand(tasks, answers)
        batch.answer = torch.arange(answers)[None].expand(tasks, answers)
        return batch

    def next_logits(self, model: PolicyModel, step: int) -> Tensor:
        _, answers, steps = self.uniform.shape
        end = self.mask.shape[-1] - (steps - 1 - step) * answers
        past = [(keys[:, :, :end], values[:, :, :end]) for keys, values in self.past]
        return model.next_logits(self.inputs, self.lengths + step, past, self.mask[..., :end])

    def pack(self) -> bool:
        """Drop finished rows when that pays; False when every row is finished."""
        counts = self.alive.sum(dim=1)
        width = int(counts.max())
        tasks = counts.nonzero()[:, 0]
        if width == 0:
            return False
        if width * len(tasks) > _KEEP_FRACTION * self.alive.numel():
            return True
        # Unfinished answers first, in their order; what else is kept to fill the rows stays dead.
        order = torch.argsort((~self.alive[tasks]).byte(), dim=1, stable=True)[:, :width]
        steps = self.uniform.shape[2]
        columns = self._columns_of(order)
        self.past = [
            (_take_columns(keys, tasks, columns), _take_columns(values, tasks, columns))
            for keys, values in self.past
        ]
        prompt = self.mask.shape[-1] - self.alive.shape[1] * steps
        self.mask = _answer_mask(self.mask[tasks, :, 0, :prompt], width, steps)
        rows = tasks[:, None]
        self.lengths = self.lengths[tasks]
        self.inputs, self.uniform = self.inputs[rows, order], self.uniform[rows, order]
        self.alive, self.task = self.alive[rows, order], self.task[rows, order]
        self.answer = self.answer[rows, order]
        return True

    def _columns_of(self, order: Tensor) -> Tensor:
        # [T, P + A * kept]: the columns that stay, for each task that stays.
        _, answers, steps = self.uniform.shape
        prompt = self.mask.shape[-1] - answers * steps
        of_answers = prompt + torch.arange(steps)[None, :, None] * answers + order[:, None, :]
        of_prompt = torch.arange(prompt)[None].expand(len(order), prompt)
        return torch.cat([of_prompt, of_answers.flatten(1)], dim=1)


def _with_room(columns: Tensor, count: int) -> Tensor:
    tasks, heads, _, depth = columns.shape
    return torch.cat([columns, columns.new_zeros(tasks, heads, count, depth)], dim=2)


def _take_columns(columns: Tensor, tasks: Tensor, kept: Tensor) -> Tensor:
    heads = torch.arange(columns.shape[1])[None, :, None]
    return columns[tasks[:, None, None], heads, kept[:, None, :]]


def _answer_mask(padding: Tensor, answers: int, steps: int) -> Tensor:
    # padding [T, 1, P] -> [T, 1, G, P + A * G]: the prompt, and of the answers only one's own.
    tasks = len(padding)
    apart = padding.new_full((answers, answers), float("-inf")).fill_diagonal_(0.0)
    own = apart.repeat(1, steps)[None, None].expand(tasks, 1, answers, answers * steps)
    prompt = padding[:, :, None].expand(tasks, 1, answers, padding.shape[-1])
    return torch.cat([prompt, own], dim=-1)


def _pad_prompts(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    # Prompts without their last token [T, P] padded at the end, their lengths, and the last: it is
    # the first input of every answer, so that all logits come from one place.
    width = max(max(len(prompt) for prompt in prompts) - 1, 1)
    tokens = torch.full((len(prompts), width), PAD_ID)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])
    return tokens, lengths, torch.tensor([prompt[-1] for prompt in prompts])
