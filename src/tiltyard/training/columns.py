"""Keys and values while answers grow: the prompt's columns, then one an answer and step.

Theory of operation. The answers of a task share its columns; a mask says which of them an answer
may look at. Unfinished answers are kept as a flat list of rows, so that the products over channels,
which are most of the work, are made for those alone; only attention works on all answers of a
task, for which the rows are spread out and gathered again. Tasks without an unfinished answer are
dropped from time to time.

Two layouts serve speed only. Keys lie transposed, because a product with a transposed slice is
first copied. Widths are multiples of 32, because a bf16 softmax over another width takes three
times as long.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

WIDTH_STEP = 32
_KEEP_FRACTION = 0.75
"""Finished tasks are dropped when fewer than this part of the tasks is unfinished: that copies
what is kept."""


class AnswerColumns:
    """The columns of T tasks with G answers each, and which answers are unfinished."""

    def __init__(
        self, read: Sequence[tuple[Tensor, Tensor]], lengths: Tensor, answers: int, steps: int
    ) -> None:
        """`read` holds each layer's keys and values [T, H, P, D] of prompts of `lengths` [T]."""
        tasks, _, prompt, _ = read[0][0].shape
        room = round_up(prompt + answers * steps) - prompt
        self.keys = [_with_room(keys.transpose(-1, -2), 3, room) for keys, _ in read]
        self.values = [_with_room(values, 2, room) for _, values in read]
        self.answers = answers
        self.at = prompt - answers
        """The first of the columns that the present step fills."""
        self.end = prompt
        outside = torch.arange(prompt + room) >= lengths[:, None]
        hidden = torch.zeros(outside.shape, dtype=read[0][0].dtype)
        hidden.masked_fill_(outside, float("-inf"))
        # [T, 1, G, S], added to scores: the prompt is open, answers' columns open step by step.
        self.mask = hidden[:, None, None].repeat(1, 1, answers, 1)
        self.lengths = lengths
        self.task = torch.arange(tasks)
        """[T]: the caller's number of each task that is left."""
        self.rows = torch.arange(tasks * answers)
        """[R]: the unfinished answers, as task * G + answer."""

    def open_step(self) -> None:
        """Give each answer a column for its next position."""
        self.at += self.answers
        self.end = round_up(self.at + self.answers)
        each = torch.arange(self.answers)
        self.mask[:, 0, each, self.at + each] = 0.0

    def positions(self, step: int) -> Tensor:
        """[R]: where the inputs of a step stand."""
        return self.lengths[self.rows // self.answers] + step

    def names(self) -> tuple[Tensor, Tensor]:
        """[R] twice: the caller's task and answer of each row."""
        return self.task[self.rows // self.answers], self.rows % self.answers

    def spread(self, flat: Tensor) -> Tensor:
        """[R, ...] to [T, G, ...], zero for finished answers."""
        full = flat.new_zeros(len(self.task) * self.answers, *flat.shape[1:])
        full[self.rows] = flat
        return full.view(len(self.task), self.answers, *flat.shape[1:])

    def gather(self, mixed: Tensor) -> Tensor:
        """[T, H, G, D] to [R, H * D]."""
        return mixed.transpose(1, 2).reshape(len(self.task) * self.answers, -1)[self.rows]

    def keep(self, unfinished: Tensor) -> None:
        """Only the rows where `unfinished` [R] is true go on."""
        self.rows = self.rows[unfinished]
        of_task = self.rows // self.answers
        left = torch.unique(of_task)
        if len(left) == 0 or len(left) > _KEEP_FRACTION * len(self.task):
            return
        place = torch.zeros(len(self.task), dtype=torch.long)
        place[left] = torch.arange(len(left))
        self.rows = place[of_task] * self.answers + self.rows % self.answers
        self.keys = [keys[left] for keys in self.keys]
        self.values = [values[left] for values in self.values]
        self.mask, self.lengths, self.task = self.mask[left], self.lengths[left], self.task[left]


def round_up(width: int) -> int:
    """The next multiple of `WIDTH_STEP`."""
    return -(-width // WIDTH_STEP) * WIDTH_STEP


def _with_room(columns: Tensor, dim: int, room: int) -> Tensor:
    shape = list(columns.shape)
    shape[dim] = room
    return torch.cat([columns, columns.new_zeros(shape)], dim=dim)
