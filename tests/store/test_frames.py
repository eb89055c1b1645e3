"""In damaged segments the intact records are found, and nothing else is believed."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from tiltyard.store.frames import (
    SEGMENT_HEADER_BYTES,
    Damage,
    Frame,
    pack_record,
    pack_segment_header,
    scan,
    unpack_record,
    unpack_segment_header,
)

MARKER = b"\x8f marker"
PAYLOADS = (b"first", b"", b"the third one" * 3)


def segment_of(payloads: Sequence[bytes]) -> bytes:
    return pack_segment_header(MARKER) + b"".join(pack_record(MARKER, one) for one in payloads)


def found_in(segment: bytes) -> list[Frame | Damage]:
    return list(scan(segment, MARKER, SEGMENT_HEADER_BYTES))


def payloads_in(segment: bytes) -> list[bytes]:
    return [found.payload for found in found_in(segment) if isinstance(found, Frame)]


@given(st.lists(st.binary(max_size=200)))
def test_all_records_are_found_in_order(payloads: list[bytes]) -> None:
    segment = segment_of(payloads)
    found = found_in(segment)
    assert [frame.payload for frame in found if isinstance(frame, Frame)] == payloads
    assert all(isinstance(frame, Frame) for frame in found)
    for frame in found:
        assert unpack_record(segment[frame.offset : frame.offset + frame.length_bytes]) in payloads


def test_a_segment_cut_anywhere_gives_the_whole_records_and_one_torn_tail() -> None:
    segment = segment_of(PAYLOADS)
    ends = [
        SEGMENT_HEADER_BYTES + len(segment_of(PAYLOADS[:n])[SEGMENT_HEADER_BYTES:])
        for n in range(4)
    ]
    for cut in range(SEGMENT_HEADER_BYTES, len(segment)):
        whole = sum(end <= cut for end in ends) - 1
        found = found_in(segment[:cut])
        assert payloads_in(segment[:cut]) == list(PAYLOADS[:whole])
        torn = [one for one in found if isinstance(one, Damage)]
        if cut in ends:
            assert torn == []
        else:
            assert [(one.torn, one.offset + one.length_bytes) for one in torn] == [(True, cut)]


def test_a_flipped_bit_costs_the_record_it_is_in_and_no_other() -> None:
    segment = segment_of(PAYLOADS)
    first_end, second_end = (len(segment_of(PAYLOADS[:n])) for n in (1, 2))
    for position in range(first_end, second_end):
        for bit in range(8):
            flipped = bytearray(segment)
            flipped[position] ^= 1 << bit
            found = found_in(bytes(flipped))
            assert payloads_in(bytes(flipped)) == [PAYLOADS[0], PAYLOADS[2]]
            assert [one.offset for one in found if isinstance(one, Damage)] == [first_end]


@given(st.binary(min_size=1), st.integers(min_value=0))
def test_garbage_anywhere_is_never_taken_for_a_record(garbage: bytes, where: int) -> None:
    segment = segment_of(PAYLOADS)
    position = SEGMENT_HEADER_BYTES + where % (len(segment) - SEGMENT_HEADER_BYTES)
    spoiled = segment[:position] + garbage + segment[position + len(garbage) :]
    assert set(payloads_in(spoiled)) <= set(PAYLOADS)


def test_a_record_printed_by_a_program_is_not_taken_for_one() -> None:
    forged = pack_record(b"\x8f guess ", b"a reward of 1000")
    segment = segment_of([b"a", forged, b"c"])
    damaged = bytearray(segment)
    damaged[len(segment_of([b"a"]))] ^= 1
    assert payloads_in(bytes(damaged)) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"TILT", "ends within its header"),
        (b"SQLite format 3\0 and more", "damaged or not Tiltyard's"),
        (pack_segment_header(MARKER)[:-1] + b"?", "damaged"),
    ],
)
def test_a_bad_segment_header_is_refused(head: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack_segment_header(head)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pack_record(MARKER, b"abc")[:-1], "2 of 3 bytes"),
        (pack_record(MARKER, b"abc") + b"x", "4 of 3 bytes"),
        (pack_record(MARKER, b"abc")[:-1] + b"x", "checksum"),
        (b"\0" * 40, "header is damaged"),
        (b"", "header is damaged"),
    ],
)
def test_a_bad_record_is_refused(frame: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack_record(frame)
