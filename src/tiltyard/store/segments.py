"""The segment files of a run: append for the one writer, bounded reads for everybody.

A write is complete, or the file is cut back to where it was; so whatever happens the file ends at
a record's boundary as long as this process lives. After a kill, `recovery` cuts the torn tail.
"""

import os
import re
from pathlib import Path
from typing import Self

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.store.frames import (
    MARKER_BYTES,
    SEGMENT_HEADER_BYTES,
    pack_record,
    pack_segment_header,
    unpack_segment_header,
)
from tiltyard.store.refusals import refused, refusing_files

SEGMENTS_DIRECTORY = "segments"
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""A new segment is begun after this. Recovery reads a segment at once, so it is bounded; a
segment is also what can be copied away while the run goes on."""


def segment_path(directory: Path, number: int) -> Path:
    return directory / SEGMENTS_DIRECTORY / f"{number:06d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """The numbers of the segments that are there, in order."""
    with refusing_files(directory / SEGMENTS_DIRECTORY):
        names = [path.name for path in (directory / SEGMENTS_DIRECTORY).iterdir()]
    return sorted(int(name[:-4]) for name in names if re.fullmatch(r"\d{6}\.seg", name))


class SegmentAppender:
    """The open end of one segment. Use from one thread."""

    def __init__(self, path: Path, number: int, descriptor: int, marker: bytes, size: int) -> None:
        self.path = path
        self.number = number
        self.size_bytes = size
        self._descriptor = descriptor
        self._marker = marker
        self.unsynced = False
        """Whether something appended may not outlive a power failure yet."""
        self._broken: StoreError | None = None

    @classmethod
    def create(cls, directory: Path, number: int) -> Self:
        """Begin a segment; its header is on the disk when this returns."""
        path = segment_path(directory, number)
        marker = os.urandom(MARKER_BYTES)
        with refusing_files(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        segment = cls(path, number, descriptor, marker, 0)
        try:
            segment._write(pack_segment_header(marker))
            segment.sync()
            _sync_directory(path.parent)
        except BaseException:
            segment._discard()
            raise
        return segment

    @classmethod
    def reopen(cls, directory: Path, number: int) -> Self:
        """Go on at the end of a segment; raises `ValueError` when its header is damaged."""
        path = segment_path(directory, number)
        marker = unpack_segment_header(read_frame(directory, number, 0, SEGMENT_HEADER_BYTES))
        with refusing_files(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            return cls(path, number, descriptor, marker, os.fstat(descriptor).st_size)

    def frame(self, payload: bytes) -> bytes:
        """The bytes to pass to `append` for this payload."""
        return pack_record(self._marker, payload)

    def append(self, frames: bytes | bytearray) -> None:
        """Write whole frames at the end. When this returns they outlive this process.

        Raises `StoreError`, and the file is as long as before.
        """
        if self._broken is not None:
            raise self._broken
        self._write(frames)

    def cut_back(self, size: int) -> None:
        """Take back what was appended after the file was `size` bytes long."""
        if self.size_bytes == size:
            return
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            # Appending here could leave a record that nobody acknowledged between two that were.
            self._broken = refused(error, self.path, size)
            raise self._broken from error
        self.size_bytes = size

    def sync(self) -> None:
        """Make everything appended outlive a power failure too."""
        if self.unsynced:
            with refusing_files(self.path):
                os.fdatasync(self._descriptor)
            self.unsynced = False

    def close(self) -> None:
        """Sync and close; the file is closed even when the sync is refused."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)

    def _write(self, content: bytes | bytearray) -> None:
        start, rest = self.size_bytes, memoryview(content)
        self.unsynced = True
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, self.size_bytes)
                self.size_bytes += written
                rest = rest[written:]
        except OSError as error:
            self.cut_back(start)
            raise refused(error, self.path, start) from error

    def _discard(self) -> None:
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)


def open_end(directory: Path) -> SegmentAppender:
    """The segment that a run's next record goes to: the newest, or the first one of all.

    `recovery` has been here before. A segment whose header is damaged is never appended to.
    """
    numbers = segment_numbers(directory)
    if not numbers:
        return SegmentAppender.create(directory, 1)
    try:
        return SegmentAppender.reopen(directory, numbers[-1])
    except ValueError:
        return SegmentAppender.create(directory, numbers[-1] + 1)


def require_run(directory: Path) -> None:
    """Raise `UsageError` unless `directory` holds a run's records."""
    with refusing_files(directory):
        there = (directory / SEGMENTS_DIRECTORY).is_dir()
        exists = directory.exists()
    if not there:
        what = "is not a run directory: it has no recorded rollouts" if exists else "does not exist"
        raise UsageError(f"{directory.absolute()} {what}.", fix="Name the directory of a run.")


def read_frame(directory: Path, number: int, offset: int, length: int) -> bytes:
    """`length` bytes at `offset` of a segment; fewer when the file ends before."""
    path = segment_path(directory, number)
    with refusing_files(path, offset), path.open("rb") as segment:
        segment.seek(offset)
        return segment.read(length)


def _sync_directory(path: Path) -> None:
    with refusing_files(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
