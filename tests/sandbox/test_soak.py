"""Thousands of sandboxes leave nothing behind: no mount, cgroup, namespace, descriptor or memory.

A few hundred in the ordinary suite; `make soak` takes a hundred thousand.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "soak_program.py"
HOST_KIB_MAX = 6 * 1024
"""Of Python's own arenas; a descriptor or task lost in each cycle would soon be more."""
LAUNCHER_KIB_MAX = 512


def test_making_and_destroying_sandboxes_returns_to_the_start(
    repository: Path, tmp_path: Path, soak_cycles: int, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(repository / "tests")}
    with capsys.disabled():  # a hundred thousand take minutes: progress goes to the terminal
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(soak_cycles)],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            check=False,
        )
    assert done.returncode == 0
    result = json.loads(done.stdout)
    print(result)  # noqa: T201 - shown with a failure, and by `make soak`
    assert result["after"] == result["before"]
    assert result["host_grown_kib"] <= HOST_KIB_MAX
    assert result["launcher_grown_kib"] <= LAUNCHER_KIB_MAX
