"""The daemon's part of copying: files as bytes of the connection, trees from and to directories.

A tree does not go over the connection. The daemon is a process of the same user on the same
machine, so it reads and writes the directory itself, once it has made sure that it sees the one
that is meant.
"""

import asyncio
import errno
from pathlib import Path

from tiltyard.cli.yard.connection import Connection
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
)
from tiltyard.core.errors import SandboxFileError, UsageError
from tiltyard.core.files import Specials, TreeTotals
from tiltyard.sandbox.supervised import Sandbox

FileRequest = Write | Read | Look | Upload | Download
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}


async def serve_file(sandbox: Sandbox, request: FileRequest, connection: Connection) -> None:
    """Does it, and answers. When the client goes away, what is not done yet is not done."""
    match request:
        case Write():
            content = await connection.receive_content(bytes_max=FILE_BYTES_MAX)
            await sandbox.files.write(request.path, content, mode=request.mode)
            await connection.say(Done())
        case Read():
            content = await sandbox.files.read(request.path, bytes_max=FILE_BYTES_MAX)
            await connection.say(Done())
            await connection.send_content(content)
        case Look():
            await connection.say(await _look(sandbox, request.path))
        case Upload():
            tree = await asyncio.to_thread(_same, request.tree)
            work = sandbox.files.upload(tree, request.path)
            await connection.say(_copied(await connection.unless_gone(work)))
        case Download():
            tree = await asyncio.to_thread(_same, request.tree)
            work = sandbox.files.download(
                request.path, tree, links=request.links, specials=Specials.SKIP
            )
            await connection.say(_copied(await connection.unless_gone(work)))


async def _look(sandbox: Sandbox, path: str) -> Seen:
    try:
        status = await sandbox.files.stat(path)
    except SandboxFileError as error:
        if error.errno in _NOT_THERE:
            return Seen(kind=None)
        raise
    return Seen(kind=status.kind)


def _same(tree: Tree) -> Path:
    """The directory, as long as this process sees the one that the client saw."""
    path = Path(tree.path)
    try:
        status = path.stat()
    except OSError:
        status = None
    if status is None or (status.st_dev, status.st_ino) != (tree.device, tree.inode):
        raise UsageError(
            f"the yard daemon does not see the directory {path} as you do.",
            fix="it was started in another mount namespace: end it with `tiltyard sandbox stop`.",
        )
    return path


def _copied(totals: TreeTotals) -> Copied:
    return Copied(
        files=totals.files,
        content_bytes=totals.content_bytes,
        skipped=totals.skipped,
        skipped_paths=[each.encode("utf-8", "replace").decode() for each in totals.skipped_paths],
    )
