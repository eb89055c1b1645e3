"""Keys and values while answers grow: the prompt's columns, then one an answer and step.

Theory of operation. The answers of a task share its columns; a mask says which of them an answer
may look at. Unfinished answers are kept as a flat list of rows, so that the products over channels,
which are most of the work, are made for those alone; only attention works on all answers of a
task, for which the rows are spread out and gathered again. Tasks without an unfinished answer are
dropped from time to time.

Some of this serves speed only. Keys lie transposed, because a product with a transposed slice is
first copied. And sizes are rounded up: the kernels for bf16 are made anew for every new shape,
which takes a millisecond, four times as long as a product of this size, and are kept in memory; and
a softmax over a width that is no multiple of 32 takes three times as long as over one that is.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader knows
from torch import Tensor

SIZE_STEP = 32
"""Widths and numbers of rows are rounded up to multiples of this."""
_TASKS_STEP = 8
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
        self.slots = self.rows
        """[R rounded up]: `rows`, then T * G, one behind the last answer."""

    def open_step(self) -> None:
        """Give each answer a column for its next position."""
        self.at += self.answers
        self.end = round_up(self.at + self.answers)
        each = torch.arange(self.answers)
        self.mask[:, 0, each, self.at + each] = 0.0

    def padded(self, of_rows: Tensor) -> Tensor:
        """[R] to [R rounded up]."""
        return F.pad(of_rows, (0, len(self.slots) - len(self.rows)))

    def positions(self, step: int) -> Tensor:
        """[R]: where the inputs of a step stand."""
        return self.lengths[self.rows // self.answers] + step

    def names(self) -> tuple[Tensor, Tensor]:
        """[R] twice: the caller's task and answer of each row."""
        return self.task[self.rows // self.answers], self.rows % self.answers

    def spread(self, flat: Tensor) -> Tensor:
        """[R rounded up, ...] to [T, G, ...], zero for finished answers."""
        count = len(self.task) * self.answers
        full = flat.new_zeros(count + 1, *flat.shape[1:])
        full[self.slots] = flat
        return full[:count].view(len(self.task), self.answers, *flat.shape[1:])

    def gather(self, mixed: Tensor) -> Tensor:
        """[T, H, G, D] to [R rounded up, H * D]; what is past R is meaningless."""
        count = len(self.task) * self.answers
        return mixed.transpose(1, 2).reshape(count, -1)[self.slots.clamp(max=count - 1)]

    def keep(self, unfinished: Tensor) -> None:
        """Only the rows where `unfinished` [R] is true go on."""
        self.rows = self.rows[unfinished]
        self._drop_tasks()
        room = round_up(len(self.rows)) - len(self.rows)
        self.slots = F.pad(self.rows, (0, room), value=len(self.task) * self.answers)

    def _drop_tasks(self) -> None:
        of_task = self.rows // self.answers
        live = torch.zeros(len(self.task), dtype=torch.bool)
        live[of_task] = True
        # Unfinished tasks first, and of the finished ones as many as round their number up.
        kept = round_up(int(live.sum()), _TASKS_STEP)
        if kept == 0 or kept > _KEEP_FRACTION * len(self.task):
            return
        left = torch.argsort(~live, stable=True)[:kept]
        place = torch.zeros(len(self.task), dtype=torch.long)
        place[left] = torch.arange(kept)
        self.rows = place[of_task] * self.answers + self.rows % self.answers
        self.keys = [keys[left] for keys in self.keys]
        self.values = [values[left] for values in self.values]
        self.mask, self.lengths, self.task = self.mask[left], self.lengths[left], self.task[left]


def round_up(size: int, step: int = SIZE_STEP) -> int:
    """The next multiple of `step`."""
    return -(-size // step) * step


def _with_room(columns: Tensor, dim: int, room: int) -> Tensor:
    shape = list(columns.shape)
    shape[dim] = room
    return torch.cat([columns, columns.new_zeros(shape)], dim=dim)
