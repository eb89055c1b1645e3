"""The one writer of a run: a thread that commits what many rollouts hand in, in groups.

A group is written to the segment, then committed to the index, then acknowledged. So what is
acknowledged is found by every reader, and a kill between two of these steps leaves nothing worse
than a record that the next writer indexes. When a step is refused (a full disk), the earlier ones
are taken back and every append of the group is refused; the run goes on when there is space again.

The thread exists because encoding and compressing a record takes longer than an event loop should
stand still when hundreds arrive together, and because one commit for many costs what one for one
does.
"""

import asyncio
import queue
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import structlog

from tiltyard.core.errors import StoreError
from tiltyard.core.trajectory import Trajectory
from tiltyard.store.index import Index, Place
from tiltyard.store.records import pack
from tiltyard.store.segments import SegmentAppender

GROUP_RECORDS_MAX = 128
"""Records committed together: beyond this a commit's cost no longer shows in the total."""

SYNC_EVERY_S = 1.0
"""How often appended records are forced to the disk. Surviving `kill -9` of any process needs no
fsync, because the kernel holds what was written; one fsync costs about 4 ms, which for each group
would be most of a commit. So a power failure costs at most this much of a run, and those rollouts
are missing, not wrong: a resumed run makes them again."""

_log = structlog.get_logger("tiltyard.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One record handed in, and who waits for it."""

    trajectory: Trajectory
    done: asyncio.Future[None]
    """Belongs to the event loop: the writer's thread only passes it back."""


Settled: TypeAlias = list[tuple[Append, StoreError | None]]
"""What became of each record of a group; None for one that is committed."""


class GroupWriter:
    """What the thread owns and does. `run` returns after `None` was handed in."""

    def __init__(
        self,
        *,
        directory: Path,
        index: Index,
        segment: SegmentAppender,
        segment_bytes_max: int,
        handed_in: "queue.SimpleQueue[Append | None]",
        settle: Callable[[Settled], None],
        at_end: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._index = index
        self._segment = segment
        self._segment_bytes_max = segment_bytes_max
        self._handed_in = handed_in
        self._settle = settle
        self._at_end = at_end
        self._synced_at_s = time.monotonic()
        self.failure: StoreError | None = None
        """Set once what was written may not reach the disk; every later append is refused."""

    def run(self) -> None:
        """Commit groups until told to stop, then sync and close everything."""
        going = True
        while going:
            group, going = self._next_group()
            if group:
                self._settle(self._committed(group))
            if self._sync_wait_s() == 0:
                self._sync(self._segment.sync)
        with ExitStack() as closing:
            closing.callback(self._at_end)
            closing.callback(self._index.close_as_one_file)
            self._sync(self._segment.close)

    def _next_group(self) -> tuple[list[Append], bool]:
        """Waits for records or the time to sync; False when told to stop."""
        group: list[Append] = []
        try:
            item = self._handed_in.get(timeout=self._sync_wait_s())
            while item is not None:
                group.append(item)
                if len(group) == GROUP_RECORDS_MAX:
                    return group, True
                item = self._handed_in.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _committed(self, group: list[Append]) -> Settled:
        try:
            return self._commit(group)
        except StoreError as error:
            _log.warning("records_refused", count=len(group), error=str(error))
            return [(item, error) for item in group]
        except Exception as error:  # noqa: BLE001 - the thread's top: those who wait are told
            _log.exception("records_refused", count=len(group))
            refusal = StoreError(f"{self._directory}: recording failed: {error!r}.")
            refusal.__cause__ = error
            return [(item, refusal) for item in group]

    def _commit(self, group: list[Append]) -> Settled:
        if self.failure is not None:
            raise self.failure
        if self._segment.size_bytes >= self._segment_bytes_max:
            self._begin_next_segment()
        size_before = self._segment.size_bytes
        settled: Settled = []
        frames = bytearray()
        try:
            with self._index.transaction():
                for item in group:
                    offset = size_before + len(frames)
                    refusal = self._stage(item.trajectory, offset, frames)
                    settled.append((item, refusal))
                self._segment.append(frames)
        except BaseException:
            # The index has not kept the rows, so the segment must not keep the records.
            self._segment.cut_back(size_before)
            raise
        return settled

    def _stage(self, trajectory: Trajectory, offset: int, frames: bytearray) -> StoreError | None:
        """Add one record to the group; why it is refused by itself, or None."""
        try:
            trajectory.id.encode()
            frame = self._segment.frame(pack(trajectory))
        except ValueError as error:
            return StoreError(
                f"Rollout {trajectory.id!r} cannot be recorded: {error}.",
                fix="This is a defect of what made the record; report it.",
            )
        place = Place(segment=self._segment.number, offset=offset, length_bytes=len(frame))
        if not self._index.insert(trajectory, place):
            return StoreError(
                f"Rollout {trajectory.id!r} is already recorded in {self._directory}.",
                fix="Give each rollout an id of its own, or skip those that are recorded.",
            )
        frames += frame
        return None

    def _begin_next_segment(self) -> None:
        full = self._segment
        self._segment = SegmentAppender.create(self._directory, full.number + 1)
        self._sync(full.close)

    def _sync_wait_s(self) -> float | None:
        """How long until records must be forced to the disk; None when all are."""
        if not self._segment.unsynced or self.failure is not None:
            return None
        return max(0.0, self._synced_at_s + SYNC_EVERY_S - time.monotonic())

    def _sync(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except StoreError as error:
            # After a refused fsync the kernel may have dropped what it held, so a second one that
            # succeeds would prove nothing.
            _log.exception("sync_refused")
            self.failure = error
        self._synced_at_s = time.monotonic()
