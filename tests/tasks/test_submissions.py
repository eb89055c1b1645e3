"""What an agent left is read whole and harmlessly, whatever it is."""

import os
import socket
import stat
import time
from pathlib import Path

import pytest

from tiltyard.core.errors import UsageError
from tiltyard.core.files import MIB
from tiltyard.core.ids import TaskId
from tiltyard.core.task import (
    CallSuite,
    Odd,
    ProgramSuite,
    RepositorySuite,
    ScriptSuite,
    Split,
    Submission,
    Suite,
    Task,
)
from tiltyard.tasks.submissions import FILE_CAPS, read_submission


def task(hidden: Suite | None = None) -> Task:
    return Task(
        id=TaskId("t"),
        family="t",
        split=Split.HELDOUT,
        revision="1",
        instruction="i",
        starter="",
        reference="",
        visible=CallSuite(cases=()),
        hidden=hidden or CallSuite(cases=()),
    )


def repository(*sources: str) -> RepositorySuite:
    return RepositorySuite(base={}, tests={}, reference={}, sources=sources)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """An agent's directory with one honest file."""
    path = tmp_path / "left"
    path.mkdir()
    (path / "solution.py").write_bytes(b"x = 1\n")
    return path


def test_files_below_directories_are_read_by_their_path(left: Path) -> None:
    (left / "a" / "b").mkdir(parents=True)
    (left / "a" / "b" / "c.txt").write_bytes(b"\xff\0")
    (left / "empty").mkdir()
    assert read_submission(left, task()) == Submission(
        files={"solution.py": b"x = 1\n", "a/b/c.txt": b"\xff\0"}
    )


@pytest.mark.parametrize(
    ("hidden", "name"),
    [
        (None, "solution.py"),
        (ProgramSuite(source="main.c", run=("./main",), cases=()), "main.c"),
        (repository("src/one.py"), "src/one.py"),
        (ScriptSuite(tests={}, reference={}, artifacts=("answer.txt",)), "answer.txt"),
    ],
)
def test_one_file_stands_for_the_one_that_is_wanted(
    tmp_path: Path, hidden: Suite | None, name: str
) -> None:
    path = tmp_path / "whatever"
    path.write_bytes(b"y")
    assert read_submission(path, task(hidden)) == Submission(files={name: b"y"})


@pytest.mark.parametrize("hidden", [repository("a.py", "b.py"), repository("src/**")])
def test_one_file_is_refused_where_several_are_wanted(tmp_path: Path, hidden: Suite) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"y")
    with pytest.raises(UsageError, match="takes more than one"):
        read_submission(path, task(hidden))


@pytest.mark.parametrize("name", ["missing", "left/solution.py/x", "n" * 300])
def test_nothing_there_is_a_wrong_call(left: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no submission at"):
        read_submission(left.parent / name, task())


def test_links_are_told_and_never_followed(left: Path) -> None:
    (left / "solution.py").unlink()
    (left / "solution.py").symlink_to("/etc/passwd")
    (left / "up").symlink_to("..")
    (left / "self").symlink_to("self")
    (left / "other").symlink_to(b"\xff")  # type: ignore[arg-type]  # a name of bytes
    assert read_submission(left, task()) == Submission(
        files={},
        links={"solution.py": "/etc/passwd", "up": "..", "self": "self", "other": "\\xff"},
    )


def test_a_link_to_a_submission_is_none(left: Path) -> None:
    to_file, to_directory = left.parent / "file", left.parent / "directory"
    to_file.symlink_to(left / "solution.py")
    to_directory.symlink_to(left)
    found = read_submission(to_file, task())
    assert found == Submission(files={}, links={"solution.py": str(left / "solution.py")})
    found = read_submission(to_directory, task(repository("**")))
    assert found == Submission(files={}, links={".": str(left)})


def test_what_is_no_plain_file_is_told_and_not_opened(left: Path) -> None:
    os.mkfifo(left / "fifo")
    (left.parent / "elsewhere").hardlink_to(left / "solution.py")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left / "s"))
        (left / os.fsdecode(b"bad\xff")).write_bytes(b"")
        found = read_submission(left, task())
    assert found == Submission(
        files={},
        odd={
            "fifo": Odd.FIFO,
            "solution.py": Odd.HARD_LINK,
            "s": Odd.SOCKET,
            "bad\\xff": Odd.BAD_NAME,
        },
    )


