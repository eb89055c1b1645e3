"""Tar streams on their way into a sandbox, from whoever: each is taken whole or refused by name."""

import contextlib
import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.errors import TreeError
from tiltyard.core.files import TreeLimits
from tiltyard.sandbox.file_frames import Head, RecordKind, number, parse_records
from tiltyard.sandbox.tree_check import TreeCheck
from tiltyard.sandbox.tree_sources import HEADER_BYTES_MAX, tar_records

SMALL = TreeLimits(entries_max=5, bytes_max=1000, path_bytes_max=50, depth_max=3)


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as writer:
        for entry, content in members:
            if entry.size:  # what it announces need not come
                stream.write(entry.tobuf(tarfile.PAX_FORMAT))
            else:
                entry.size = len(content)
                writer.addfile(entry, io.BytesIO(content))
    stream.seek(0)
    return stream


def member(name: str, type_: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = type_
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def records(stream: io.BytesIO, limits: TreeLimits = SMALL) -> Iterator[bytes]:
    return tar_records(stream, TreeCheck(limits, what="upload"))


def heads_of(stream: io.BytesIO) -> list[tuple[RecordKind, str]]:
    _, parsed = parse_records(number(0) + b"".join(records(stream)))
    return [(head.kind, head.path) for head in parsed if isinstance(head, Head)]


def test_an_archive_as_people_make_them() -> None:
    stream = archive(
        (member(".", tarfile.DIRTYPE), b""),
        (member("./a", tarfile.DIRTYPE), b""),
        (member("./a/f"), b"content"),
        (member("b/c/g"), b""),
        (member("b", tarfile.DIRTYPE), b""),
    )
    assert heads_of(stream) == [
        (RecordKind.DIRECTORY, "a"),
        (RecordKind.FILE, "a/f"),
        (RecordKind.DIRECTORY, "b"),
        (RecordKind.DIRECTORY, "b/c"),
        (RecordKind.FILE, "b/c/g"),
    ]


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([member("../up")], "'../up': not a path"),
        ([member("a/../../up")], "not a path"),
        ([member("/etc/passwd")], "'/etc/passwd': "),
        ([member("h", tarfile.LNKTYPE, linkname="x")], "'h': a hard link"),
        ([member("f", tarfile.FIFOTYPE)], "'f': a device, FIFO"),
        ([member("c", tarfile.CHRTYPE)], "'c': a device"),
        ([member("b", tarfile.BLKTYPE)], "'b': a device"),
        ([member("u", b"Z")], "'u': a device, FIFO, sparse or unknown"),
        ([member("l", tarfile.SYMTYPE)], "'l': a link without a proper target"),
        ([member("two"), member("two")], "'two': the name is there a second time"),
        ([member("f"), member("f/below")], "'f/below': no directory of the tree holds it"),
        ([member("l", tarfile.SYMTYPE, linkname="/"), member("l/f")], "'l/f': no directory"),
        ([member("huge", size=2**50)], "'huge': with its"),
        ([member("x" * 60)], "over 50 bytes"),
        ([member("a/b/c/d/e")], "below more than 3 directories"),
        ([member(str(n)) for n in range(6)], "'5': the tree has more than 5 entries"),
    ],
)
def test_an_archive_that_is_refused(entries: list[tarfile.TarInfo], why: str) -> None:
    with pytest.raises(TreeError, match=why):
        list(records(archive(*((entry, b"") for entry in entries))))


def test_a_sparse_entry() -> None:
    entry = member("s", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    with pytest.raises(TreeError):
        list(records(archive((entry, b"1\n0\n512\n".ljust(512, b"\0") + b"x" * 512))))


@pytest.mark.parametrize("cut", [0, 1, 511, 600, 1500])
def test_a_stream_that_is_cut_short_or_is_no_archive(cut: int) -> None:
    whole = archive((member("f"), b"x" * 1000)).getvalue()
    with pytest.raises(TreeError, match=r"no tar, or is cut short|shrank"):
        list(records(io.BytesIO(whole[:cut])))


class Endless(io.RawIOBase):
    """A header that says that a huge name follows, and then as much of it as is asked for."""

    def __init__(self, header: bytes) -> None:
        self._header = header
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0
        piece, self._header = self._header[:size], self._header[size:]
        piece = piece.ljust(size, b"x")
        self.given += len(piece)
        return piece


@pytest.mark.parametrize("type_", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_name_without_end_is_not_read(type_: bytes) -> None:
    stream = Endless(member("n", type_, size=2**40).tobuf(tarfile.GNU_FORMAT))
    with pytest.raises(TreeError, match="names and attributes"):
        list(tar_records(stream, TreeCheck(SMALL, what="upload")))  # type: ignore[arg-type]
    assert stream.given <= 2 * HEADER_BYTES_MAX


def test_what_a_header_announces_past_the_end_is_not_waited_for() -> None:
    for size in (2**40, -(2**40)):
        entry = member("d", tarfile.DIRTYPE)
        entry.pax_headers = {"size": str(size)}
        stream = io.BytesIO(entry.tobuf(tarfile.PAX_FORMAT))
        with contextlib.suppress(TreeError):
            list(records(stream))


def test_headers_upon_headers() -> None:
    one = member("x", tarfile.XHDTYPE, size=10).tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(TreeError):
        list(records(io.BytesIO((one + b"10 a=bcde\n".ljust(512, b"\0")) * 1500)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_bytes_break_the_reading_of_an_archive(draw: st.DataObject) -> None:
    whole = bytearray(archive((member("d/f"), b"abc"), (member("g" * 120), b"x" * 600)).getvalue())
    for _ in range(draw.draw(st.integers(1, 6))):
        whole[draw.draw(st.integers(0, 3000))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(TreeError):
        list(records(io.BytesIO(bytes(whole))))
