"""The bodies of file requests and their answers. Pure: bytes in, values out.

The frames themselves are in `protocol`, the whole description in native/protocol.h.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tiltyard.core.files import Entry, FileStatus
from tiltyard.sandbox.protocol import ProtocolError, take_text, text

CURSORS_MAX = 4
SLICE_BYTES_MAX = 256 * 1024
SLICE_RECORDS_MAX = 512
_ENTRY = struct.Struct("<IQ")
_STATUS = struct.Struct("<IIIIQqI")
_HEAD = struct.Struct("<IIQq")


class RecordKind(IntEnum):
    """Kinds of records in a tree's stream; the same numbers as RECORD_* in native/protocol.h."""

    DIRECTORY = 1
    FILE = 2
    BYTES = 3
    LINK = 4
    SPECIAL = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One entry of a tree; the content of a file follows it."""

    kind: RecordKind
    """Never `BYTES`."""
    path: str
    """Below the tree's root. Undecodable bytes appear as surrogate escapes."""
    mode: int
    """Permissions only."""
    size_bytes: int = 0
    mtime_s: int = 0
    target: str = ""


def number(value: int) -> bytes:
    """Encodes a u32 field."""
    return struct.pack("<I", value)


def head_record(head: Head) -> bytes:
    """Encodes an entry."""
    return b"".join(
        (
            _HEAD.pack(head.kind, head.mode, head.size_bytes, head.mtime_s),
            text(head.path),
            text(head.target),
        )
    )


def content_record(content: bytes) -> bytes:
    """Encodes a piece of the content of the file before it."""
    return number(RecordKind.BYTES) + text(content)


def parse_records(body: bytes) -> tuple[bool, list[Head | bytes]]:
    """Decodes RECORDS into whether there are more, and entries with their content in order."""
    try:
        (more,) = struct.unpack_from("<I", body)
        return bool(more), list(_records(body))
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"malformed RECORDS: {error}") from None


def _records(body: bytes) -> Iterator[Head | bytes]:
    at = 4
    while at < len(body):
        (kind,) = struct.unpack_from("<I", body, at)
        if kind == RecordKind.BYTES:
            content, at = take_text(body, at + 4)
            yield content
            continue
        kind, mode, size, mtime = _HEAD.unpack_from(body, at)
        path, at = take_text(body, at + _HEAD.size)
        target, at = take_text(body, at)
        yield Head(
            kind=RecordKind(kind),
            path=path.decode("utf-8", "surrogateescape"),
            mode=mode & 0o7777,
            size_bytes=size,
            mtime_s=mtime,
            target=target.decode("utf-8", "surrogateescape"),
        )


def parse_bytes(body: bytes) -> tuple[bool, bytes]:
    """Decodes BYTES into whether the file ended, and the bytes."""
    try:
        (at_end,) = struct.unpack_from("<I", body)
        content, _ = take_text(body, 4)
    except struct.error as error:
        raise ProtocolError(f"malformed BYTES: {error}") from None
    return bool(at_end), content


def parse_entries(body: bytes) -> tuple[bool, tuple[Entry, ...]]:
    """Decodes ENTRIES into whether there are more, and the entries."""
    entries = []
    try:
        more, count = struct.unpack_from("<II", body)
        at = 8
        for _ in range(count):
            mode, size = _ENTRY.unpack_from(body, at)
            name, at = take_text(body, at + _ENTRY.size)
            entries.append(
                Entry(name=name.decode("utf-8", "surrogateescape"), mode=mode, size_bytes=size)
            )
    except struct.error as error:
        raise ProtocolError(f"malformed ENTRIES: {error}") from None
    return bool(more), tuple(entries)


def parse_status(body: bytes) -> FileStatus:
    """Decodes STATUS."""
    try:
        mode, uid, gid, links, size, seconds, nanoseconds = _STATUS.unpack_from(body)
        target, _ = take_text(body, _STATUS.size)
    except struct.error as error:
        raise ProtocolError(f"malformed STATUS: {error}") from None
    return FileStatus(
        mode=mode,
        size_bytes=size,
        mtime_s=seconds + nanoseconds / 1e9,
        uid=uid,
        gid=gid,
        hard_links=links,
        target=target.decode("utf-8", "surrogateescape") if target else None,
    )


def parse_removed(body: bytes) -> tuple[bool, int]:
    """Decodes REMOVED into whether there is more, and how many names are gone so far."""
    try:
        more, removed = struct.unpack_from("<IQ", body)
    except struct.error as error:
        raise ProtocolError(f"malformed REMOVED: {error}") from None
    return bool(more), removed


def parse_refusal(body: bytes) -> tuple[int, str, str]:
    """Decodes ERROR of a file request into errno, the failing call and a tree's entry, if any."""
    try:
        (code,) = struct.unpack_from("<i", body)
        call, at = take_text(body, 4)
        entry, _ = take_text(body, at)
    except struct.error as error:
        raise ProtocolError(f"malformed ERROR: {error}") from None
    return code, call.decode("utf-8", "replace"), entry.decode("utf-8", "surrogateescape")
