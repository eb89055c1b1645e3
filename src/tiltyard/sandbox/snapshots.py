"""Frozen files of a sandbox, and what a sandbox changed.

A snapshot is made while its sandbox is paused and stays as it is; any number of sandboxes fork from
it at about the cost of a new one, because they stand on it and copy nothing. It lives in memory, as
the sandbox's files do, until it is dropped or its provider closes; forks that live keep what they
stand on.
"""

import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from tiltyard.core.changes import ChangeKind, FileChange
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SnapshotId
from tiltyard.sandbox.protocol import ProtocolError

_HEAD = struct.Struct("<IIQI")
_KINDS = {1: ChangeKind.ADDED, 2: ChangeKind.CHANGED, 3: ChangeKind.DELETED}
_HAS_BEFORE, _HAS_AFTER, _LEFT_OUT = 1, 2, 4


class Keeper(Protocol):
    """Where a provider keeps its snapshots."""

    async def drop(self, snapshot_id: SnapshotId) -> None:
        """Gives a snapshot up. Raises `SandboxError` when there is none."""
        ...


class Snapshot:
    """Frozen files. Drop it when no more forks are wanted, or use `async with`."""

    def __init__(self, *, id_: SnapshotId, spec: SandboxSpec, keeper: Keeper) -> None:
        self.id = id_
        self.spec = spec
        """What a fork is made of: the sandbox's own spec, standing on this snapshot."""
        self._keeper = keeper
        self._dropped = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.drop()

    async def drop(self) -> None:
        """No new fork can be made from it; those that live go on. Idempotent."""
        if not self._dropped:
            self._dropped = True
            await self._keeper.drop(self.id)


def parse_changes(raw: bytes) -> tuple[FileChange, ...]:
    """Reads the records of native/differences.h. Raises `ProtocolError`."""
    try:
        return tuple(sorted(_changes(raw), key=lambda change: change.path))
    except (struct.error, KeyError, IndexError) as error:
        raise ProtocolError(f"the list of changes cannot be read: {error}") from None


def _changes(raw: bytes) -> Iterator[FileChange]:
    at = 0
    while at < len(raw):
        kind, mode, size, length = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        path = _cut(raw, at, length)
        at += length
        (flags,) = struct.unpack_from("<I", raw, at)
        at += 4
        contents = []
        for has in (_HAS_BEFORE, _HAS_AFTER):
            (length,) = struct.unpack_from("<I", raw, at)
            contents.append(_cut(raw, at + 4, length) if flags & has else None)
            at += 4 + length
        yield FileChange(
            kind=_KINDS[kind],
            path=path.decode("utf-8", "surrogateescape"),
            mode=mode,
            size_bytes=size,
            before=contents[0],
            after=contents[1],
            content_left_out=bool(flags & _LEFT_OUT),
        )


def _cut(raw: bytes, start: int, length: int) -> bytes:
    if start + length > len(raw):
        raise IndexError("it is cut short")
    return raw[start : start + length]
