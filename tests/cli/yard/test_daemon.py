"""The daemon behind the commands: one at a time, however it ends, and nothing after it."""

import os
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.yard.conftest import Sandbox, daemons, listed
from sandbox.processes import descendants, supervisors
from tiltyard.cli.yard.daemon import serve
from tiltyard.cli.yard.place import opened

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

Start = Callable[..., "subprocess.Popen[str]"]


def left_of(pid: int) -> list[Path]:
    # Not rglob, which fails when another process's cgroup goes meanwhile.
    walked = os.walk("/sys/fs/cgroup")
    return [
        Path(above, name)
        for above, names, _ in walked
        for name in names
        if name.startswith(f"tiltyard-{pid}-")
    ]


def killed(pid: int) -> None:
    """Ends a daemon in the hardest way, and waits until it is gone."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert select.select([process], [], [], 30)[0]
    finally:
        os.close(process)


def test_two_that_come_first_at_once_share_a_daemon(
    start: Start, sandbox: Sandbox, runtime: Path
) -> None:
    both = [start("create", "--memory", "64M") for _ in range(2)]
    ids = {process.communicate(timeout=90)[0].strip() for process in both}

    assert [process.returncode for process in both] == [0, 0]
    assert len(daemons(runtime)) == 1
    assert set(listed(sandbox)) == ids
    assert len(ids) == 2


def test_nothing_is_left_after_its_end(sandbox: Sandbox, made: str, runtime: Path) -> None:
    (daemon,) = daemons(runtime)
    below = [os.pidfd_open(pid) for pid in descendants(daemon)]
    assert supervisors(daemon)

    assert sandbox("rm", "--all").stdout.strip() == made
    assert not supervisors(daemon)
    assert sandbox("stop").stdout == "ended\n"

    for process in below:
        assert select.select([process], [], [], 30)[0], "a process of it is left"
        os.close(process)
    assert not daemons(runtime)
    assert list(runtime.iterdir()) == []
    assert not left_of(daemon)


async def test_it_ends_by_itself_when_nothing_is_left(runtime: Path) -> None:
    started: list[bool] = []
    with opened(runtime) as place:
        await serve(place, ready=lambda: started.append(True), idle_s=0.01)

    assert started == [True]
    assert list(runtime.iterdir()) == []


def test_a_terminated_daemon_takes_leave(sandbox: Sandbox, made: str, runtime: Path) -> None:
    (daemon,) = daemons(runtime)
    process = os.pidfd_open(daemon)
    signal.pidfd_send_signal(process, signal.SIGTERM)
    assert select.select([process], [], [], 30)[0]
    os.close(process)

    assert list(runtime.iterdir()) == []
    assert listed(sandbox) == {}
    assert sandbox("exec", made, "true").returncode == 125


def test_of_a_killed_daemon_the_sandboxes_are_named_as_lost(
    sandbox: Sandbox, made: str, runtime: Path
) -> None:
    (daemon,) = daemons(runtime)
    inside = [os.pidfd_open(pid) for pid in descendants(daemon)]
    killed(daemon)

    assert listed(sandbox) == {made: "lost"}
    for process in inside:
        assert select.select([process], [], [], 30)[0], "a sandbox outlived its daemon"
        os.close(process)
    gone = sandbox("exec", made, "true")
    assert (gone.returncode, "its yard daemon was killed" in gone.stderr) == (125, True)
    second = sandbox("create", "--memory", "64M").stdout.strip()
    assert listed(sandbox) == {made: "lost", second: "live"}
    assert len(daemons(runtime)) == 1
    assert sandbox("sweep").returncode == 0
    assert listed(sandbox) == {second: "live"}
    assert not left_of(daemon)


def test_lost_ones_can_be_removed_without_a_daemon(
    sandbox: Sandbox, made: str, runtime: Path
) -> None:
    killed(*daemons(runtime))

    assert sandbox("rm", made).stdout.strip() == made
    assert listed(sandbox) == {}
    assert not daemons(runtime)


def test_ctrl_c_kills_the_program_and_the_sandbox_lives_on(
    start: Start, sandbox: Sandbox, made: str
) -> None:
    process = start("exec", made, "--", "sh", "-c", "touch begun; exec sleep 600")
    assert process.stdin is not None
    process.stdin.close()
    while "begun" not in sandbox("exec", made, "ls").stdout:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.stdin = None
    _, said = process.communicate(timeout=60)
    names = sandbox("exec", made, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()

    assert (process.returncode, "Traceback" in said) == (130, False)
    assert "sleep" not in names


def test_sweep_removes_what_no_living_process_claims(
    sandbox: Sandbox, made: str, runtime: Path
) -> None:
    (daemon,) = daemons(runtime)
    there = left_of(daemon)
    dead = [path.with_name("tiltyard-4194303-1-0") for path in there]
    try:
        for path in dead:
            path.mkdir()
    except OSError:
        dead = []

    assert sandbox("sweep").returncode == 0
    assert not [path for path in dead if path.exists()]
    assert left_of(daemon) == there
    assert sandbox("exec", made, "true").returncode == 0


GARBAGE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    struct.pack("<IB", 2**32 - 1, 1),
    struct.pack("<IB", 2, 1) + b"{}",
    struct.pack("<IB", 0, 200),
    struct.pack("<IB", 100, 1) + b"cut",
]


def test_garbage_on_the_socket_harms_nobody(sandbox: Sandbox, made: str, runtime: Path) -> None:
    directory = os.open(runtime, os.O_RDONLY)
    for raw in GARBAGE:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"/proc/self/fd/{directory}/yard.sock")
            stranger.settimeout(30)
            stranger.sendall(raw)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
    os.close(directory)

    assert listed(sandbox) == {made: "live"}
