"""Thousands of sandboxes leave nothing behind: no mount, cgroup, namespace, descriptor or memory.

A few hundred in the ordinary suite; `make soak` takes a hundred thousand. `soak_program` says which
ways the cycles take.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "soak_program.py"
LEAK_BYTES = 4096


def host_kib_max(cycles: int) -> int:
    """What Python's own memory may grow by: so little that 2 KiB lost in each cycle are more."""
    return min(256 + cycles, 6 * 1024)


def launcher_kib_max(cycles: int) -> int:
    """The same of the launcher, which allocates little: half a KiB in each cycle is more."""
    return min(64 + cycles // 4, 512)


def blocks_max(cycles: int) -> int:
    """Of Python's small objects. Caches fill, by some 500; a few lost in each cycle are more."""
    return 1200 + cycles // 20


def soak(repository: Path, tmp_path: Path, cycles: int, *, leak_bytes: int) -> dict[str, Any]:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(repository / "tests")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(cycles), str(leak_bytes)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_making_and_destroying_sandboxes_returns_to_the_start(
    repository: Path, tmp_path: Path, soak_cycles: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():  # a hundred thousand take minutes: progress goes to the terminal
        result = soak(repository, tmp_path, soak_cycles, leak_bytes=0)
    print(result)  # noqa: T201 - shown with a failure, and by `make soak`
    assert result["after"] == result["before"]
    assert result["host_grown_kib"] <= host_kib_max(soak_cycles)
    assert result["host_grown_blocks"] <= blocks_max(soak_cycles)
    assert result["launcher_grown_kib"] <= launcher_kib_max(soak_cycles)


def test_a_few_kib_lost_in_each_cycle_are_seen(repository: Path, tmp_path: Path) -> None:
    """The shortest soak that is run must see it, or a green one says nothing."""
    result = soak(repository, tmp_path, 300, leak_bytes=LEAK_BYTES)
    assert result["host_grown_kib"] > host_kib_max(300)
