"""The framed protocol: whatever comes in, however it is cut, ends in frames or `ProtocolError`."""

import contextlib
import itertools
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.files import Entry, FileKind
from tiltyard.sandbox.file_frames import (
    parse_bytes,
    parse_entries,
    parse_records,
    parse_refusal,
    parse_removed,
    parse_status,
)
from tiltyard.sandbox.protocol import (
    BODY_BYTES_MAX,
    Frame,
    FrameReader,
    FrameType,
    ProgramLimits,
    ProtocolError,
    SpawnFlag,
    frame,
    limits_field,
    parse_error,
    parse_exit,
    parse_u32,
    spawn_body,
    text,
    texts,
)

FRAMES = st.builds(
    Frame,
    type=st.sampled_from(FrameType),
    flags=st.integers(0, 255),
    id=st.integers(0, 2**32 - 1),
    body=st.binary(max_size=200),
)
LIMITS = ProgramLimits(
    wall_s=1.5, cpu_s=2, output_bytes_max=3, open_files=4, processes=5, address_space_bytes=6
)


def chunks(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[one:other] for one, other in itertools.pairwise(places)]


@given(frames=st.lists(FRAMES, max_size=6), cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_frames_survive_any_cutting(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame(each.type, each.id, each.body, each.flags) for each in frames)
    reader = FrameReader()
    assert [got for chunk in chunks(stream, cuts) for got in reader.feed(chunk)] == frames


@given(garbage=st.lists(st.binary(max_size=64), max_size=8))
def test_garbage_is_frames_or_a_protocol_error(garbage: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for block in garbage:
            for got in reader.feed(block):
                assert isinstance(got, Frame)
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IBBHI", BODY_BYTES_MAX + 1, FrameType.STDOUT, 0, 0, 1),
        struct.pack("<IBBHI", 0, 200, 0, 0, 1),
        struct.pack("<IBBHI", 0, FrameType.STDOUT, 0, 1, 1),
    ],
    ids=["too long", "unknown type", "not zero"],
)
def test_a_bad_header_is_refused_at_once(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(FrameReader().feed(header))


PARSERS: list[Callable[[bytes], Any]] = [
    parse_exit,
    parse_error,
    parse_bytes,
    parse_entries,
    parse_records,
    parse_refusal,
    parse_removed,
    parse_status,
    parse_u32,
]


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(body=st.binary(max_size=120))
def test_a_hostile_body_is_parsed_or_refused(parse: Callable[[bytes], Any], body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        parse(body)


@given(code=st.integers(-(2**31), 2**31 - 1))
def test_any_errno_has_words(code: int) -> None:
    errno, call = parse_error(struct.pack("<i", code) + text("open"))
    assert (errno, call) == (code, "open")
    assert os.strerror(errno)


def test_entries_keep_names_that_are_no_text() -> None:
    names = [b"plain", b"new\nline", b"\xff\xfe", "caf\u00e9".encode()]
    body = struct.pack("<II", 0, len(names))
    body += b"".join(struct.pack("<IQ", 0o100644, 7) + text(name) for name in names)
    more, entries = parse_entries(body)
    assert not more
    assert [os.fsencode(entry.name) for entry in entries] == names
    assert entries[0] == Entry(name="plain", mode=0o100644, size_bytes=7)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (0o100644, FileKind.FILE),
        (0o041777, FileKind.DIRECTORY),
        (0o120777, FileKind.LINK),
        (0o010644, FileKind.FIFO),
        (0o140755, FileKind.SOCKET),
        (0o020666, FileKind.DEVICE),
        (0o060660, FileKind.DEVICE),
    ],
)
def test_kinds_of_files(mode: int, kind: FileKind) -> None:
    assert Entry(name="x", mode=mode, size_bytes=0).kind is kind


def test_exit_is_read_field_by_field() -> None:
    times = 1_500_000, 200_000, 50_000
    body = struct.pack("<iIQQQQQQQQI", 256, 2, *times, 4, 10, 20, 512, 1024, 9) + text("x")
    raw = parse_exit(body)
    assert (raw.status, raw.wall_s, raw.cpu_s) == (256, 1.5, 0.25)
    assert (raw.memory_peak_bytes, raw.stdout_bytes, raw.stderr_bytes) == (4096, 10, 20)
    assert (raw.io_read_bytes, raw.io_written_bytes, raw.group) == (512, 1024, 9)


def test_limits_are_in_the_supervisors_order() -> None:
    assert struct.unpack("<IIQIIQ", limits_field(LIMITS)) == (1500, 2, 3, 4, 5, 6)


def test_a_spawn_that_fits_no_frame_is_refused() -> None:
    def body(argument: str) -> bytes:
        return spawn_body(
            argv=["x", argument],
            variables=texts([]),
            cwd="/",
            stdin=b"",
            limits=LIMITS,
            flags=SpawnFlag.NONE,
        )

    assert len(body("a" * 1000)) > 1000
    with pytest.raises(ValueError, match="bytes together"):
        body("a" * BODY_BYTES_MAX)


def test_strings_keep_bytes_that_are_no_text() -> None:
    assert texts(["a", os.fsdecode(b"\xff")]) == (
        struct.pack("<I", 2) + struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"\xff"
    )
