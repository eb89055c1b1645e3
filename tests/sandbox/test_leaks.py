"""Nothing leaks: not when sandboxes' processes, the launcher or this process itself are killed."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.processes import name
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies

pytestmark = pytest.mark.sandbox

PROGRAM = Path(__file__).parent / "storm_program.py"
GONE_TIMEOUT_S = 20.0

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(repository: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts `storm_program.py`; killed at the test's end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(repository / "tests")},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def said(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait()}"
    answer: dict[str, Any] = json.loads(line)
    return answer


def cgroups_of(pid: int) -> list[Path]:
    mine = f"{cgroups.PREFIX}{pid}-*"
    return [path for tree in usable_hierarchies() for path in tree.base.glob(mine)]


def wait_gone(pidfds: list[int]) -> None:
    """Waits until each of these processes has ended."""
    waiting = select.poll()
    for fd in pidfds:
        waiting.register(fd, select.POLLIN)
    left = set(pidfds)
    while left:
        ended = waiting.poll(GONE_TIMEOUT_S * 1000)
        assert ended, f"{len(left)} processes live on"
        for fd, _ in ended:
            waiting.unregister(fd)
            left.discard(fd)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sandboxes", "launcher"])
def test_two_hundred_sandboxes_under_random_kills_leave_nothing(start: Start, kind: str) -> None:
    process = start(kind, 200)
    result = said(process)
    assert process.wait() == 0
    assert result["after"] == result["before"]
    ends = result["ends"]
    assert sum(ends.values()) == 200
    if kind == "launcher":
        assert ends.get("SandboxDied", 0) > 0
    else:
        assert ends.get("exit", 0) > 20, ends
        assert ends.get("signal", 0) + ends.get("sandbox_died", 0) > 0, ends
    assert cgroups_of(process.pid) == []


@pytest.mark.slow
def test_a_killed_host_takes_everything_with_it(start: Start) -> None:
    process = start("hang", 0)
    pids = said(process)["pids"]
    kinds = [name(pid) for pid in pids]
    assert kinds.count("sleep") >= 16
    assert any(kind.startswith("tiltyard-launch") for kind in kinds)
    pidfds = [os.pidfd_open(pid) for pid in pids]
    process.kill()
    process.wait()
    try:
        wait_gone(pidfds)
    finally:
        for fd in pidfds:
            os.close(fd)
    assert cgroups_of(process.pid) == []


@pytest.mark.slow
def test_a_child_of_a_killed_host_keeps_nothing_alive(start: Start) -> None:
    """A fork without exec, as of a pool of workers, holds every socket of the host's open."""
    process = start("hang-with-child", 0)
    answer = said(process)
    pidfds = [os.pidfd_open(pid) for pid in answer["pids"]]
    process.kill()
    process.wait()
    try:
        wait_gone(pidfds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(answer["child"], signal.SIGKILL)
        for fd in pidfds:
            os.close(fd)
    assert cgroups_of(process.pid) == []


async def test_the_next_start_sweeps_what_a_dead_owner_left(image: Image) -> None:
    """Host and launcher killed together leave empty cgroups; a live owner's are never touched."""
    trees = usable_hierarchies()
    if not trees:
        pytest.skip("this user may write to no cgroup, so there is nothing that could be left")
    own_start = cgroups.start_time_of(os.getpid())
    dead = [tree.base / f"{cgroups.PREFIX}4194305-1-0" / "s1" for tree in trees]
    live = [tree.base / f"{cgroups.PREFIX}{os.getpid()}-{own_start}-9999" / "s1" for tree in trees]
    try:
        for path in (*dead, *live):
            path.mkdir(parents=True)
        async with NativeProvider(image=image):
            assert not [path for path in dead if path.parent.exists()]
            assert [path for path in live if not path.exists()] == []
        assert [path for path in live if not path.exists()] == []
    finally:
        for path in (*dead, *live):
            for directory in (path, path.parent):
                with contextlib.suppress(OSError):
                    directory.rmdir()
