"""Values as bytes: what is right comes back the same, and what is hostile is refused."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tiltyard.verify.inside import codec
from verify.values import VALUES, described


@given(value=VALUES)
@pytest.mark.slow
def test_what_is_encoded_comes_back_the_same(value: Any) -> None:
    assert described(codec.decode(codec.encode(value))) == described(value)


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 127, 128, -128, -129, 2**63, -(2**63), 2**64, 10**4000),
        *(0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324),
        *("", "\ud800", "\x00", "café", "😀"),
        *(b"", bytes(range(256))),
        *([], (), {}, set(), frozenset()),
        *([[]], ((),), {(): ()}, {frozenset(): set()}),
        {True: 1, 2: False, None: [None]},
    ],
    ids=repr,
)
def test_edges(value: Any) -> None:
    assert described(codec.decode(codec.encode(value))) == described(value)


@given(raw=st.binary(max_size=200))
@pytest.mark.slow
def test_hostile_bytes_are_a_value_or_refused(raw: bytes) -> None:
    try:
        value = codec.decode(raw)
    except codec.BadBytesError:
        return
    assert described(codec.decode(codec.encode(value))) == described(value)


@given(value=VALUES, place=st.integers(0, 10_000), byte=st.integers(0, 255))
@pytest.mark.slow
def test_a_changed_byte_is_a_value_or_refused(value: Any, place: int, byte: int) -> None:
    raw = bytearray(codec.encode(value))
    raw[place % len(raw)] = byte
    try:
        codec.decode(bytes(raw))
    except codec.BadBytesError:
        return


@given(value=VALUES, cut=st.integers(0, 10_000), more=st.binary(min_size=1, max_size=3))
@pytest.mark.slow
def test_a_piece_or_more_than_one_value_is_refused(value: Any, cut: int, more: bytes) -> None:
    raw = codec.encode(value)
    for wrong in (raw[: cut % len(raw)], raw + more):
        with pytest.raises(codec.BadBytesError):
            codec.decode(wrong)


def counted(tag: bytes, count: int, rest: bytes = b"") -> bytes:
    return tag + struct.pack("<I", count) + rest


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"?",
        b"i",
        counted(b"i", 2**32 - 1),
        counted(b"s", 1, b"\xff"),
        counted(b"l", 2**32 - 1),
        counted(b"d", 2**31),
        counted(b"d", 1, b"N"),
        counted(b"S", 1, counted(b"l", 0)),
        counted(b"d", 1, counted(b"S", 0) + b"N"),
        counted(b"l", 1) * 100 + b"N",
        counted(b"l", codec.NODES_MAX + 1, b"N" * (codec.NODES_MAX + 1)),
        b"f1234567",
    ],
    ids=lambda raw: repr(raw[:12]),
)
def test_what_is_out_of_bounds_is_refused(raw: bytes) -> None:
    with pytest.raises(codec.BadBytesError):
        codec.decode(raw)


def test_a_count_costs_nothing_until_its_values_are_there() -> None:
    with pytest.raises(codec.BadBytesError, match="past the end"):
        codec.decode(counted(b"l", 10_000_000, b"N" * 1000))


PRIME = (1 << 61) - 1


@pytest.mark.parametrize(
    "member",
    [
        lambda n: n * PRIME,
        lambda n: (0,) * 40 + (n * PRIME,),
        lambda n: (1 << 31_000) + n * PRIME,
        lambda n: (frozenset({n * PRIME}), n * PRIME),
    ],
    ids=["numbers", "tuples", "long numbers", "sets in tuples"],
)
@pytest.mark.parametrize("tag", [b"S", b"Z", b"d"])
def test_equal_hashes_are_bounded(tag: bytes, member: Callable[[int], Any]) -> None:
    """With the same hash each new member is compared with all before it: quadratic time for us."""
    few, many = range(codec.SAME_HASH_MAX), range(codec.SAME_HASH_MAX + 1)
    between = b"N" if tag == b"d" else b""
    for numbers, allowed in ((few, True), (many, False)):
        raw = counted(
            tag, len(numbers), b"".join(codec.encode(member(n)) + between for n in numbers)
        )
        if allowed:
            assert len(codec.decode(raw)) == len(numbers)
        else:
            with pytest.raises(codec.BadBytesError, match="equal hashes"):
                codec.decode(raw)


def test_honest_sets_of_any_size_pass() -> None:
    for value in (set(range(-20_000, 20_000)), {str(n): n for n in range(20_000)}):
        assert codec.decode(codec.encode(value)) == value


class Liar(int):
    """An int that is none."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "value",
    [
        Liar(1),
        [Liar(1)],
        {Liar(1): 1},
        {1: Liar(1)},
        (object(),),
        range(3),
        1j,
        int,
        bytearray(b"x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_do_not_cross(value: Any) -> None:
    with pytest.raises(codec.BadValueError, match="a value of type"):
        codec.encode(value)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_too_large_is_said_to_be() -> None:
    assert codec.decode(codec.encode(deep(codec.DEPTH_MAX - 1))) == deep(codec.DEPTH_MAX - 1)
    itself: list[Any] = []
    itself.append(itself)
    for value in (
        deep(codec.DEPTH_MAX + 1),
        deep(100_000),
        itself,
        [0] * (codec.NODES_MAX + 1),
        "x" * (codec.BYTES_MAX + 1),
        ["x" * (codec.BYTES_MAX // 2)] * 3,
    ):
        with pytest.raises(codec.TooLargeError):
            codec.encode(value)


@settings(max_examples=30)
@given(levels=st.integers(1, 200))
def test_what_can_be_encoded_can_be_decoded(levels: int) -> None:
    try:
        raw = codec.encode(deep(levels))
    except codec.TooLargeError:
        assert levels > codec.DEPTH_MAX - 1
        return
    assert codec.decode(raw) == deep(levels)
