"""A segment's bytes: how records are framed, and how a damaged file is read past its damage.

Theory of operation. A segment begins with a header that holds a random marker; each record begins
with that marker, its payload's length and checksum, and a checksum of these. So there are three
kinds of damage, and each costs no more than it must:

- The file ends inside a record: a writer was killed. Nothing follows it; it is a torn tail.
- A payload does not match its checksum: that record is lost, and its length leads to the next one.
- A record's header is damaged: the marker is looked for, and the next intact header taken.

The marker is random because payloads carry what untrusted programs printed. With a fixed one, a
program could print a whole record, and a scan past damage could take it for real.

Pure functions over bytes: no file is touched here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

_SEGMENT = struct.Struct("<8s8sI")
_RECORD = struct.Struct("<8sIII")
_MAGIC = b"TILTYRD1"

MARKER_BYTES = 8
SEGMENT_HEADER_BYTES = _SEGMENT.size
RECORD_HEADER_BYTES = _RECORD.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An intact record: where it lies in its segment, frame included, and what it carries."""

    offset: int
    length_bytes: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A stretch of a segment that holds no readable record."""

    offset: int
    length_bytes: int
    why: str
    torn: bool = False
    """True when it reaches to the end of the file as an interrupted write would leave it."""


def pack_segment_header(marker: bytes) -> bytes:
    """The first bytes of a segment; `marker` is `MARKER_BYTES` random bytes."""
    head = _MAGIC + marker
    return head + struct.pack("<I", crc32(head))


def unpack_segment_header(head: bytes) -> bytes:
    """The marker of a segment that begins with `head`; raises `ValueError` if it is damaged."""
    if len(head) < SEGMENT_HEADER_BYTES:
        raise ValueError("the segment ends within its header")
    magic, marker, checksum = _SEGMENT.unpack_from(head)
    if magic != _MAGIC or checksum != crc32(head[: SEGMENT_HEADER_BYTES - 4]):
        raise ValueError("the segment's header is damaged or not Tiltyard's")
    return bytes(marker)


def pack_record(marker: bytes, payload: bytes) -> bytes:
    """One framed record."""
    head = marker + struct.pack("<II", len(payload), crc32(payload))
    return head + struct.pack("<I", crc32(head)) + payload


def unpack_record(frame: bytes) -> bytes:
    """The payload of exactly one framed record; raises `ValueError` if it is not intact."""
    header = _header(frame, 0)
    if header is None:
        raise ValueError("the record's header is damaged")
    length, checksum = header
    payload = frame[RECORD_HEADER_BYTES:]
    if len(payload) != length:
        raise ValueError(f"the record is cut off: {len(payload)} of {length} bytes are there")
    if crc32(payload) != checksum:
        raise ValueError("the record does not match its checksum")
    return payload


def scan(segment: bytes, marker: bytes, start: int) -> Iterator[Frame | Damage]:
    """What lies in a segment from offset `start`, a record's boundary, up to its end, in order."""
    offset = start
    while offset < len(segment):
        found = _at(segment, marker, offset)
        yield found
        offset += found.length_bytes


def _at(segment: bytes, marker: bytes, offset: int) -> Frame | Damage:
    rest = len(segment) - offset
    header = _header(segment, offset)
    if header is None or segment[offset : offset + MARKER_BYTES] != marker:
        following = _next_header(segment, marker, offset + 1)
        if following is None:
            why = "no record begins here and none follows"
            return Damage(offset=offset, length_bytes=rest, why=why, torn=True)
        why = "the record's header is damaged"
        return Damage(offset=offset, length_bytes=following - offset, why=why)
    payload_bytes, checksum = header
    length = RECORD_HEADER_BYTES + payload_bytes
    if length > rest:
        # Not searched for a marker: what is there is one record's own payload.
        why = f"the record is cut off: {rest} of {length} bytes are there"
        return Damage(offset=offset, length_bytes=rest, why=why, torn=True)
    payload = segment[offset + RECORD_HEADER_BYTES : offset + length]
    if crc32(payload) != checksum:
        why = "the record does not match its checksum"
        return Damage(offset=offset, length_bytes=length, why=why)
    return Frame(offset=offset, length_bytes=length, payload=payload)


def _header(segment: bytes, offset: int) -> tuple[int, int] | None:
    """Payload length and checksum of the record header at `offset`; None if it is not intact."""
    if len(segment) - offset < RECORD_HEADER_BYTES:
        return None
    _, length, payload_checksum, checksum = _RECORD.unpack_from(segment, offset)
    head = segment[offset : offset + RECORD_HEADER_BYTES - 4]
    return (length, payload_checksum) if crc32(head) == checksum else None


def _next_header(segment: bytes, marker: bytes, start: int) -> int | None:
    offset = segment.find(marker, start)
    while offset != -1 and _header(segment, offset) is None:
        offset = segment.find(marker, offset + 1)
    return None if offset == -1 else offset
