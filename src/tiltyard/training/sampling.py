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
from tiltyard.training.columns import AnswerColumns, round_up
from tiltyard.training.model import PolicyModel


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
    wanted = torch.zeros(len(prompts), answers_max, dtype=torch.bool)
    for task, rows in enumerate(draws):
        uniform[task, : len(rows)] = torch.from_numpy(rows)
        wanted[task, : len(rows)] = True
    stops = torch.zeros(model.shape.vocabulary, dtype=torch.bool)
    stops[list(stop_ids)] = True
    ids = torch.full((len(prompts), answers_max, steps), PAD_ID)
    logprobs = torch.zeros(len(prompts), answers_max, steps)
    lengths = torch.zeros(len(prompts), answers_max, dtype=torch.long)
    tokens, prompt_lengths, last = _pad_prompts(prompts)
    past = AnswerColumns(model.read_prompts(tokens), prompt_lengths, answers_max, steps)
    past.keep(wanted.flatten())
    inputs = last[past.names()[0]]
    for step in range(steps):
        past.open_step()
        names = past.names()
        logits = model.next_logits(inputs, past.positions(step), past)
        inputs, scores = _choose(logits / temperature, uniform[(*names, step)])
        ids[(*names, step)] = inputs
        logprobs[(*names, step)] = scores
        lengths[names] += 1
        unfinished = ~stops[inputs]
        inputs = inputs[unfinished]
        past.keep(unfinished)
        if len(inputs) == 0:
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


def _pad_prompts(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    # Prompts without their last token [T, P] padded at the end, their lengths, and the last: it is
    # the first input of every answer, so that all logits come from one place.
    width = round_up(max(len(prompt) for prompt in prompts) - 1)
    tokens = torch.full((len(prompts), width), PAD_ID)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])
    return tokens, lengths, torch.tensor([prompt[-1] for prompt in prompts])
