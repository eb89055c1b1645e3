"""Copying files and trees between this machine and a sandbox, as `cp -r` does it."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiltyard.cli.yard.client import replied, using
from tiltyard.cli.yard.wire import (
    FILE_BYTES_MAX,
    Copied,
    Done,
    Download,
    Look,
    Read,
    Seen,
    Tree,
    Upload,
    Write,
    asked_for,
)
from tiltyard.core.errors import UsageError
from tiltyard.core.files import FileKind, Links

_REMOTE = re.compile(r"(sb-[0-9a-f]+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A path in a sandbox."""

    id: str
    path: str


def parse_end(words: str) -> Remote | Path:
    """What `cp` was given: `ID:path`, or a path of this machine."""
    found = _REMOTE.fullmatch(words)
    return Remote(id=found[1], path=found[2] or ".") if found else Path(words)


async def copy(directory: Path, source: str, target: str, *, links: Links) -> Copied | None:
    """Copies one way or the other; of a tree it tells what that held.

    What is copied onto a directory goes into it, under its own name. Raises `UsageError` when not
    exactly one end is a sandbox's.
    """
    with asked_for():
        match parse_end(source), parse_end(target):
            case Path() as local, Remote() as remote:
                return await _send(directory, local, remote)
            case Remote() as remote, Path() as local:
                return await _fetch(directory, remote, local, links=links)
            case _:
                raise UsageError(
                    "cp copies into a sandbox or out of one.", fix="write one side as ID:path."
                )


async def _send(directory: Path, local: Path, remote: Remote) -> Copied | None:
    path = remote.path
    if path.endswith("/") or await _kind(directory, remote) is FileKind.DIRECTORY:
        path = f"{path.rstrip('/')}/{(await asyncio.to_thread(local.resolve)).name}"
    if await asyncio.to_thread(local.is_dir):
        upload = Upload(id=remote.id, path=path, tree=await asyncio.to_thread(_tree, local))
        async with using(directory, remote.id, upload) as connection:
            return await replied(connection, Copied)
    content, mode = await asyncio.to_thread(_read, local)
    request = Write(id=remote.id, path=path, mode=mode)
    async with using(directory, remote.id, request) as connection:
        await connection.send_content(content)
        await replied(connection, Done)
    return None


async def _fetch(directory: Path, remote: Remote, local: Path, *, links: Links) -> Copied | None:
    name = remote.path.rstrip("/").rpartition("/")[2]
    into = await asyncio.to_thread(local.is_dir)
    if into and name in {"", ".", ".."}:
        raise UsageError(
            f"{remote.path!r} has no name to be copied under.", fix="name a target that is new."
        )
    target = local / name if into else local
    if await _kind(directory, remote) is FileKind.DIRECTORY:
        return await _fetch_tree(directory, remote, target, links=links)
    async with using(directory, remote.id, Read(id=remote.id, path=remote.path)) as connection:
        await replied(connection, Done)
        content = await connection.receive_content(bytes_max=FILE_BYTES_MAX)
    await asyncio.to_thread(_write, target, content)
    return None


async def _fetch_tree(directory: Path, remote: Remote, target: Path, *, links: Links) -> Copied:
    made = await asyncio.to_thread(_make, target)
    tree = await asyncio.to_thread(_tree, target)
    request = Download(id=remote.id, path=remote.path, tree=tree, links=links)
    try:
        async with using(directory, remote.id, request) as connection:
            return await replied(connection, Copied)
    except BaseException:
        if made:
            with suppress(OSError):  # it is not empty when the daemon is still removing
                await asyncio.to_thread(target.rmdir)
        raise


async def _kind(directory: Path, remote: Remote) -> FileKind | None:
    async with using(directory, remote.id, Look(id=remote.id, path=remote.path)) as connection:
        return (await replied(connection, Seen)).kind


def _tree(local: Path) -> Tree:
    try:
        whole = local.resolve(strict=True)
        status = whole.stat()
    except OSError as error:
        raise UsageError(f"{local} cannot be read: {error.strerror}.") from None
    return Tree(path=str(whole), device=status.st_dev, inode=status.st_ino)


def _make(local: Path) -> bool:
    """True when it was not there."""
    try:
        local.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"{local} cannot be made: {error.strerror}.") from None
    return True


def _read(local: Path) -> tuple[bytes, int]:
    """A file's content and its permissions."""
    try:
        status = local.stat()
        if status.st_size > FILE_BYTES_MAX:
            raise UsageError(
                f"{local} has {status.st_size} bytes; {FILE_BYTES_MAX} are the most for one file.",
                fix="copy the directory that it is in.",
            )
        return local.read_bytes(), status.st_mode & 0o777
    except OSError as error:
        raise UsageError(f"{local} cannot be read: {error.strerror}.") from None


def _write(target: Path, content: bytes) -> None:
    try:
        target.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from None
