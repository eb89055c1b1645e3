"""The loader's cache: read, and written with libraries that come first."""

import struct

import pytest
from hypothesis import given, strategies

from tiltyard.sandbox.native.image import LOADER_CACHE
from tiltyard.sandbox.native.loader_cache import (
    CacheEntry,
    CacheUnreadable,
    lacking,
    read_entries,
    with_first,
)

HERE = 0x303
NAMES = ("libz.so.10", "libz.so.9", "libz.so.1", "libpython3.11.so.1.0", "libc.so.6", "ld.so.2")
"""As ldconfig sorts them: downwards, and numbers by their value."""


def cache_of(*names: str, subdirectory: str = "x86-64-v3") -> bytes:
    """As glibc writes it, with an extension that names a subdirectory."""
    strings, places = b"", []
    start = 48 + 24 * len(names)
    for name in names:
        places.append((start + len(strings), start + len(strings) + len(name) + 1))
        strings += f"{name}\0/lib/{name}\0".encode()
    of_subdirectory = start + len(strings)
    strings += subdirectory.encode() + b"\0"
    strings += bytes(-len(strings) % 4)
    extension = start + len(strings)
    head = b"glibc-ld.so.cache1.1" + struct.pack(
        "=IIB3xI12x", len(names), len(strings), 2, extension
    )
    entries = b"".join(struct.pack("=iIIIQ", HERE, *place, 0, 0) for place in places)
    sections = struct.pack("=IIIIIII", 0xEAA42174, 1, 1, 0, extension + 24, 4, of_subdirectory)
    return head + entries + strings + sections


def subdirectory_of(cache: bytes) -> bytes:
    (extension,) = struct.unpack_from("=I", cache, 32)
    _, _, _, _, place, _ = struct.unpack_from("=IIIIII", cache, extension)
    (string,) = struct.unpack_from("=I", cache, place)
    return cache[string : cache.index(b"\0", string)]


def test_a_python_lends_its_own_libraries_to_nobody_who_has_them() -> None:
    """First in the cache, a Python's libtinfo would be the system's shell's too."""
    brought = ("libz.so.1", "libz.so.2", "libpython3.11.so.1.0")
    libraries = {name: f"/own/{name}" for name in brought}
    entries = read_entries(cache_of(*NAMES))
    assert set(lacking(entries, libraries, machine=HERE)) == {"libz.so.2", "libpython3.11.so.1.0"}
    assert lacking(entries, libraries, machine=HERE + 1) == libraries


def test_what_is_added_is_found_first_and_all_else_as_before() -> None:
    before = cache_of(*NAMES)
    after = with_first(before, {"libc.so.6": "/own/c", "libz.so.2": "/own/z"}, machine=HERE)
    paths = [(entry.name, entry.path) for entry in read_entries(after)]
    assert paths == [
        ("libz.so.10", "/lib/libz.so.10"),
        ("libz.so.9", "/lib/libz.so.9"),
        ("libz.so.2", "/own/z"),
        ("libz.so.1", "/lib/libz.so.1"),
        ("libpython3.11.so.1.0", "/lib/libpython3.11.so.1.0"),
        ("libc.so.6", "/own/c"),
        ("libc.so.6", "/lib/libc.so.6"),
        ("ld.so.2", "/lib/ld.so.2"),
    ]
    assert subdirectory_of(after) == subdirectory_of(before) == b"x86-64-v3"


# With no zeros before a number: `a.01` and `a.1` count as equal, and may stand in either order.
LIBRARIES = strategies.from_regex(r"lib([a-z.+_-]{1,3}|[1-9][0-9]?[a-z.]){1,3}", fullmatch=True)


@given(strategies.sets(LIBRARIES))
def test_the_order_is_the_same_whichever_comes_later(names: set[str]) -> None:
    paths = {name: f"/own/{name}" for name in sorted(names)}
    one_by_one = cache_of()
    for name, path in paths.items():
        one_by_one = with_first(one_by_one, {name: path}, machine=HERE)
    at_once = with_first(cache_of(), dict(reversed(paths.items())), machine=HERE)
    wanted = {CacheEntry(name=name, path=path, machine=HERE) for name, path in paths.items()}
    assert set(read_entries(at_once)) == wanted
    assert read_entries(at_once) == read_entries(one_by_one)


def test_an_older_cache_may_stand_before_it() -> None:
    old = b"ld.so-1.7.0\0" + struct.pack("=I", 3) + bytes(3 * 12)
    old += bytes(-len(old) % 8)
    newer = bytearray(cache_of(*NAMES))
    struct.pack_into("=I", newer, 32, 0)  # that glibc wrote no extension
    both = old + bytes(newer)
    assert read_entries(both) == read_entries(bytes(newer))
    assert with_first(both, {"liba": "/a"}, machine=HERE).startswith(b"glibc-ld.so.cache1.1")
    with pytest.raises(CacheUnreadable, match="older"):
        read_entries(old + cache_of(*NAMES))


@pytest.mark.parametrize("cache", [b"", b"ld.so-1.7.0", b"\x7fELF", bytes(100), cache_of("a")[:40]])
def test_what_is_no_cache_is_refused(cache: bytes) -> None:
    with pytest.raises(CacheUnreadable):
        read_entries(cache)
    with pytest.raises(CacheUnreadable):
        with_first(cache, {"liba": "/a"}, machine=HERE)


@given(strategies.data())
def test_a_broken_one_is_refused_or_read_and_nothing_else(data: strategies.DataObject) -> None:
    cache = bytearray(cache_of(*NAMES))
    for _ in range(data.draw(strategies.integers(1, 4))):
        cache[data.draw(strategies.integers(20, len(cache) - 1))] = data.draw(
            strategies.integers(0, 255)
        )
    broken = bytes(cache[: data.draw(strategies.integers(0, len(cache)))])
    for use in (read_entries, lambda it: with_first(it, {"liba": "/a"}, machine=HERE)):
        try:
            use(broken)
        except CacheUnreadable:
            continue


@pytest.mark.skipif(not LOADER_CACHE.is_file(), reason="this machine's loader has no cache")
def test_the_machines_own_is_one() -> None:
    cache = LOADER_CACHE.read_bytes()
    before = read_entries(cache)
    own = CacheEntry(name="libc.so.6", path="/own/libc.so.6", machine=before[0].machine)
    after = read_entries(with_first(cache, {own.name: own.path}, machine=own.machine))
    assert [entry for entry in after if entry != own] == before
    assert next(entry for entry in after if entry.name == own.name) == own
