"""The supervisor's file answers under hostile bytes and hostile trees, alone, with sanitizers.

The same C files as in the supervisor, with a directory of the test as their root. That they stay
below it is part of what is tested: a file beside it must be there, and unchanged, at the end.
"""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tiltyard.sandbox.file_frames import Head, RecordKind, content_record, head_record, number
from tiltyard.sandbox.protocol import FrameType, frame, text

STREAMS = 400
PATHS = [
    *(
        "a",
        "a/b",
        "a/b/c",
        "b",
        "b/c",
        "l",
        "l/x",
        "..",
        "../beside",
        "../../beside",
        "/",
        "a/..",
        "",
    ),
    *("/a", "//a//b//", ".", "./a", "a/./b", "a\0b", "\xff" * 300, "x/" * 2200, "l/../../beside"),
]
SOURCES = ("files.c", "inside.c", "cursors.c", "plant.c", "walk.c", "frames.c")


@pytest.fixture(scope="session")
def driver(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn]
) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        lacking("there is no C compiler")
    program = tmp_path_factory.mktemp("driver") / "files-driver"
    native = repository / "native"
    sources = [Path(__file__).parent / "files_driver.c", *(native / name for name in SOURCES)]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run(
        [compiler, *flags, *checks, f"-I{native}", *map(str, sources), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr and "san" in built.stderr:
        lacking("this compiler has no sanitizer libraries")
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return program


def records(chance: random.Random) -> bytes:
    parts = []
    for _ in range(chance.randrange(6)):
        kind = RecordKind(chance.choice([1, 2, 2, 3, 3, 4, 5]))
        if kind is RecordKind.BYTES:
            parts.append(content_record(chance.randbytes(chance.choice([0, 1, 5, 5, 5000]))))
            continue
        head = Head(
            kind=kind,
            path=chance.choice(PATHS),
            mode=chance.randrange(0o10000),
            size_bytes=chance.choice([0, 5, 5, 5, 10, 2**63]),
            mtime_s=chance.choice([0, 10**9, -1, 2**62]),
            target=chance.choice(PATHS),
        )
        parts.append(head_record(head))
    return b"".join(parts)


def request(chance: random.Random) -> bytes:
    cursor, flag, path = number(chance.randrange(5)), number(chance.randrange(2)), chance.choice
    first, second = text(path(PATHS)), text(path(PATHS))
    size = number(chance.choice([0, 1, 100, 2**20, 2**32 - 1]))
    makers: dict[FrameType, Callable[[], bytes]] = {
        FrameType.WRITE: lambda: number(0o644) + flag + first + text(b"x" * chance.randrange(99)),
        FrameType.READ: lambda: chance.randbytes(1).ljust(8, b"\0") + size + first,
        FrameType.LIST: lambda: cursor + first,
        FrameType.STAT: lambda: flag + first,
        FrameType.MKDIR: lambda: number(0o755) + flag + first,
        FrameType.RENAME: lambda: flag + first + second,
        FrameType.CHMOD: lambda: number(chance.choice([0o644, 0o755])) + first,
        FrameType.SYMLINK: lambda: first + second,
        FrameType.REMOVE: lambda: cursor + flag + first,
        FrameType.TREE_READ: lambda: cursor + first,
        FrameType.TREE_WRITE: lambda: cursor + flag + first + records(chance),
        FrameType.TREE_PUT: lambda: cursor + flag + records(chance),
        FrameType.MORE: lambda: cursor,
        FrameType.END: lambda: cursor,
    }
    type_ = chance.choice(list(makers))
    body = bytearray(makers[type_]())
    while body and chance.random() < 0.2:
        at = chance.randrange(len(body))
        match chance.randrange(3):
            case 0:
                body[at] = chance.randrange(256)
            case 1:
                del body[at:]
            case _:
                body[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\x10\0\0"])
    return frame(type_, 1, bytes(body))


def run(driver: Path, root: Path, *streams: Path) -> None:
    done = subprocess.run(
        [driver, root, *streams], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-3000:])
    assert done.stdout.split() == [str(stream) for stream in streams]


@pytest.mark.slow
def test_no_requests_break_the_answers_or_leave_the_root(driver: Path, tmp_path: Path) -> None:
    chance = random.Random(22)  # noqa: S311 - which bytes
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "beside").write_text("as it was", encoding="ascii")
    streams = []
    for turn in range(STREAMS):
        streams.append(tmp_path / f"stream-{turn}")
        streams[-1].write_bytes(b"".join(request(chance) for _ in range(chance.randrange(1, 60))))
    run(driver, root, *streams)
    assert (tmp_path / "beside").read_text(encoding="ascii") == "as it was"
    expected = {"root", "beside", *(stream.name for stream in streams)}
    assert {path.name for path in tmp_path.iterdir()} == expected


@pytest.mark.slow
def test_a_tree_wider_and_deeper_than_a_slice(driver: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    below = root / "t"
    for depth in range(80):
        below.mkdir(parents=True)
        (below / "f").write_bytes(b"x" * 5000)
        below /= "d" * (depth % 3 + 1)
    for turn in range(1500):
        (root / f"t/{turn:0200}").touch()
    more = frame(FrameType.MORE, 2, number(0))
    walks = b"".join(
        frame(type_, 1, number(0) + fields + text("t")) + more * 2000  # however slow the disk is
        for type_, fields in [
            (FrameType.LIST, b""),
            (FrameType.TREE_READ, b""),
            (FrameType.REMOVE, number(1)),
        ]
    )
    (tmp_path / "stream").write_bytes(walks)
    run(driver, root, tmp_path / "stream")
    assert list(root.iterdir()) == []
