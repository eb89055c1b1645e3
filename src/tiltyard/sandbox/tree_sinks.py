"""Where a tree from a sandbox goes on the host: a new directory, or a tar stream.

What arrives was written by hostile code. Only entries that `TreeCheck` let pass come here, and
nothing depends on that alone: files are created anew, never opened, below a directory that was
empty, and links are made when everything else is there, so no path can lead through one.
"""

import os
import shutil
import tarfile
from pathlib import Path
from typing import BinaryIO, Protocol

from tiltyard.core.files import Links, Specials, TreeTotals
from tiltyard.sandbox.file_frames import Head, RecordKind, parse_records
from tiltyard.sandbox.protocol import ProtocolError
from tiltyard.sandbox.tree_check import TreeCheck, refused_kind
from tiltyard.sandbox.tree_sources import MTIME_S_MAX, host_failure

_BLOCK_BYTES = tarfile.BLOCKSIZE


class Sink(Protocol):
    """Takes a tree entry by entry."""

    def start(self) -> None:
        """Gets ready; before it nothing is touched, after it `finish` or `discard` is called."""
        ...

    def begin(self, head: Head) -> None:
        """Takes an entry; a file's content follows by `write`, then `end_file`."""
        ...

    def write(self, content: bytes) -> None: ...

    def end_file(self) -> None: ...

    def finish(self) -> None:
        """The tree is whole."""
        ...

    def discard(self) -> None:
        """The tree will not be whole; idempotent."""
        ...


class TreeReceiver:
    """Judges what a supervisor sends, and hands it on."""

    def __init__(self, check: TreeCheck, sink: Sink, *, links: Links, specials: Specials) -> None:
        self._check = check
        self._sink = sink
        self._links = links
        self._specials = specials
        self._left = 0
        """Of the content of the file at hand."""

    def take(self, body: bytes) -> None:
        """Takes one frame of records. Raises `TreeError`, naming the entry."""
        _, records = parse_records(body)
        for record in records:
            if isinstance(record, bytes):
                self._content(record)
            elif self._left:
                raise ProtocolError("an entry in the middle of a file's content")
            else:
                self._entry(record)

    def finish(self) -> TreeTotals:
        if self._left:
            raise ProtocolError("a tree that ends in the middle of a file")
        self._sink.finish()
        return self._check.totals()

    def discard(self) -> None:
        self._sink.discard()

    def _content(self, content: bytes) -> None:
        if not 0 < len(content) <= self._left:
            raise ProtocolError("content that belongs to no file")
        self._sink.write(content)
        self._left -= len(content)
        if not self._left:
            self._sink.end_file()

    def _entry(self, head: Head) -> None:
        if head.kind is RecordKind.LINK and self._links is Links.KEEP:
            self._check.keep_link(head)
        elif head.kind in {RecordKind.LINK, RecordKind.SPECIAL}:
            wish = self._links if head.kind is RecordKind.LINK else self._specials
            if wish.value != "skip":
                raise self._check.refusal(head.path, refused_kind(head.kind))
            self._check.skip(head)
            return
        else:
            self._check.add(head)
        self._sink.begin(head)
        if head.kind is RecordKind.FILE:
            self._left = head.size_bytes
            if not self._left:
                self._sink.end_file()


class DirectorySink:
    """A directory of the host that does not exist yet, or is empty."""

    def __init__(self, root: Path, check: TreeCheck) -> None:
        self._root = root
        self._check = check
        self._links: list[Head] = []
        self._file = -1
        self._head = Head(kind=RecordKind.DIRECTORY, path="", mode=0)
        self._made = False
        self._top = -1

    def start(self) -> None:
        root = self._root
        with host_failure(self._check, str(root)):
            try:
                root.mkdir()
                self._made = True
            except FileExistsError:
                with os.scandir(root) as found:
                    if next(found, None) is not None:
                        raise self._check.refusal(str(root), "it is not empty") from None
            self._top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def begin(self, head: Head) -> None:
        self._head = head
        with host_failure(self._check, head.path):
            if head.kind is RecordKind.LINK:
                self._links.append(head)
            elif head.kind is RecordKind.DIRECTORY:
                os.mkdir(_raw(head.path), head.mode & 0o755 | 0o700, dir_fd=self._top)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                mode = head.mode & 0o755 | 0o600
                self._file = os.open(_raw(head.path), flags, mode, dir_fd=self._top)

    def write(self, content: bytes) -> None:
        with host_failure(self._check, self._head.path):
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def end_file(self) -> None:
        file, self._file = self._file, -1
        mtime_s = min(max(self._head.mtime_s, 0), MTIME_S_MAX)
        with host_failure(self._check, self._head.path):
            try:
                os.utime(file, (mtime_s, mtime_s))
            finally:
                os.close(file)

    def finish(self) -> None:
        for head in self._links:
            with host_failure(self._check, head.path):
                os.symlink(_raw(head.target), _raw(head.path), dir_fd=self._top)
        self._close()

    def discard(self) -> None:
        """Leaves the directory as it was found."""
        if self._top < 0:
            return
        self._close()
        if self._made:
            shutil.rmtree(self._root, ignore_errors=True)
            return
        for left in self._root.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()

    def _close(self) -> None:
        for fd in (self._file, self._top):
            if fd >= 0:
                os.close(fd)
        self._file = self._top = -1


class TarSink:
    """An uncompressed pax archive with what any unpacker may be trusted with.

    No owners, no odd modes, no entry that `TreeCheck` refused.
    """

    def __init__(self, stream: BinaryIO, check: TreeCheck) -> None:
        self._stream = stream
        self._check = check
        self._path = ""
        self._written = 0

    def start(self) -> None:
        """The stream is the caller's, and open."""

    def begin(self, head: Head) -> None:
        self._path = head.path
        entry = tarfile.TarInfo(head.path)
        entry.mode = head.mode & 0o755
        entry.mtime = min(max(head.mtime_s, 0), MTIME_S_MAX)
        entry.size = head.size_bytes
        if head.kind is RecordKind.DIRECTORY:
            entry.type = tarfile.DIRTYPE
        elif head.kind is RecordKind.LINK:
            entry.type = tarfile.SYMTYPE
            entry.linkname = head.target
        self.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def write(self, content: bytes) -> None:
        with host_failure(self._check, self._path):
            rest = memoryview(content)
            while rest:
                rest = rest[self._stream.write(rest) :]
        self._written += len(content)

    def end_file(self) -> None:
        self.write(bytes(-self._written % _BLOCK_BYTES))

    def finish(self) -> None:
        self.write(bytes(2 * _BLOCK_BYTES))
        self.write(bytes(-self._written % tarfile.RECORDSIZE))

    def discard(self) -> None:
        """What is in the stream stays there, and lacks the mark of an archive's end."""


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
