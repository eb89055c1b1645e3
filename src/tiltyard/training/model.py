"""The built-in policy: a decoder-only transformer of about a million parameters.

Theory of operation. A group's answers share one prompt, and prompts are several times longer than
answers, so nothing here ever computes a prompt once per answer. Every call has two streams:

- the *prompt* stream `[tasks, prompt]`, run once per task, which leaves keys and values behind;
- the *answer* stream `[tasks, answers, positions]`, whose every position attends to its task's
  prompt and to the earlier positions of its own answer.

Learning and sampling use the same two streams; sampling only runs the answer stream one position
at a time. The last token of a prompt is the first input of the answer stream, so the logits of
all answer tokens come from one place and the prompt stream's last layer needs only keys and values.

Shapes in comments: T tasks, G answers of a task, A positions of an answer, P prompt positions,
H heads, D channels of a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader knows
from torch import Tensor, nn

from tiltyard.training.bpe import SPECIAL_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What fixes the number and meaning of the weights."""

    vocabulary: int
    channels: int = 128
    layers: int = 5
    heads: int = 4
    positions: int = 512
    """Longest prompt and answer together, in tokens."""


@dataclass(frozen=True, slots=True)
class PromptCache:
    """What the prompt stream leaves for the answers: a layer's keys and values are [T, H, P, D]."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    padding: Tensor
    """[T, 1, 1, 1, P], zero at real positions and -inf at padding; added to attention scores."""
    lengths: Tensor
    """[T], prompt positions of each task."""

    def take(self, tasks: Tensor) -> "PromptCache":
        """The cache of some of the tasks, by index."""
        layers = tuple((keys[tasks], values[tasks]) for keys, values in self.layers)
        return PromptCache(layers, self.padding[tasks], self.lengths[tasks])


class PolicyModel(nn.Module):
    """Token ids in, next-token logits of answers out. Special tokens are never predicted."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.cosines: Tensor
        self.sines: Tensor
        self.never: Tensor
        self.embedding = nn.Embedding(shape.vocabulary, shape.channels)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.final_norm = nn.LayerNorm(shape.channels, bias=False)
        cosines, sines = _rotations(shape.positions, shape.channels // shape.heads)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        # Finite, so that an entropy computed from these logits has no 0 * inf.
        never = torch.zeros(shape.vocabulary)
        never[:SPECIAL_COUNT] = -1e9
        self.register_buffer("never", never, persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Fresh weights from `generator` alone, so that a seed fixes them."""
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                nn.init.ones_(weight)
                continue
            narrow = name.endswith(("merge.weight", "down.weight"))
            spread = 0.02 / (2 * self.shape.layers) ** 0.5 if narrow else 0.02
            if not name.startswith("embedding"):
                spread *= 2.0
            nn.init.normal_(weight, std=spread, generator=generator)

    def read_prompts(self, tokens: Tensor, lengths: Tensor) -> PromptCache:
        """Run the prompt stream. `tokens` [T, P] padded at the end, `lengths` [T].

        The prompts come here *without* their last token; see the theory of operation.
        """
        width = tokens.shape[1]
        turn = (self.cosines[:width], self.sines[:width])
        stream = self.embedding(tokens)
        layers = []
        for depth, block in enumerate(self._each_block()):
            last = depth == len(self.blocks) - 1
            stream, keys, values = block.read(stream, turn, only_cache=last)
            layers.append((keys, values))
        outside = torch.arange(width) >= lengths[:, None]
        padding = torch.zeros(outside.shape, dtype=stream.dtype)
        padding.masked_fill_(outside, float("-inf"))
        return PromptCache(tuple(layers), padding[:, None, None, None, :], lengths)

    def answer_logits(self, cache: PromptCache, inputs: Tensor) -> Tensor:
        """Logits [T, G, A, vocabulary] after each of the answers' inputs [T, G, A]."""
        positions = cache.lengths[:, None] + torch.arange(inputs.shape[2])
        turn = self._turns(positions)
        stream = self.embedding(inputs)
        for block, prompt in zip(self._each_block(), cache.layers, strict=True):
            stream = block.answer(stream, turn, prompt, cache.padding)
        return self._logits(stream)

    def next_logits(
        self, inputs: Tensor, positions: Tensor, past: Sequence[tuple[Tensor, Tensor]], mask: Tensor
    ) -> Tensor:
        """Logits [T, G, vocabulary] after one more input [T, G] of each answer.

        `positions` [T] says where the inputs stand. `past` holds each layer's keys and values
        [T, H, S, D]; this call fills their last G columns. `mask` [T, 1, G, S] is zero where an
        answer may look and -inf elsewhere.
        """
        turn = self._turns(positions[:, None])
        stream = self.embedding(inputs)[:, :, None]
        for block, columns in zip(self._each_block(), past, strict=True):
            stream = block.answer_next(stream, turn, columns, mask)
        return self._logits(stream)[:, :, 0]

    def _each_block(self) -> "list[Block]":
        # ModuleList is typed as holding any module.
        return [block for block in self.blocks if isinstance(block, Block)]

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        # [T, A] -> [T, 1, 1, A, D / 2], to broadcast over heads and answers.
        return self.cosines[positions][:, None, None], self.sines[positions][:, None, None]

    def _logits(self, stream: Tensor) -> Tensor:
        # In full precision whatever the rest runs in: bf16 would round a logit of 10 by 0.03.
        return F.linear(self.final_norm(stream).float(), self.embedding.weight.float(), self.never)


class Block(nn.Module):
    """Pre-norm attention and a squared-ReLU feed-forward layer, both without biases."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        channels = shape.channels
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(channels, bias=False)
        self.project = nn.Linear(channels, 3 * channels, bias=False)
        self.merge = nn.Linear(channels, channels, bias=False)
        self.forward_norm = nn.LayerNorm(channels, bias=False)
        self.up = nn.Linear(channels, 4 * channels, bias=False)
        self.down = nn.Linear(4 * channels, channels, bias=False)

    def read(
        self, stream: Tensor, turn: tuple[Tensor, Tensor], *, only_cache: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Causal attention within the prompt stream [T, P, C]; also its keys and values."""
        tasks, width, channels = stream.shape
        normed = self.attention_norm(stream)
        if only_cache:
            pair = F.linear(normed, self.project.weight[channels:])
            keys, values = pair.view(tasks, width, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
            return stream, _rotate(keys, turn), values
        triple = self.project(normed).view(tasks, width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys = _rotate(triple[:2], turn)
        values = triple[2]
        # Written out: the fused kernel's bf16 backward pass is ten times slower on a processor.
        future = stream.new_full((width, width), float("-inf")).triu_(1)
        scores = queries * queries.shape[-1] ** -0.5 @ keys.transpose(-1, -2) + future
        mixed = torch.softmax(scores, dim=-1) @ values
        stream = stream + self.merge(mixed.transpose(1, 2).reshape(tasks, width, channels))
        return self._feed_forward(stream), keys, values

    def answer(
        self,
        stream: Tensor,
        turn: tuple[Tensor, Tensor],
        prompt: tuple[Tensor, Tensor],
        padding: Tensor,
    ) -> Tensor:
        """The answer stream [T, G, A, C], all positions at once."""
        queries, keys, values = self._split_answers(stream, turn)
        length = stream.shape[2]
        future = stream.new_full((length, length), float("-inf")).triu_(1)
        own = queries @ keys.transpose(-1, -2) + future
        return self._attend(stream, queries, prompt, padding, own, values)

    def answer_next(
        self,
        stream: Tensor,
        turn: tuple[Tensor, Tensor],
        past: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> Tensor:
        """The answer stream [T, G, 1, C] at one position; `past` ends with this position's columns.

        All answers of a task are one matrix against all columns, their neighbours' included, and
        the mask takes those out again: one product of some waste beats many tiny ones.
        """
        answers = stream.shape[1]
        queries, keys, values = self._split_answers(stream, turn)
        past[0][:, :, -answers:] = keys[:, :, :, 0]
        past[1][:, :, -answers:] = values[:, :, :, 0]
        scores = (queries[:, :, :, 0] @ past[0].transpose(-1, -2)).add_(mask)
        mixed = torch.softmax(scores, dim=-1) @ past[1]
        return self._feed_forward(stream + self.merge(mixed.transpose(1, 2).reshape(stream.shape)))

    def _split_answers(
        self, stream: Tensor, turn: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        # [T, G, A, 3C] -> three of [T, H, G, A, D]; queries carry the softmax's scale.
        tasks, answers, length, _ = stream.shape
        triple = self.project(self.attention_norm(stream))
        triple = triple.view(tasks, answers, length, 3, self.heads, -1).permute(3, 0, 4, 1, 2, 5)
        queries, keys = _rotate(triple[:2], turn)
        return queries * queries.shape[-1] ** -0.5, keys, triple[2]

    def _attend(
        self,
        stream: Tensor,
        queries: Tensor,
        prompt: tuple[Tensor, Tensor],
        padding: Tensor,
        own: Tensor,
        values: Tensor,
    ) -> Tensor:
        # One softmax over the prompt's scores and the answer's own, without ever copying the
        # prompt's keys per answer: all answers of a task are one tall matrix against them.
        tasks, heads, answers, length, depth = queries.shape
        width = prompt[0].shape[2]
        tall = queries.reshape(tasks, heads, answers * length, depth)
        shared = (tall @ prompt[0].transpose(-1, -2)).view(tasks, heads, answers, length, width)
        weights = torch.softmax(torch.cat([shared + padding, own], dim=-1), dim=-1)
        from_prompt = weights[..., :width].reshape(tasks, heads, answers * length, width)
        mixed = (from_prompt @ prompt[1]).view(queries.shape) + weights[..., width:] @ values
        mixed = mixed.permute(0, 2, 3, 1, 4).reshape(stream.shape)
        return self._feed_forward(stream + self.merge(mixed))

    def _feed_forward(self, stream: Tensor) -> Tensor:
        grown: Tensor = self.down(_squared_relu(self.up(self.forward_norm(stream))))
        return stream + grown


class _SquaredRelu(torch.autograd.Function):
    # Written out because autograd's own backward of relu().square() is eight times slower here.

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        positive = F.relu(inputs)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        doubled: Tensor = (grad * positive).mul_(2)
        return doubled


def _squared_relu(inputs: Tensor) -> Tensor:
    """Squared ReLU (So et al. 2021)."""
    return cast("Tensor", _SquaredRelu.apply(inputs))  # type: ignore[no-untyped-call]


def _rotations(positions: int, depth: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, depth / 2] of rotary embeddings (Su et al. 2021)."""
    rates = 10_000.0 ** (-torch.arange(0, depth, 2) / depth)
    angles = torch.arange(positions)[:, None] * rates
    return angles.cos(), angles.sin()


def _rotate(vectors: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = turn
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], dim=-1)
