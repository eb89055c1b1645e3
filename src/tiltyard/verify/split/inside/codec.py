"""Values as bytes: exact builtin types, bounded, without recursion. Used on both sides.

This file also runs inside sandboxes, so it imports nothing of Tiltyard. What one side encodes there
may be hostile, so `decode` is written for that: every count is checked against the bytes that are
left before anything is built, nesting costs no stack, and few entries of one set or dict may have
the same hash, because equal hashes can be made on purpose and would cost quadratic time.

A value is a tag byte followed by: nothing (`N`, `T`, `F`); 8 bytes (`f`); a u32 length and bytes
(`i` two's complement, `s` UTF-8, `b`); or a u32 count and that many values (`l`, `t`, `S`, `Z`),
pairs for `d`. All integers are little-endian.
"""

import struct
from collections import Counter
from typing import Any

DEPTH_MAX = 64
NODES_MAX = 100_000
SAME_HASH_MAX = 16
BYTES_MAX = 8 * 1024 * 1024

_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}
_BUILD = {b"l": list, b"t": tuple, b"S": set, b"Z": frozenset}


class BadValueError(Exception):
    """A value that may not cross: another type than the exact builtins, too deep or too big."""


class TooLargeError(BadValueError):
    """A value of the right types that is over a bound."""


class BadBytesError(Exception):
    """Bytes that are no encoded value."""


def encode(value: Any) -> bytes:
    """Encodes a value. Raises `BadValueError` for anything but exact builtins within the bounds."""
    out = []
    size = nodes = 0
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        nodes += 1
        if depth > DEPTH_MAX or nodes > NODES_MAX:
            raise TooLargeError("nested too deep" if depth > DEPTH_MAX else "too many elements")
        kind = type(item)
        if kind in _SEQUENCES:
            # Copied once, so that what another thread does to it meanwhile cannot matter.
            items = list(item)
            piece = _SEQUENCES[kind] + _U32.pack(len(items))
            stack.extend((each, depth + 1) for each in reversed(items))
        elif kind is dict:
            pairs = list(item.items())
            piece = b"d" + _U32.pack(len(pairs))
            for pair in reversed(pairs):
                stack.extend(((pair[1], depth + 1), (pair[0], depth + 1)))
        else:
            piece = _encode_leaf(item, kind)
        size += len(piece)
        if size > BYTES_MAX:
            raise TooLargeError("too many bytes")
        out.append(piece)
    return b"".join(out)


def _encode_leaf(item: Any, kind: type) -> bytes:
    if item is None:
        return b"N"
    if kind is bool:
        return b"T" if item else b"F"
    if kind is float:
        return b"f" + _F64.pack(item)
    if kind is int:
        tag, raw = b"i", item.to_bytes(item.bit_length() // 8 + 1, "little", signed=True)
    elif kind is str:
        tag, raw = b"s", item.encode("utf-8", "surrogatepass")
    elif kind is bytes:
        tag, raw = b"b", item
    else:
        raise BadValueError(f"a value of type {kind.__name__}")
    return tag + _U32.pack(len(raw)) + raw


class _Open:
    """A container that is being read: its tag, what it has, and how many values it still lacks."""

    __slots__ = ("items", "lacking", "tag")

    def __init__(self, tag: bytes, lacking: int) -> None:
        self.tag = tag
        self.lacking = lacking
        self.items: list[Any] = []


def decode(data: bytes) -> Any:
    """Decodes one value that fills `data`. Raises `BadBytesError`."""
    try:
        value, at = _decode(data)
    except (struct.error, UnicodeDecodeError, TypeError, IndexError) as error:
        raise BadBytesError(str(error)) from None
    if at != len(data):
        raise BadBytesError("bytes after the value")
    return value


def _decode(data: bytes) -> tuple[Any, int]:
    at = nodes = 0
    stack: list[_Open] = []
    while True:
        tag = data[at : at + 1]
        at += 1
        nodes += 1
        if nodes > NODES_MAX or len(stack) > DEPTH_MAX:
            raise BadBytesError("over the bounds")
        if tag in _BUILD or tag == b"d":
            (count,) = _U32.unpack_from(data, at)
            at += 4
            lacking = count * 2 if tag == b"d" else count
            if lacking > len(data) - at:
                raise BadBytesError("a count past the end")
            stack.append(_Open(tag, lacking))
        else:
            value, at = _decode_leaf(tag, data, at)
            if not stack:
                return value, at
            stack[-1].items.append(value)
            stack[-1].lacking -= 1
        while stack[-1].lacking == 0:
            done = stack.pop()
            value = _build(done)
            if not stack:
                return value, at
            stack[-1].items.append(value)
            stack[-1].lacking -= 1


def _decode_leaf(tag: bytes, data: bytes, at: int) -> tuple[Any, int]:
    if tag == b"N":
        return None, at
    if tag in (b"T", b"F"):
        return tag == b"T", at
    if tag == b"f":
        return _F64.unpack_from(data, at)[0], at + 8
    if tag not in (b"i", b"s", b"b"):
        raise BadBytesError("an unknown tag")
    (length,) = _U32.unpack_from(data, at)
    at += 4
    raw = data[at : at + length]
    if len(raw) != length:
        raise BadBytesError("a length past the end")
    at += length
    if tag == b"i":
        return int.from_bytes(raw, "little", signed=True), at
    return (raw.decode("utf-8", "surrogatepass") if tag == b"s" else bytes(raw)), at


def _build(done: _Open) -> Any:
    if done.tag == b"d":
        keys = done.items[::2]
        _check_hashes(keys)
        return dict(zip(keys, done.items[1::2], strict=True))
    if done.tag in (b"S", b"Z"):
        _check_hashes(done.items)
    return _BUILD[done.tag](done.items)


def _check_hashes(entries: list[Any]) -> None:
    if len(entries) > SAME_HASH_MAX:
        (_, most), *_ = Counter(map(hash, entries)).most_common(1)
        if most > SAME_HASH_MAX:
            raise BadBytesError("too many equal hashes")


def frame(payload: bytes) -> bytes:
    """A payload with its length in front."""
    return _U32.pack(len(payload)) + payload
