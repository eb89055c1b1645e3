"""The files of one sandbox, from outside: every request is answered by the supervisor inside.

The host never opens a path of the sandbox. Paths are resolved below the sandbox's own root, links
too; content is that of regular files only. What may take long (a huge directory, a tree) comes in
slices that this side asks for one by one, so memory stays bounded on both sides and the supervisor
goes on keeping the deadlines of programs. See native/inside.c and native/cursors.c.
"""

import asyncio
import errno
import os
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tiltyard.core.errors import SandboxFileError, TreeError
from tiltyard.core.execution import MIB
from tiltyard.core.files import (
    PATH_BYTES_MAX,
    WORKSPACE,
    Entry,
    FileStatus,
    Links,
    Specials,
    TreeLimits,
    TreeTotals,
)
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.file_frames import (
    CURSORS_MAX,
    number,
    parse_bytes,
    parse_entries,
    parse_refusal,
    parse_removed,
    parse_status,
)
from tiltyard.sandbox.offloop import in_thread
from tiltyard.sandbox.protocol import CHUNK_BYTES_MAX, Frame, FrameType, ProtocolError, text
from tiltyard.sandbox.supervisor import Supervisor
from tiltyard.sandbox.tree_check import TreeCheck
from tiltyard.sandbox.tree_sinks import DirectorySink, TarSink, TreeReceiver
from tiltyard.sandbox.tree_sources import directory_records, slices, tar_records

READ_BYTES_MAX = 16 * MIB
ENTRIES_MAX = 200_000
"""Of one listing, unless the caller says otherwise."""
REMOVE_TIMEOUT_S = 60.0
TREE_LIMITS = TreeLimits()
_OFFSET_MAX = 2**62
"""Far past any file, and a chunk more is still an offset to the kernel."""


@dataclass(slots=True)
class _Cursor:
    """A place that the supervisor keeps for one request in slices."""

    number: int
    open: bool = True
    """Until the supervisor has said that it is done with it."""


