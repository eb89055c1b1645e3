"""Trees on the host, as records for the supervisor to write from: a directory or a tar stream.

Both are read piece by piece as the records are asked for; nothing is held but one piece. They block
on files, so they are driven from a thread.
"""

import os
import stat
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from tiltyard.core.errors import TreeError
from tiltyard.sandbox.file_frames import (
    SLICE_BYTES_MAX,
    SLICE_RECORDS_MAX,
    Head,
    RecordKind,
    content_record,
    head_record,
)
from tiltyard.sandbox.tree_check import TreeCheck

PIECE_BYTES = 64 * 1024
HEADER_BYTES_MAX = 1024 * 1024
"""Between two pieces of content a tar stream may have so much of names and attributes."""
MTIME_S_MAX = 2**33 - 1
"""What a plain tar header holds."""
_TAR_BUFFER_BYTES = 64 * 1024


def slices(records: Iterator[bytes]) -> Generator[tuple[bytes, bool], None, None]:
    """Joins records into frames' worth of them; each with whether it is the last.

    What came before an entry that is refused is still given, so that it arrives whole.
    """
    pending: list[bytes] = []
    size = 0
    refused: TreeError | None = None
    try:
        for record in records:
            full = size + len(record) > SLICE_BYTES_MAX or len(pending) == SLICE_RECORDS_MAX
            if pending and full:
                yield b"".join(pending), False
                pending, size = [], 0
            pending.append(record)
            size += len(record)
    except TreeError as error:
        refused = error
    if pending or refused is None:
        yield b"".join(pending), refused is None
    if refused is not None:
        raise refused


@contextmanager
def host_failure(check: TreeCheck, path: str) -> Iterator[None]:
    """Turns a failure of the host's own files into an error that names the entry."""
    try:
        yield
    except OSError as error:
        why = f"on the host: {error.strerror or error}"
        raise check.refusal(path, why, errno=error.errno) from error


def directory_records(root: Path, check: TreeCheck) -> Iterator[bytes]:
    """Everything below a directory of the host; it follows no link but `root` itself.

    Bytes that are no UTF-8 pass through names unchanged, whatever the host's locale.
    """
    top = os.fsencode(root)
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        shown = above.decode("utf-8", "surrogateescape")
        whole = os.path.join(top, above)  # noqa: PTH118 - bytes
        with host_failure(check, shown), os.scandir(whole) as found:
            names = sorted(entry.name for entry in found)
        for name in names:
            path = above + b"/" + name if above else name
            shown = path.decode("utf-8", "surrogateescape")
            with host_failure(check, shown):
                status = os.lstat(os.path.join(top, path))  # noqa: PTH118
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            yield from _entry_records(top, path, shown, status, check)


def _entry_records(
    top: bytes, path: bytes, shown: str, status: os.stat_result, check: TreeCheck
) -> Iterator[bytes]:
    whole = os.path.join(top, path)  # noqa: PTH118
    mode, mtime_s = status.st_mode & 0o777, _bounded(status.st_mtime)
    if stat.S_ISDIR(status.st_mode):
        yield _taken(check, Head(kind=RecordKind.DIRECTORY, path=shown, mode=mode))
    elif stat.S_ISLNK(status.st_mode):
        with host_failure(check, shown):
            target = os.readlink(whole).decode("utf-8", "surrogateescape")  # noqa: PTH115
        yield _taken(check, Head(kind=RecordKind.LINK, path=shown, mode=mode, target=target))
    elif stat.S_ISREG(status.st_mode):
        with host_failure(check, shown):
            fd = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            size = os.fstat(fd).st_size
            head = Head(
                kind=RecordKind.FILE, path=shown, mode=mode, size_bytes=size, mtime_s=mtime_s
            )
            yield _taken(check, head)
            yield from _content_records(file, shown, size, check)
    else:
        raise check.refusal(shown, "neither a file, a directory nor a symbolic link")


