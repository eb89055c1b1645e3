"""The built-in policy: a decoder-only transformer of about a million parameters.

Theory of operation. A group's answers share one prompt, and prompts are several times longer than
answers, so nothing here ever computes a prompt once per answer.

- To *score* answers, a group is one row: the prompt, then the answers one behind the other, with a
  mask under which each answer sees the prompt and itself only (a tree of two levels). Rows of
  about equal length make a batch, so that little of it is padding.
- To *sample*, the prompts are read once, and what they leave behind (keys and values) is extended
  by one column an answer and step.

Shapes in comments: T tasks (groups), G answers of a task, S positions of a row, P prompt positions,
H heads, D channels of a head, C channels.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader knows
from torch import Tensor, nn

from tiltyard.training.bpe import SPECIAL_COUNT
from tiltyard.training.columns import AnswerColumns, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What fixes the number and meaning of the weights."""

    vocabulary: int
    channels: int = 128
    layers: int = 5
    heads: int = 4
    positions: int = 512
    """Longest prompt and answer together, in tokens."""


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

    def read_prompts(self, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values [T, H, P, D] after reading prompts [T, P].

        Prompts are padded at the end; what stands there is meaningless, and nothing before it
        depends on it.
        """
        width = tokens.shape[1]
        mask = torch.full((width, width), float("-inf"), dtype=self.embedding.weight.dtype)
        mask.triu_(1)
        turn = (self.cosines[:width], self.sines[:width])
        stream = self.embedding(tokens)
        read = []
        blocks = self._each_block()
        for depth, block in enumerate(blocks):
            stream, keys, values = block.attend(stream, turn, mask)
            read.append((keys, values))
            if depth + 1 < len(blocks):
                stream = block.feed_forward(stream)
        return read

    def logits_at(self, tokens: Tensor, positions: Tensor, mask: Tensor, wanted: Tensor) -> Tensor:
        """Next-token logits [N, vocabulary] of rows [T, S], at N wanted places.

        `positions` [T, S] are those within prompt or answer. `mask` [T, 1, S, S] is zero where a
        place may look and -inf elsewhere. `wanted` [N] are places of the flattened rows.
        """
        cosines, sines = self.cosines[positions], self.sines[positions]
        turn = (cosines[:, None], sines[:, None])
        stream = self.embedding(tokens)
        blocks = self._each_block()
        for block in blocks[:-1]:
            stream, _, _ = block.attend(stream, turn, mask)
            stream = block.feed_forward(stream)
        stream, _, _ = blocks[-1].attend(stream, turn, mask)
        # The last layer's larger half is only computed where somebody looks at it.
        padded = F.pad(wanted, (0, round_up(len(wanted)) - len(wanted)))
        stream = stream.flatten(0, 1).index_select(0, padded)
        return self._logits(blocks[-1].feed_forward(stream))[: len(wanted)]

    def next_logits(self, inputs: Tensor, positions: Tensor, past: AnswerColumns) -> Tensor:
        """Logits [R, vocabulary] after one more input of each of R unfinished answers.

        `positions` [R] says where the inputs stand. `past` is filled for them by this call.
        """
        count, inputs, positions = len(inputs), past.padded(inputs), past.padded(positions)
        # [R, D / 2] -> [R, 1, D / 2], to broadcast over heads.
        turn = (self.cosines[positions][:, None], self.sines[positions][:, None])
        stream = self.embedding(inputs)
        for block, keys, values in zip(self._each_block(), past.keys, past.values, strict=True):
            stream = block.feed_forward(block.attend_next(stream, turn, past, keys, values))
        return self._logits(stream)[:count]

    def _each_block(self) -> "list[Block]":
        # ModuleList is typed as holding any module.
        return [block for block in self.blocks if isinstance(block, Block)]

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

    def attend(
        self, stream: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention within rows [T, S, C] under a mask; also their keys and values [T, H, S, D]."""
        queries, keys, values = self._split(stream, turn)
        # Written out: the fused kernel's bf16 backward pass is ten times slower on a processor.
        scores = queries @ keys.transpose(-1, -2) + mask
        mixed = torch.softmax(scores, dim=-1) @ values
        return stream + self.merge(mixed.transpose(1, 2).reshape(stream.shape)), keys, values

    def attend_next(
        self,
        stream: Tensor,
        turn: tuple[Tensor, Tensor],
        past: AnswerColumns,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """One more position of R unfinished answers [R, C].

        All answers of a task are one matrix against all columns, their neighbours' included, and
        the mask takes those out again: one product of some waste beats many tiny ones.
        """
        triple = self.project(self.attention_norm(stream)).view(len(stream), 3, self.heads, -1)
        turned = _rotate(triple[:, :2].transpose(0, 1), turn)
        new = past.spread(torch.stack([turned[0], turned[1], triple[:, 2]], dim=1))
        queries, new_keys, new_values = new.permute(2, 0, 3, 1, 4)  # each [T, H, G, D]
        keys[..., past.at : past.at + past.answers] = new_keys.transpose(-1, -2)
        values[:, :, past.at : past.at + past.answers] = new_values
        queries = queries * queries.shape[-1] ** -0.5
        scores = (queries @ keys[..., : past.end]).add_(past.mask[..., : past.end])
        mixed = torch.softmax(scores, dim=-1) @ values[:, :, : past.end]
        attended: Tensor = stream + self.merge(past.gather(mixed))
        return attended

    def feed_forward(self, stream: Tensor) -> Tensor:
        """The second half of the block, at each place on its own."""
        grown: Tensor = self.down(_squared_relu(self.up(self.forward_norm(stream))))
        return stream + grown

    def _split(self, stream: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        # [T, S, 3C] -> three of [T, H, S, D]; queries carry the softmax's scale.
        tasks, places, _ = stream.shape
        triple = self.project(self.attention_norm(stream))
        triple = triple.view(tasks, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys = _rotate(triple[:2], turn)
        return queries * queries.shape[-1] ** -0.5, keys, triple[2]


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
