"""The writing end of a run directory: what the rollout room appends its trajectories to.

    runs/NAME/lock               held while a writer has the run open
    runs/NAME/index.sqlite       one row for each record; can be made again from the segments
    runs/NAME/segments/*.seg     the records

Theory of operation. `append` hands the record to the writer's thread and waits for its group to
be committed; see `writer` for the order of the steps and `recovery` for what a kill between them
leaves. How many may wait is bounded, so a disk that is too slow slows the rollouts down instead of
filling the memory.
"""

import asyncio
import fcntl
import os
import queue
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.trajectory import Trajectory
from tiltyard.store.recovery import Recovery, recover
from tiltyard.store.refusals import refusing_files
from tiltyard.store.segments import (
    SEGMENT_BYTES_MAX,
    SEGMENTS_DIRECTORY,
    open_end,
    require_run,
)
from tiltyard.store.writer import Append, GroupWriter, Settled

LOCK_FILE = "lock"
WAITING_MAX = 512
"""Records that may wait to be committed; a few groups, so that the writer never waits for one."""
CLOSE_S_MAX = 30.0
"""How long `close` waits for the disk before it says that the disk does not answer."""


class RunStore:
    """A run that this process writes. Use from one event loop.

    Reading is `RunReader`'s, in this process as in any other.
    """

    def __init__(self, directory: Path, *, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        """What `open` does; callers say `create` or `open`."""
        self.directory = directory
        self.recovery: Recovery
        """What had to be mended when the run was opened."""
        self._handed_in: queue.SimpleQueue[Append | None] = queue.SimpleQueue()
        self._slots = asyncio.BoundedSemaphore(WAITING_MAX)
        self._closing = False
        with ExitStack() as undo:
            lock = _lock(directory)
            undo.callback(os.close, lock)
            index, self.recovery = recover(directory)
            undo.callback(index.close)
            self._writer = GroupWriter(
                directory=directory,
                index=index,
                segment=open_end(directory),
                segment_bytes_max=segment_bytes_max,
                handed_in=self._handed_in,
                settle=self._settle_soon,
                at_end=lambda: os.close(lock),
            )
            undo.pop_all()
        # A daemon, because a program that forgot to close must still be able to end; what was
        # acknowledged is safe in any case.
        self._thread = threading.Thread(
            target=self._writer.run, name=f"store {directory.name}", daemon=True
        )
        self._thread.start()

    @classmethod
    def create(cls, directory: Path, *, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> Self:
        """Begin a run. The directory is made; it may exist, but not hold a run already.

        Raises `UsageError` when it cannot be a run's directory, and `StoreError`.
        """
        with refusing_files(directory):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise UsageError(
                    f"{directory} cannot be a run directory: a file is in the way.",
                    fix="Name another directory.",
                ) from None
            try:
                (directory / SEGMENTS_DIRECTORY).mkdir()
            except FileExistsError:
                raise UsageError(
                    f"{directory} already holds a run.",
                    fix="Name another directory.",
                ) from None
        return cls(directory, segment_bytes_max=segment_bytes_max)

    @classmethod
    def open(cls, directory: Path, *, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> Self:
        """Go on with a run, mending first what a kill left; `recovery` says what that was.

        Raises `UsageError` when there is no run, and `StoreError` when another process is writing
        it.
        """
        require_run(directory)
        return cls(directory, segment_bytes_max=segment_bytes_max)

    async def append(self, trajectory: Trajectory) -> None:
        """Record a finished rollout. When this returns, it survives `kill -9` of every process.

        Raises `StoreError` when it is not recorded: its id is taken, the disk is full, the store
        is closed. When cancelled, it may be recorded all the same.
        """
        await self._slots.acquire()
        if self._closing:
            self._slots.release()
            raise StoreError(
                f"Rollout {trajectory.id!r} was handed in after {self.directory} was closed.",
                fix="Close the store after the last rollout has ended.",
            )
        done = asyncio.get_running_loop().create_future()
        self._handed_in.put(Append(trajectory=trajectory, done=done))
        await done

    async def close(self) -> None:
        """Commit what was handed in, sync and close. Closing twice is fine.

        Raises `StoreError` when records may not have reached the disk.
        """
        first = not self._closing
        self._closing = True
        if first:
            self._handed_in.put(None)
        # The thread ends and unlocks by itself even when this wait is cancelled.
        await asyncio.to_thread(self._thread.join, CLOSE_S_MAX)
        if self._thread.is_alive():
            raise StoreError(
                f"{self.directory}: the disk did not take the last records in {CLOSE_S_MAX:.0f} s.",
                fix="Look after that file system; the run can be opened again.",
            )
        if first and self._writer.failure is not None:
            raise self._writer.failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _settle_soon(self, settled: Settled) -> None:
        """Called by the writer's thread: once for a group, because each call wakes the loop."""
        loop = settled[0][0].done.get_loop()
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(self._settle, settled)

    def _settle(self, settled: Settled) -> None:
        for item, refusal in settled:
            self._slots.release()
            if item.done.done():
                continue  # whoever waited was cancelled
            if refusal is None:
                item.done.set_result(None)
            else:
                item.done.set_exception(refusal)


def _lock(directory: Path) -> int:
    """Take the writer's lock: a descriptor that holds it, also over this process's death."""
    path = directory / LOCK_FILE
    with refusing_files(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise StoreError(
                f"{directory} is being written by process {holder or 'unknown'}.",
                fix="Wait for it or stop it, or name another run directory.",
            ) from None
        except BaseException:
            os.close(lock)
            raise
    return lock