def tar_records(stream: BinaryIO, check: TreeCheck) -> Iterator[bytes]:
    """Everything in an uncompressed tar stream, which may come from anywhere."""
    metered = MeteredStream(stream, check)
    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", metered), mode="r|", bufsize=_TAR_BUFFER_BYTES
        ) as archive:
            while True:
                member = archive.next()
                if member is None:
                    return
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every one
                metered.path = member.name
                metered.renew()
                for record in _member_records(archive, member, check):
                    yield record
                    metered.renew()
    except (tarfile.TarError, ArithmeticError, LookupError, ValueError, RecursionError) as error:
        why = f"after it the stream is no tar, or is cut short ({error})"
        raise check.refusal(metered.path, why) from None


def _member_records(
    archive: tarfile.TarFile, member: tarfile.TarInfo, check: TreeCheck
) -> Iterator[bytes]:
    path = member.name.removeprefix("./")
    if member.isdir() and path in {"", "."}:
        return
    head = _member_head(member, path, check)
    check.require_plain(head)
    for directory in _missing_above(path, check):
        yield _taken(check, Head(kind=RecordKind.DIRECTORY, path=directory, mode=0o755))
    # A directory that was made for what is in it may be named itself later on.
    if head.kind is not RecordKind.DIRECTORY or not check.knows_directory(path):
        yield _taken(check, head)
    if head.kind is RecordKind.FILE:
        content = archive.extractfile(member)
        if content is not None:
            yield from _content_records(content, path, member.size, check)


def _member_head(member: tarfile.TarInfo, path: str, check: TreeCheck) -> Head:
    mode, mtime_s = member.mode & 0o777, _bounded(member.mtime)
    if member.isdir():
        return Head(kind=RecordKind.DIRECTORY, path=path, mode=mode)
    if member.issym():
        return Head(kind=RecordKind.LINK, path=path, mode=0o777, target=member.linkname)
    if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or member.issparse():
        kind = "a hard link" if member.islnk() else "a device, FIFO, sparse or unknown entry"
        raise check.refusal(path, f"{kind}; only files, directories and symbolic links are taken")
    if member.size < 0:
        raise check.refusal(path, f"a file of {member.size} bytes")
    return Head(kind=RecordKind.FILE, path=path, mode=mode, size_bytes=member.size, mtime_s=mtime_s)


def _missing_above(path: str, check: TreeCheck) -> Iterator[str]:
    """The directories above a path that the archive has not named."""
    at = path.find("/")
    while at > 0:
        if not check.knows(path[:at]):
            yield path[:at]
        at = path.find("/", at + 1)


def _taken(check: TreeCheck, head: Head) -> bytes:
    check.add(head)
    if head.kind is RecordKind.LINK and (not head.target or "\0" in head.target):
        raise check.refusal(head.path, "a link without a proper target")
    try:
        return head_record(head)
    except UnicodeEncodeError:
        raise check.refusal(head.path, "the link's target is no text") from None


def _content_records(file: IO[bytes], path: str, size: int, check: TreeCheck) -> Iterator[bytes]:
    left = size
    while left:
        with host_failure(check, path):
            piece = file.read(min(PIECE_BYTES, left))
        if not piece:
            raise check.refusal(path, "it shrank while it was read")
        left -= len(piece)
        yield content_record(piece)


def _bounded(mtime_s: float) -> int:
    return int(min(max(mtime_s, 0), MTIME_S_MAX)) if mtime_s == mtime_s else 0  # noqa: PLR0124 - NaN


class MeteredStream:
    """A stream that fails when too much is asked of it without a piece of content coming out.

    What `tarfile` reads as names and attributes it holds in memory whole, and past the end of a
    stream it may go on asking for what a header announced: each request counts, answered or not.
    """

    def __init__(self, stream: BinaryIO, check: TreeCheck) -> None:
        self._stream = stream
        self._check = check
        self._left = 0
        self.path = ""
        """The entry that was read last."""
        self.renew()

    def renew(self) -> None:
        self._left = HEADER_BYTES_MAX

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise self._too_much()
        with host_failure(self._check, self.path):
            return self._stream.read(size)

    def _too_much(self) -> TreeError:
        why = f"after it come over {HEADER_BYTES_MAX} bytes of names and attributes"
        return self._check.refusal(self.path, why)
