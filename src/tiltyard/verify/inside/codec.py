"""Values as bytes: exact builtin types, bounded, without recursion. Used on both sides.

This file also runs inside sandboxes, so it imports nothing of Tiltyard. What one side encodes there
may be hostile, so `decode` is written for that: every count is checked against the bytes that are
left before anything is built, nesting costs no stack, and few entries of one set or dict may have
the same hash, because equal hashes can be made on purpose and would cost quadratic time.

A value is a tag byte followed by: nothing (`N`, `T`, `F`); 8 bytes (`f`); a u32 length and bytes
(`i` two's complement, `s` UTF-8, `b`); or a u32 count and that many values (`l`, `t`, `S`, `Z`),
pairs for `d`. All integers are little-endian.

Between a solution and ordinary tests more may cross, where both sides ask for it by giving the
functions that name and find objects: what stays where it is, under a number (`O`, and the three
values of a `Handle`), and a few builtin types as the values they are made of (`B`, `c`, `r`).
"""

import operator
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

DEPTH_MAX = 64
NODES_MAX = 100_000
SAME_HASH_MAX = 16
BYTES_MAX = 8 * 1024 * 1024

_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_SIZED = struct.Struct("<cI")
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}
_BUILD = {ord("l"): list, ord("t"): tuple, ord("S"): set, ord("Z"): frozenset}
_INT, _STR, _BYTES, _FLOAT, _DICT, _OBJECT = b"isbfdO"
_PARTS: dict[type, tuple[bytes, Callable[[Any], list[Any]]]] = {
    bytearray: (b"B", lambda value: [bytes(value)]),
    complex: (b"c", lambda value: [value.real, value.imag]),
    range: (b"r", lambda value: [value.start, value.stop, value.step]),
}
_FROM_PARTS: dict[int, tuple[tuple[type, ...], Callable[..., Any]]] = {
    ord("B"): ((bytes,), bytearray),
    ord("c"): ((float, float), complex),
    ord("r"): ((int, int, int), range),
}
_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}
_LEAVES = frozenset({int, str, bool, float, bytes, type(None)})


class BadValueError(Exception):
    """A value that may not cross: another type than the exact builtins, too deep or too big."""


class TooLargeError(BadValueError):
    """A value of the right types that is over a bound."""


class BadBytesError(Exception):
    """Bytes that are no encoded value."""


class Handle(NamedTuple):
    """What stays where it is, and is spoken of by a number."""

    number: int
    kind: str
    """The name of its type, for messages."""
    traits: str
    """What can be done with it, of words that its two sides agree on."""


def encode(value: Any, name: Callable[[Any], Handle | None] | None = None) -> bytes:
    """Encodes a value. Raises `BadValueError` for anything but exact builtins within the bounds.

    With `name`, what is none of them crosses as the handle that `name(it)` gives, if it gives one;
    but not as a member of a set or as a key, which would need an equality of its own there.
    """
    out: list[bytes] = []
    size = nodes = 0
    open_containers: list[Iterator[Any]] = [iter((value,))]
    holders = [b""]
    while open_containers:
        for item in open_containers[-1]:
            kind = type(item)
            inner: list[Any] | None = None
            if kind in _SEQUENCES:
                # Copied once, so that what another thread does to it meanwhile cannot matter.
                inner = list(item)
                piece = _SIZED.pack(_SEQUENCES[kind], len(inner))
            elif kind is dict:
                pairs = list(item.items())
                inner = [each for pair in pairs for each in pair]
                piece = _SIZED.pack(b"d", len(pairs))
            elif name is None or kind in _LEAVES:
                piece = _encode_leaf(item, kind)
            else:
                named = None if _among_keys(holders, open_containers) else name
                piece, inner = _encode_other(item, kind, named)
            size += len(piece)
            nodes += 1
            if size > BYTES_MAX:
                raise TooLargeError("too many bytes")
            if nodes > NODES_MAX:
                raise TooLargeError("too many elements")
            out.append(piece)
            if inner is not None:
                if inner and len(open_containers) > DEPTH_MAX:
                    raise TooLargeError("nested too deep")
                open_containers.append(iter(inner))
                holders.append(piece[:1])
                break
        else:
            open_containers.pop()
            holders.pop()
    return b"".join(out)


def _among_keys(holders: list[bytes], open_containers: list[Iterator[Any]]) -> bool:
    """Whether what is being encoded is in a set or in a key of a dict, however deep."""
    # Of a dict's keys and values, which alternate, an odd number is left after a key.
    return any(
        holder in (b"S", b"Z") or (holder == b"d" and operator.length_hint(items) % 2 == 1)
        for holder, items in zip(holders, open_containers, strict=True)
    )