class Files:
    """The files of one sandbox; `sandbox.files` is one.

    Relative paths are below the workspace. In names, bytes that are no UTF-8 appear as surrogate
    escapes, as `os.fsdecode` makes them. Every request raises `SandboxFileError`, with `path` and,
    where the system refused, `errno`; after the sandbox's end `SandboxClosed` or `SandboxDied`;
    and `ValueError` for a number that cannot be.
    """

    def __init__(
        self, *, id_: SandboxId, supervisor: Supervisor, check_open: Callable[[], None]
    ) -> None:
        self._id = id_
        self._supervisor = supervisor
        self._check_open = check_open
        self._free = set(range(CURSORS_MAX))
        self._cursors = asyncio.Semaphore(CURSORS_MAX)
        self._stills = 0
        self._may_ask = asyncio.Event()
        self._may_ask.set()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Holds requests back, also the next slices of those that go on, until it is left.

        What was asked before is done when the supervisor answers anything that is asked after.
        """
        self._stills += 1
        self._may_ask.clear()
        try:
            yield
        finally:
            self._stills -= 1
            if not self._stills:
                self._may_ask.set()

    async def write(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Writes a regular file, in place or new, with the directories above it.

        Through a link it writes what the link leads to. What the file held is lost even when the
        disk is full; a write over 1 MiB that fails half-way leaves the part that was written.
        """
        await self._write(path, content, mode=mode, append=False)

    async def append(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Adds to the end of a regular file; makes it like `write` when there is none.

        What was there before is never lost; of what is added, a part may stay when the disk fills.
        """
        await self._write(path, content, mode=mode, append=True)

    async def read(
        self,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        bytes_max: int = READ_BYTES_MAX,
    ) -> bytes:
        """Reads a regular file from `offset`: `length` bytes, fewer where it ends, None all of it.

        More than `bytes_max` bytes are refused. While a program writes to the file or replaces it,
        pieces of 1 MiB may be from before and after.
        """
        if not 0 <= offset <= _OFFSET_MAX or bytes_max < 0:
            raise ValueError(f"sandbox {self._id}: offset {offset}, bytes_max {bytes_max}")
        if length is not None and not 0 <= length <= bytes_max:
            raise ValueError(f"sandbox {self._id}: length {length}, bytes_max {bytes_max}")
        whole = text(self._path(path))
        parts: list[bytes] = []
        size = 0
        while True:
            wanted = CHUNK_BYTES_MAX if length is None else min(length - size, CHUNK_BYTES_MAX)
            fields = struct.pack("<QI", min(offset + size, _OFFSET_MAX), wanted) + whole
            reply = await self._ask(FrameType.READ, fields, path)
            with self._protocol():
                at_end, content = parse_bytes(reply.body)
            parts.append(content)
            size += len(content)
            if size > bytes_max:
                raise SandboxFileError(
                    f"sandbox {self._id}: {path!r} is over {bytes_max} bytes.",
                    fix="raise bytes_max, or read a part with offset and length.",
                    path=path,
                )
            if at_end or not content or size == length:
                return b"".join(parts)

    async def stat(self, path: str, *, follow_links: bool = True) -> FileStatus:
        """Tells of anything that has a name; of a link itself when it is not followed."""
        fields = number(follow_links) + text(self._path(path))
        reply = await self._ask(FrameType.STAT, fields, path)
        with self._protocol():
            return parse_status(reply.body)

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = False) -> None:
        """Makes a directory. With `parents` also those above it, and one that is there is fine."""
        fields = number(_permissions(mode)) + number(parents) + text(self._path(path))
        await self._ask(FrameType.MKDIR, fields, path)

    async def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Gives a file or directory another name, at once: a link itself, not what it leads to.

        What has the new name is replaced, as by rename(2), unless `replace` is false. Not across
        the sandbox's file systems (/dev/shm is one), nor for a directory of the image.
        """
        fields = number(replace) + text(self._path(source)) + text(self._path(target))
        await self._ask(FrameType.RENAME, fields, source)

    async def chmod(self, path: str, mode: int) -> None:
        """Sets the permissions of a regular file or directory, following links."""
        fields = number(_permissions(mode)) + text(self._path(path))
        await self._ask(FrameType.CHMOD, fields, path)

    async def symlink(self, path: str, target: str) -> None:
        """Makes a symbolic link at `path`; `target` is kept as it is, and means a place inside."""
        raw = _encoded(target)
        if not target or "\0" in target or raw is None or len(raw) > PATH_BYTES_MAX:
            raise SandboxFileError(
                f"sandbox {self._id}: {target[:200]!r} is no target for a link", path=path
            )
        await self._ask(FrameType.SYMLINK, text(target) + text(self._path(path)), path)

    async def remove(
        self, path: str, *, recursive: bool = False, timeout_s: float = REMOVE_TIMEOUT_S
    ) -> int:
        """Removes a file, link or empty directory, with `recursive` a directory with all in it.

        Returns how many names are gone. It follows no link. A tree into which programs write faster
        than it goes is given up after `timeout_s`; what cannot be removed stops it half-way.
        """
        due = asyncio.get_running_loop().time() + timeout_s
        fields = number(recursive) + text(self._path(path))
        removed = 0
        async with aclosing(self._slices(FrameType.REMOVE, fields, path)) as replies:
            async for body in replies:
                with self._protocol():
                    more, removed = parse_removed(body)
                if more and asyncio.get_running_loop().time() >= due:
                    raise SandboxFileError(
                        f"sandbox {self._id}: {path!r} is not empty after {timeout_s:g} s; "
                        f"{removed} names are removed.",
                        fix="end the programs that write into it, or raise timeout_s.",
                        path=path,
                    )
        return removed

    async def list(
        self, path: str = WORKSPACE, *, entries_max: int = ENTRIES_MAX
    ) -> tuple[Entry, ...]:
        """Lists a directory, unsorted. More than `entries_max` names are refused."""
        found: list[Entry] = []
        async with aclosing(self._slices(FrameType.LIST, text(self._path(path)), path)) as replies:
            async for body in replies:
                with self._protocol():
                    _, entries = parse_entries(body)
                found += entries
                if len(found) > entries_max:
                    raise SandboxFileError(
                        f"sandbox {self._id}: {path!r} has over {entries_max} names.",
                        fix="raise entries_max.",
                        path=path,
                    )
        return tuple(found)

    async def upload(
        self, tree: Path | BinaryIO, path: str = WORKSPACE, *, limits: TreeLimits = TREE_LIMITS
    ) -> TreeTotals:
        """Writes a tree into the directory `path`, which is made when it is missing.

        `tree` is a directory of the host, or an uncompressed tar stream open for reading (it may be
        hostile; hard links and special files are refused). Files are written in place over what has
        their name, directories that are there keep their mode, links replace links. No link inside
        the sandbox is followed below `path`. Permissions and whole seconds of times are kept.

        Raises `TreeError`, naming the entry: those before it are whole, it may be cut short.
        """
        what = f"sandbox {self._id}: upload to {path[:200]!r}"
        check = TreeCheck(limits, what=what)
        whole = text(self._path(path))
        if isinstance(tree, Path):
            pieces = slices(directory_records(tree, check))
        else:
            pieces = slices(tar_records(tree, check))
        type_, last = FrameType.TREE_WRITE, False
        try:
            async with self._cursor() as cursor:
                while not last:
                    records, last = await in_thread(partial(next, pieces))
                    fields = number(cursor.number) + number(last) + whole + records
                    await self._ask(type_, fields, path, tree=what)
                    type_, whole = FrameType.TREE_PUT, b""
                cursor.open = False
        finally:
            await in_thread(pieces.close)
        return check.totals()

    async def download(
        self,
        path: str,
        tree: Path | BinaryIO,
        *,
        limits: TreeLimits = TREE_LIMITS,
        links: Links = Links.REFUSE,
        specials: Specials = Specials.REFUSE,
    ) -> TreeTotals:
        """Fetches everything below the directory `path`.

        `tree` is a directory of the host that does not exist or is empty, or a stream that an
        uncompressed tar is written to. What comes out is safe to unpack and to walk: regular files
        and directories under plain names, no owners, no set-user-id, of links only what `links`
        says. On the host nobody but the owner may write to it.

        Raises `TreeError`, naming the entry; the directory is then left as it was found, and a
        stream without an archive's end. A file that grows meanwhile is cut at its first size.
        """
        what = f"sandbox {self._id}: download of {path[:200]!r}"
        check = TreeCheck(limits, what=what)
        whole = text(self._path(path))
        sink = DirectorySink(tree, check) if isinstance(tree, Path) else TarSink(tree, check)
        receiver = TreeReceiver(check, sink, links=links, specials=specials)
        try:
            await in_thread(sink.start)
            async with aclosing(
                self._slices(FrameType.TREE_READ, whole, path, tree=what)
            ) as replies:
                async for body in replies:
                    with self._protocol():
                        await in_thread(partial(receiver.take, body))
            with self._protocol():
                return await in_thread(receiver.finish)
        except BaseException:
            await in_thread(receiver.discard)
            raise

    async def _write(self, path: str, content: bytes | str, *, mode: int, append: bool) -> None:
        raw = content.encode() if isinstance(content, str) else content
        whole = text(self._path(path))
        for at in range(0, max(len(raw), 1), CHUNK_BYTES_MAX):
            fields = struct.pack("<II", mode & 0o777, append or at > 0) + whole
            await self._ask(FrameType.WRITE, fields + text(raw[at : at + CHUNK_BYTES_MAX]), path)

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[_Cursor]:
        async with self._cursors:
            cursor = _Cursor(number=self._free.pop())
            try:
                yield cursor
            finally:
                if cursor.open:
                    self._supervisor.send(FrameType.END, 0, number(cursor.number))
                self._free.add(cursor.number)

    async def _slices(
        self, type_: FrameType, fields: bytes, path: str, *, tree: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The bodies of a request's answers, each asked for when the one before is dealt with."""
        async with self._cursor() as cursor:
            place = number(cursor.number)
            body, name = place + fields, type_.name
            while cursor.open:
                reply = await self._ask(type_, body, path, name=name, tree=tree)
                # Each kind of slice begins with whether there is more.
                cursor.open = reply.body[:4] != number(0)
                yield reply.body
                type_, body = FrameType.MORE, place

    async def _ask(
        self, type_: FrameType, body: bytes, path: str, *, name: str = "", tree: str = ""
    ) -> Frame:
        await self._may_ask.wait()
        self._check_open()
        reply = await self._supervisor.request(type_, body)
        if reply.type is not FrameType.ERROR:
            return reply
        with self._protocol():
            code, call, entry = parse_refusal(reply.body)
        full = "the disk limit is reached (bytes or inodes); " if code == errno.ENOSPC else ""
        why = f"{full}{call}: {os.strerror(code)}"
        if tree:
            place = f"{tree}: {entry[:500]!r}" if entry else tree
            raise TreeError(f"{place}: {why}", path=entry or path, errno=code)
        place = f"{path[:500]}/{entry[:500]}" if entry else path[:500]
        what = (name or type_.name).lower()
        raise SandboxFileError(
            f"sandbox {self._id}: {what} {place!r}: {why}", path=place, errno=code
        )

    @contextmanager
    def _protocol(self) -> Iterator[None]:
        """A supervisor that breaks the protocol loses its sandbox."""
        try:
            yield
        except ProtocolError:
            self._supervisor.abort()
            raise

    def _path(self, path: str) -> str:
        whole = path if path.startswith("/") else f"{WORKSPACE}/{path}"
        raw = _encoded(whole)
        if not path or "\0" in path or raw is None or len(raw) > PATH_BYTES_MAX:
            raise SandboxFileError(f"sandbox {self._id}: {path[:200]!r} is not a path", path=path)
        return whole


def _permissions(mode: int) -> int:
    if not 0 <= mode <= 0o777:
        raise ValueError(f"mode {mode:#o}: permissions are 0 to 0o777")
    return mode


def _encoded(path: str) -> bytes | None:
    """None for a string that stands for no bytes at all."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
