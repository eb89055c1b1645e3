"""The runtime directory: whose it must be, and that its locks cannot be held twice."""

import os
import socket
from pathlib import Path

import pytest

from tiltyard.cli.yard.place import DAEMON_LOCK, RECORD, Place, opened
from tiltyard.cli.yard.record import forget_lost, lost_rows, write_record
from tiltyard.cli.yard.wire import Row, State
from tiltyard.core.errors import SandboxError, UsageError

ROWS = [
    Row(id=f"sb-{number}", state=State.LIVE, created_s=1.0, deadline_s=2.0) for number in range(2)
]


def test_it_is_made_and_closed_to_others(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_one_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with pytest.raises(UsageError, match="open to others"):
        Place.open(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory away needs root")
def test_one_of_another_user_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    os.chown(other, 4321, 4321)

    with pytest.raises(UsageError, match="another user"):
        Place.open(other)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(UsageError, match="link"):
        Place.open(tmp_path / "link")


def test_a_long_path_still_has_a_socket(tmp_path: Path) -> None:
    with opened(tmp_path / ("x" * 200)) as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket_path)

        assert (place.path / "yard.sock").is_socket()


async def test_a_lock_is_held_once_and_waited_for_in_vain(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as place:
        held = place.try_lock(DAEMON_LOCK)
        assert held is not None
        assert place.is_locked(DAEMON_LOCK)
        assert place.try_lock(DAEMON_LOCK) is None
        with pytest.raises(SandboxError, match="held by another"):
            await place.lock(DAEMON_LOCK, timeout_s=0.05)
        os.close(held)
        assert not place.is_locked(DAEMON_LOCK)


def test_the_lock_of_a_removed_file_is_worth_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as place:
        first = place.try_lock(DAEMON_LOCK)
        assert first is not None
        place.remove(DAEMON_LOCK)
        second = place.try_lock(DAEMON_LOCK)

        assert second is not None
        assert place.is_locked(DAEMON_LOCK)
        os.close(first)
        assert place.is_locked(DAEMON_LOCK)
        os.close(second)


def test_of_a_killed_daemon_the_sandboxes_are_lost_until_they_are_forgotten(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with opened(tmp_path) as place:
        daemon = place.try_lock(DAEMON_LOCK)
        assert daemon is not None
        write_record(place, 1, ROWS)
        assert lost_rows(place) == []
        assert forget_lost(place, None) == []
        os.close(daemon)  # what the kernel does when it is killed

        assert [row.state for row in lost_rows(place)] == [State.LOST, State.LOST]
        assert [row.id for row in forget_lost(place, ["sb-0"])] == ["sb-0"]
        assert [row.id for row in lost_rows(place)] == ["sb-1"]
        forget_lost(place, None)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", b'{"pid": "x", "rows": 3}'])
def test_a_record_that_cannot_be_read_tells_of_nothing(tmp_path: Path, raw: bytes) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / RECORD).write_bytes(raw)
    with opened(tmp_path) as place:
        assert lost_rows(place) == []


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    with opened(runtime) as place:
        runtime.rmdir()
        with pytest.raises(SandboxError, match="cannot be written"):
            write_record(place, 1, ROWS)
