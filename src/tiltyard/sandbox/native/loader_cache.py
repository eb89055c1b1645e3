"""The loader's cache, by which programs find their shared libraries: the machine's own, with more.

A Python that was built with a shared library and lives outside the loader's default directories
knows its library by a path of the host, which does not exist in a sandbox. LD_LIBRARY_PATH would
lead to it, but every program then looks there first, for each of its libraries and in several
subdirectories, and all that run see the variable. An entry in the cache costs nobody anything.

What is read and written is glibc's `/etc/ld.so.cache` (`struct cache_file_new` in its
sysdeps/generic/dl-cache.h): a head, entries sorted downwards by name, their strings, and an
extension. The cache of 2.31 and older may have another one, of an older format, before it. Nothing
here reads a file.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD = struct.Struct("=20sIIB3xI12x")
"""Magic, how many entries, how long the strings are, flags, where the extension is (0: none)."""
_ENTRY = struct.Struct("=iIIIQ")
"""Flags of its machine, where its name and its path are, and two that mean some machines only."""
_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_HEAD_BYTES, _OLD_ENTRY_BYTES = 16, 12
_EXTENSION_MAGIC = 0xEAA42174
_SECTION = struct.Struct("=IIII")
"""What it is, flags, where it is, how long it is."""
_OFFSETS_OF_STRINGS = 1
"""The kind of section that lists where strings are: names of subdirectories for some CPUs."""


class CacheUnreadable(ValueError):
    """It is no cache, or of a format that is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """Where a library is. The same name may be there for several kinds of machine."""

    name: str
    path: str
    machine: int


def read_entries(cache: bytes) -> list[CacheEntry]:
    """What a cache holds, in its own order. Raises `CacheUnreadable`."""
    cache = _newer(cache)
    try:
        return [
            CacheEntry(name=_string(cache, name), path=_string(cache, path), machine=machine)
            for machine, name, path, _, _ in _entries(cache)
        ]
    except (struct.error, ValueError) as error:
        raise CacheUnreadable(f"an entry cannot be read: {error}") from None


def lacking(
    entries: Iterable[CacheEntry], libraries: Mapping[str, str], *, machine: int
) -> dict[str, str]:
    """Those of a Python's libraries (paths by name) that programs do not find by a cache already.

    A Python of a whole distribution (conda's) brings its own libz and libtinfo. First in the cache
    they would be everybody's, and the system's shell may not even start with them. Only libpython
    is always the Python's: the system may have one of the same name that is another release.
    """
    found = {entry.name for entry in entries if entry.machine == machine}
    own = "libpython"
    return {name: at for name, at in libraries.items() if name not in found or name.startswith(own)}


def with_first(cache: bytes, libraries: Mapping[str, str], *, machine: int) -> bytes:
    """A cache in which these libraries (paths by name) are found before others of their names.

    `machine` is that of another entry of the same kind. Raises `CacheUnreadable`.
    """
    try:
        return _with_first(_newer(cache), libraries, machine)
    except (struct.error, ValueError) as error:
        raise CacheUnreadable(f"it cannot be read: {error}") from None


def _with_first(cache: bytes, libraries: Mapping[str, str], machine: int) -> bytes:
    added = _ENTRY.size * len(libraries)  # by so much everything after the entries moves
    count, strings_bytes, flags, extension = _HEAD.unpack_from(cache)[1:]
    entries = [
        (_string(cache, name), _ENTRY.pack(kind, name + added, path + added, *rest))
        for kind, name, path, *rest in _entries(cache)
    ]
    tail = bytearray(cache[_HEAD.size + count * _ENTRY.size :])
    if extension:
        _move_extension(tail, cache, extension, added)
    strings = bytearray()
    for name, path in libraries.items():
        at = len(cache) + added + len(strings)
        strings += f"{name}\0{path}\0".encode()
        entry = _ENTRY.pack(machine, at, at + len(name.encode()) + 1, 0, 0)
        place = (n for n, (other, _) in enumerate(entries) if _order(other) <= _order(name))
        entries.insert(next(place, len(entries)), (name, entry))
    head = _HEAD.pack(
        *(_MAGIC, len(entries), strings_bytes + len(strings), flags),
        extension + added if extension else 0,
    )
    return b"".join((head, *(entry for _, entry in entries), tail, strings))


def _newer(cache: bytes) -> bytes:
    """The cache of the newer format, without an older one before it."""
    start = 0
    if cache.startswith(_OLD_MAGIC) and len(cache) >= _OLD_HEAD_BYTES:
        (count,) = struct.unpack_from("=I", cache, _OLD_HEAD_BYTES - 4)
        start = _OLD_HEAD_BYTES + count * _OLD_ENTRY_BYTES
        start += -start % 8
    newer = cache[start:]
    if not newer.startswith(_MAGIC) or len(newer) < _HEAD.size:
        raise CacheUnreadable("it does not begin as glibc's cache does.")
    if start and _HEAD.unpack_from(newer)[4]:
        # It counts from the older cache's beginning; only a glibc told to still writes both.
        raise CacheUnreadable("it has an extension, and an older cache before it.")
    return newer


def _entries(cache: bytes) -> list[tuple[int, int, int, int, int]]:
    count = _HEAD.unpack_from(cache)[1]
    ends = range(_HEAD.size, _HEAD.size + count * _ENTRY.size + 1, _ENTRY.size)
    return [_ENTRY.unpack(cache[start:end]) for start, end in pairwise(ends)]


def _string(cache: bytes, at: int) -> str:
    return cache[at : cache.index(b"\0", at)].decode("utf-8", "surrogateescape")


def _move_extension(tail: bytearray, cache: bytes, extension: int, added: int) -> None:
    """Moves what the extension says of places by `added`; `tail` ends where the cache does."""
    before = len(cache) - len(tail)
    magic, count = struct.unpack_from("=II", cache, extension)
    if magic != _EXTENSION_MAGIC:
        raise ValueError("its extension is of another format")
    for number in range(count):
        at = extension + 8 + number * _SECTION.size
        kind, flags, start, length = _SECTION.unpack_from(cache, at)
        _SECTION.pack_into(tail, at - before, kind, flags, start + added, length)
        for place in range(start, start + length, 4) if kind == _OFFSETS_OF_STRINGS else ():
            (string,) = struct.unpack_from("=I", cache, place)
            struct.pack_into("=I", tail, place - before, string + added)


def _order(name: str) -> list[tuple[int, int]]:
    """By what entries are sorted: numbers by their value, and after every other character."""
    parts = re.findall(r"[0-9]+|[^0-9]", name, re.DOTALL)
    return [(1, int(part)) if part.isdecimal() else (0, ord(part)) for part in parts]
