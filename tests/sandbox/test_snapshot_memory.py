"""What all snapshots of a provider may hold together."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.snapshot_memory_program import TRIED_MAX
from tiltyard.core.execution import MIB
from tiltyard.sandbox.native.provider import usable_hierarchies

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "snapshot_memory_program.py"
MEMORY_BYTES = 512 * MIB


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """One whose processes may have little memory."""
    tree = next((tree for tree in usable_hierarchies() if "memory" in tree.controllers), None)
    if tree is None:
        pytest.skip("this user has no cgroup to make one in that holds memory")
    made = tree.base / f"snapshot-memory-{os.getpid()}"
    made.mkdir()
    limit = "memory.max" if tree.version == 2 else "memory.limit_in_bytes"
    (made / limit).write_text(str(MEMORY_BYTES))
    yield made
    while made.exists():  # what was killed takes a moment to be gone, and may leave some below
        for each in (*sorted(made.rglob("*/"), reverse=True), made):
            with suppress(OSError):
                each.rmdir()


def test_all_snapshots_together_hold_a_quarter_of_the_memory(
    small_cgroup: Path, repository: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(small_cgroup)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(repository / "tests")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["in_turn"] == 3
    assert said["kind"] == "SandboxError"
    assert "more than 128 MiB, a quarter of the memory here. Fix: drop those" in said["refusal"]
    assert said["left_by_refused"] == 0
    assert said["goes_on"]
    assert said["after_drop"] == 1
    assert said["under_a_fork"] == 0, "a dropped one is held for as long as a fork stands on it"
    assert said["after_the_fork"] == 1
    assert said["at_once"] == 3
    assert said["of_big_ones"] == 1
    assert said["of_empty_files"] == 2, "names are memory too"
    assert said["of_shared_memory"] == TRIED_MAX, "what is not frozen does not count"