def _encode_leaf(item: Any, kind: type) -> bytes:
    if kind is int:
        raw = item.to_bytes(item.bit_length() // 8 + 1, "little", signed=True)
        return _SIZED.pack(b"i", len(raw)) + raw
    if kind is str:
        raw = item.encode("utf-8", "surrogatepass")
        return _SIZED.pack(b"s", len(raw)) + raw
    if item is None:
        return b"N"
    if kind is bool:
        return b"T" if item else b"F"
    if kind is float:
        return b"f" + _F64.pack(item)
    if kind is bytes:
        return _SIZED.pack(b"b", len(item)) + item
    raise BadValueError(f"a value of type {kind.__name__}")


def _encode_other(
    item: Any, kind: type, name: Callable[[Any], Handle | None] | None
) -> tuple[bytes, list[Any]]:
    if kind in _PARTS:
        tag, parts = _PARTS[kind]
        return tag, parts(item)
    handle = None if name is None else name(item)
    if handle is None:
        raise BadValueError(f"a value of type {kind.__name__}")
    return b"O", list(handle)


def decode(data: bytes, find: Callable[[Handle], Any] | None = None) -> Any:
    """Decodes one value that fills `data`. Raises `BadBytesError`.

    With `find`, it may hold handles, for each of which `find(it)` gives what stands there instead.
    """
    try:
        value, at = _decode(data, find)
    except (struct.error, UnicodeDecodeError, TypeError, ValueError, IndexError) as error:
        raise BadBytesError(str(error)) from None
    if at != len(data):
        raise BadBytesError("bytes after the value")
    return value


class _Open:
    """A container that is being read: its tag, what it has, and how many values it still lacks."""

    __slots__ = ("items", "lacking", "tag")

    def __init__(self, tag: int, lacking: int) -> None:
        self.tag = tag
        self.lacking = lacking
        self.items: list[Any] = []


def _decode(data: bytes, find: Callable[[Handle], Any] | None) -> tuple[Any, int]:
    at = nodes = 0
    stack: list[_Open] = []
    while True:
        tag = data[at]
        at += 1
        nodes += 1
        if nodes > NODES_MAX or len(stack) > DEPTH_MAX:
            raise BadBytesError("over the bounds")
        if find is not None and (tag in _FROM_PARTS or tag == _OBJECT):
            lacking = 3 if tag == _OBJECT else len(_FROM_PARTS[tag][0])
            stack.append(_Open(tag, lacking))
            continue
        if tag in _BUILD or tag == _DICT:
            (count,) = _U32.unpack_from(data, at)
            at += 4
            lacking = count * 2 if tag == _DICT else count
            if lacking > len(data) - at:
                raise BadBytesError("a count past the end")
            opened = _Open(tag, lacking)
            if lacking:
                stack.append(opened)
                continue
            value = _build(opened, find)
        else:
            value, at = _decode_leaf(tag, data, at)
        while stack:
            holder = stack[-1]
            holder.items.append(value)
            holder.lacking -= 1
            if holder.lacking:
                break
            stack.pop()
            value = _build(holder, find)
        else:
            return value, at


def _decode_leaf(tag: int, data: bytes, at: int) -> tuple[Any, int]:
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag == _FLOAT:
        return _F64.unpack_from(data, at)[0], at + 8
    if tag not in (_INT, _STR, _BYTES):
        raise BadBytesError("an unknown tag")
    (length,) = _U32.unpack_from(data, at)
    at += 4
    end = at + length
    if end > len(data):
        raise BadBytesError("a length past the end")
    raw = data[at:end]
    if tag == _INT:
        return int.from_bytes(raw, "little", signed=True), end
    return (raw.decode("utf-8", "surrogatepass") if tag == _STR else raw), end


def _build(done: _Open, find: Callable[[Handle], Any] | None) -> Any:
    if find is not None and done.tag == _OBJECT:
        number, kind, traits = done.items
        if type(number) is not int or type(kind) is not str or type(traits) is not str:
            raise BadBytesError("a handle of other values")
        return find(Handle(number, kind, traits))
    if done.tag in _FROM_PARTS:
        types, build = _FROM_PARTS[done.tag]
        if tuple(map(type, done.items)) != types:
            raise BadBytesError("parts of other types")
        return build(*done.items)
    if done.tag == _DICT:
        keys = done.items[::2]
        _check_hashes(keys)
        return dict(zip(keys, done.items[1::2], strict=True))
    if done.tag in b"SZ":
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
