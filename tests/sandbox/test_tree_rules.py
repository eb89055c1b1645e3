"""What may be in a tree, judged before anything is done with it.

No sandbox is needed: these are the host's own rules, fed with what a sandbox might say.
"""

import contextlib
import io
import os
import posixpath
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.errors import TreeError
from tiltyard.core.files import Links, Specials, TreeLimits, TreeTotals
from tiltyard.sandbox.file_frames import (
    SLICE_BYTES_MAX,
    SLICE_RECORDS_MAX,
    Head,
    RecordKind,
    content_record,
    head_record,
    number,
    parse_records,
)
from tiltyard.sandbox.protocol import ProtocolError
from tiltyard.sandbox.tree_check import KEPT_LINKS_MAX, TreeCheck, stays_inside
from tiltyard.sandbox.tree_sinks import DirectorySink, TarSink, TreeReceiver
from tiltyard.sandbox.tree_sources import directory_records, slices

SMALL = TreeLimits(entries_max=5, bytes_max=1000, path_bytes_max=50, depth_max=3)


def directory(path: str) -> Head:
    return Head(kind=RecordKind.DIRECTORY, path=path, mode=0o755)


def file(path: str, size: int = 0) -> Head:
    return Head(kind=RecordKind.FILE, path=path, mode=0o644, size_bytes=size)


def link(path: str, target: str) -> Head:
    return Head(kind=RecordKind.LINK, path=path, mode=0o777, target=target)


def special(path: str) -> Head:
    return Head(kind=RecordKind.SPECIAL, path=path, mode=0o644)


def frame(*records: Head | bytes, more: bool = False) -> bytes:
    return number(more) + b"".join(
        content_record(record) if isinstance(record, bytes) else head_record(record)
        for record in records
    )


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.", "a\0b"),
        *("\ud800", "n" * 256, "missing/x", "file/x", "x" * 40 + "/" + "y" * 20),
    ],
)
def test_a_path_that_is_refused(path: str) -> None:
    check = TreeCheck(TreeLimits(path_bytes_max=50, depth_max=3), what="here")
    for head in (directory("a"), directory("x" * 40), file("file")):
        check.add(head)
    for kind in (RecordKind.FILE, RecordKind.DIRECTORY, RecordKind.LINK):
        with pytest.raises(TreeError, match="here: ") as caught:
            check.add(Head(kind=kind, path=path, mode=0o644, target="t"))
        assert caught.value.path == path


def test_bounds_of_a_tree() -> None:
    check = TreeCheck(SMALL, what="here")
    check.add(file("big", 999))
    with pytest.raises(TreeError, match=r"'more': .* over 1000"):
        check.add(file("more", 2))
    for path in ("a", "a/b", "a/b/c"):
        check.add(directory(path))
    with pytest.raises(TreeError, match="'a/b/c/d': it is below more than 3 directories"):
        check.add(directory("a/b/c/d"))
    check.add(file("a/b/c/d", 1))
    with pytest.raises(TreeError, match="'z': the tree has more than 5 entries"):
        check.add(file("z"))
    assert check.totals() == TreeTotals(files=2, directories=3, links=0, content_bytes=1000)


def test_a_name_that_comes_twice() -> None:
    for first in (file("a"), directory("a"), link("a", "b")):
        for second in (file("a"), directory("a"), link("a", "b")):
            check = TreeCheck(SMALL, what="here")
            check.add(first)
            with pytest.raises(TreeError, match="a second time"):
                check.add(second)


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("l", "a", True),
        ("l", "a/b/./c", True),
        ("l", ".", True),
        ("d/l", "..", True),
        ("d/e/l", "../../x", True),
        ("l", "..", False),
        ("d/l", "../..", False),
        ("l", "/etc/passwd", False),
        ("l", "", False),
        ("l", "a\0", False),
        ("l", "a/..", False),
        ("d/l", "../u/u/u/../../..", False),
    ],
)
def test_where_a_link_may_lead(path: str, target: str, inside: bool) -> None:
    assert stays_inside(path, target) is inside


PARTS = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=5)