def test_a_fifo_as_the_submission_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    found = read_submission(tmp_path / "fifo", task())
    assert found == Submission(files={}, odd={"solution.py": Odd.FIFO})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_told_and_not_opened(left: Path) -> None:
    os.mknod(left / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert read_submission(left, task()).odd == {"zero": Odd.DEVICE}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_permissions_close_is_told(left: Path) -> None:
    (left / "closed").write_bytes(b"")
    (left / "closed").chmod(0)
    (left / "shut").mkdir(mode=0)
    found = read_submission(left, task())
    assert found.odd == {"closed": Odd.UNREADABLE, "shut": Odd.UNREADABLE}
    left.chmod(0)
    try:
        assert read_submission(left, task()).odd == {".": Odd.UNREADABLE}
    finally:
        left.chmod(0o700)


def test_a_huge_sparse_file_costs_nothing(left: Path) -> None:
    with (left / "huge").open("wb") as file:
        file.truncate(2**40)
    found = read_submission(left, task())
    assert found == Submission(files={"solution.py": b"x = 1\n"}, odd={"huge": Odd.TOO_LARGE})


def test_all_files_together_are_bounded(left: Path) -> None:
    for number in range(6):
        with (left / f"z{number}").open("wb") as file:
            file.truncate(50 * MIB)
    found = read_submission(left, task(repository("z*")))
    assert found.odd == {"z5": Odd.TOO_LARGE}
    assert sum(map(len, found.files.values())) <= FILE_CAPS.bytes_max


def test_reading_stops_at_the_bound_of_entries(left: Path) -> None:
    deep = left / "deep"
    deep.mkdir()
    for number in range(3 * FILE_CAPS.entries_max):
        (deep / str(number)).touch()
    started = time.monotonic()
    found = read_submission(left, task())
    assert Odd.TOO_MANY in found.odd.values()
    assert len(found.files) <= FILE_CAPS.entries_max
    assert time.monotonic() - started < 5


def test_reading_stops_at_the_bound_of_depth(left: Path) -> None:
    path = left.joinpath(*("d" for _ in range(FILE_CAPS.depth_max + 1)))
    path.mkdir(parents=True)
    (path / "x").touch()
    found = read_submission(left, task())
    assert list(found.odd.values()) == [Odd.TOO_DEEP]


def test_names_of_any_text_are_kept(left: Path) -> None:
    (left / "a\n\x1b[2J\\").write_bytes(b"z")
    assert read_submission(left, task()).files["a\n\x1b[2J\\"] == b"z"


def test_what_tools_keep_for_themselves_is_not_read_and_counts_as_one(left: Path) -> None:
    packages = left / "node_modules" / "p"
    packages.mkdir(parents=True)
    for number in range(FILE_CAPS.entries_max + 1):
        (packages / f"{number}.js").touch()
    hooks = left / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").touch()
    (left / ".git" / "HEAD").touch()
    read = {"solution.py": b"x = 1\n", ".git/hooks/post-checkout": b""}
    assert read_submission(left, task()) == Submission(files=read)
    declared = read_submission(left, task(repository("node_modules/**")))
    assert len(declared.files) == FILE_CAPS.entries_max + 3


def test_a_virtual_environment_of_any_name_is_not_read(left: Path) -> None:
    packages = left / "work" / "env" / "lib"
    packages.mkdir(parents=True)
    (packages / "conftest.py").touch()
    assert "work/env/lib/conftest.py" in read_submission(left, task()).files
    (left / "work" / "env" / "pyvenv.cfg").touch()
    assert read_submission(left, task()) == Submission(files={"solution.py": b"x = 1\n"})
    assert len(read_submission(left, task(repository("work/env/**"))).files) == 3
    # The work directory itself is never one.
    (left / "pyvenv.cfg").touch()
    assert "solution.py" in read_submission(left, task()).files


def test_large_files_beside_the_answer_do_not_use_up_its_bytes(left: Path) -> None:
    for number in range(5):
        with (left / f"data{number}").open("wb") as file:
            file.truncate(63 * MIB)
    (left / "src").mkdir()
    with (left / "src" / "one.py").open("wb") as file:
        file.truncate(50 * MIB)
    found = read_submission(left, task())
    assert found.files["solution.py"] == b"x = 1\n"
    assert found.odd == dict.fromkeys(("data2", "data3", "data4", "src/one.py"), Odd.TOO_LARGE)
    found = read_submission(left, task(repository("src/**")))
    assert len(found.files["src/one.py"]) == 50 * MIB