def resolve(links: dict[str, str], directory: str, target: str) -> bool:
    """Follows a target as a kernel does, all missing names taken for directories.

    False when it goes above the root; a loop of links goes nowhere and so stays.
    """
    at = [part for part in directory.split("/") if part]
    left = target.split("/")
    for _ in range(200):
        if not left:
            return True
        part = left.pop(0)
        if part == "..":
            if not at:
                return False
            at.pop()
        elif part not in {"", "."}:
            path = "/".join([*at, part])
            if path in links:
                left = links[path].split("/") + left
            else:
                at.append(part)
    return True


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "a/b", "b/a", "a/a", "a/b/a", "b/b/b"]), PARTS, max_size=5
    )
)
def test_links_that_are_kept_never_lead_outside_together(wanted: dict[str, list[str]]) -> None:
    kept: dict[str, str] = {}
    for path in sorted(wanted):  # what is above a path comes first, and a link holds nothing
        target = "/".join(wanted[path])
        if stays_inside(path, target) and not any(path.startswith(f"{above}/") for above in kept):
            kept[path] = target
    for path, target in kept.items():
        assert resolve(kept, posixpath.dirname(path), target), (path, kept)


def receive(
    tmp_path: Path,
    *bodies: bytes,
    links: Links = Links.REFUSE,
    specials: Specials = Specials.REFUSE,
    limits: TreeLimits = SMALL,
) -> TreeTotals:
    check = TreeCheck(limits, what="download")
    sink = DirectorySink(tmp_path / "out", check)
    receiver = TreeReceiver(check, sink, links=links, specials=specials)
    try:
        sink.start()
        for body in bodies:
            receiver.take(body)
        return receiver.finish()
    except BaseException:
        receiver.discard()
        raise


def test_a_tree_that_is_received(tmp_path: Path) -> None:
    bodies = (frame(directory("d"), file("d/f", 6), b"abc", more=True), frame(b"def", file("e")))
    totals = receive(tmp_path, *bodies)
    assert (totals.files, totals.directories, totals.content_bytes) == (2, 1, 6)
    assert (tmp_path / "out/d/f").read_bytes() == b"abcdef"
    assert (tmp_path / "out/e").read_bytes() == b""


@pytest.mark.parametrize(
    "records",
    [
        (b"content of nothing",),
        (file("f", 3), b"four"),
        (file("f", 3), b"ab"),
        (file("f", 3), b""),
        (file("f", 3), directory("d")),
        (directory("d"), b"x"),
    ],
)
def test_records_that_break_the_protocol(tmp_path: Path, records: tuple[Head | bytes, ...]) -> None:
    with pytest.raises(ProtocolError):
        receive(tmp_path, frame(*records))
    assert not (tmp_path / "out").exists(), "nothing is left of a tree that failed"


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser_of_records(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        parse_records(body)


def test_links_and_specials_are_refused_unless_asked_for(tmp_path: Path) -> None:
    for head in (link("l", "x"), special("s")):
        with pytest.raises(TreeError, match=f"'{head.path}': a .*; say with ") as caught:
            receive(tmp_path, frame(head))
        assert caught.value.path == head.path
    body = frame(directory("d"), link("d/l", "/etc"), special("s"))
    totals = receive(tmp_path, body, links=Links.SKIP, specials=Specials.SKIP)
    assert (totals.skipped, totals.skipped_paths) == (2, ("d/l", "s"))
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["d"]


def test_links_that_are_kept(tmp_path: Path) -> None:
    body = frame(link("l", "d/f"), directory("d"), file("d/f", 1), b"x", link("d/up", ".."))
    assert receive(tmp_path, body, links=Links.KEEP).links == 2
    assert (tmp_path / "out/l").read_bytes() == b"x"
    assert (tmp_path / "out/d/up").readlink() == Path("..")
    (tmp_path / "d").mkdir()
    for target in ("/etc/passwd", "../x", "d/../../x"):
        with pytest.raises(TreeError, match="may lead outside"):
            receive(tmp_path / "d", frame(link("l", target)), links=Links.KEEP)
    with pytest.raises(TreeError, match="target is too long"):
        receive(tmp_path / "d", frame(link("l", "x" * 60)), links=Links.KEEP)


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    body = frame(link("l", "d"), directory("d"), file("l/f", 1), b"x")
    with pytest.raises(TreeError, match="'l/f': no directory of the tree holds it"):
        receive(tmp_path, body, links=Links.KEEP)


@pytest.mark.slow
def test_links_are_bounded(tmp_path: Path) -> None:
    heads = [link(f"l{n}", "x") for n in range(KEPT_LINKS_MAX + 1)]
    with pytest.raises(TreeError, match=f"'l{KEPT_LINKS_MAX}': .* more than {KEPT_LINKS_MAX}"):
        receive(tmp_path, frame(*heads), links=Links.KEEP, limits=TreeLimits())


def test_a_directory_must_be_new_or_empty(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    receive(tmp_path, frame(file("f")))
    with pytest.raises(TreeError, match="not empty"):
        receive(tmp_path, frame(file("g")))
    assert [path.name for path in out.iterdir()] == ["f"]
    (out / "f").unlink()
    with pytest.raises(TreeError):
        receive(tmp_path, frame(directory("d"), file("d/f"), special("s")))
    assert list(out.iterdir()) == [], "it was there before, and is as it was"
    with pytest.raises(TreeError, match="No such file"):
        receive(tmp_path / "missing", frame(file("f")))


def test_modes_that_reach_the_host(tmp_path: Path) -> None:
    heads = [
        Head(kind=RecordKind.FILE, path="f", mode=0o6777, mtime_s=-5),
        Head(kind=RecordKind.DIRECTORY, path="d", mode=0o1000, mtime_s=2**62),
        Head(kind=RecordKind.FILE, path="e", mode=0, mtime_s=2**62),
    ]
    receive(tmp_path, frame(*heads))
    out = tmp_path / "out"
    assert (out / "f").stat().st_mode & 0o7777 & ~0o755 == 0
    assert (out / "d").stat().st_mode & 0o7700 == 0o700
    assert (out / "e").stat().st_mode & 0o7700 == 0o600


def test_frames_are_filled_and_bounded() -> None:
    many = [head_record(file(f"{n}")) for n in range(SLICE_RECORDS_MAX * 2 + 3)]
    joined = list(slices(iter(many)))
    assert [last for _, last in joined] == [False, False, True]
    assert b"".join(body for body, _ in joined) == b"".join(many)
    big = [content_record(bytes(60_000))] * 9
    assert all(len(body) <= SLICE_BYTES_MAX for body, _ in slices(iter(big)))
    assert list(slices(iter(()))) == [(b"", True)]


def test_a_directory_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"x" * 500)
    (tmp_path / "l").symlink_to("/nowhere")
    check = TreeCheck(SMALL, what="upload")
    _, parsed = parse_records(number(0) + b"".join(directory_records(tmp_path, check)))
    assert [head.path for head in parsed if isinstance(head, Head)] == ["d", "l", "d/f"]
    assert check.totals() == TreeTotals(files=1, directories=1, links=1, content_bytes=500)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TreeError, match="'fifo': neither a file"):
        list(directory_records(tmp_path, TreeCheck(SMALL, what="upload")))
    with pytest.raises(TreeError, match="No such file"):
        list(directory_records(tmp_path / "no", TreeCheck(SMALL, what="upload")))


def test_an_archive_that_is_written(tmp_path: Path) -> None:
    stream = io.BytesIO()
    check = TreeCheck(TreeLimits(), what="download")
    odd = os.fsdecode(b"new\nline \xff")
    receiver = TreeReceiver(
        check, TarSink(stream, check), links=Links.KEEP, specials=Specials.REFUSE
    )
    heads = [directory("d"), file("d/f", 3), b"abc", file(odd), link("l", "d"), file("n" * 200, 1)]
    receiver.take(frame(*heads, b"y"))
    receiver.finish()
    assert len(stream.getvalue()) % tarfile.RECORDSIZE == 0
    stream.seek(0)
    with tarfile.open(fileobj=stream, errors="surrogateescape") as reader:
        assert reader.getnames() == ["d", "d/f", odd, "l", "n" * 200]
        reader.extractall(tmp_path, filter="data")
    assert (tmp_path / "d/f").read_bytes() == b"abc"
    assert (tmp_path / "l").readlink() == Path("d")
