"""A writer that is killed, that finds the disk full or the directory closed, loses nothing it said.

Each runs in a process of its own; what it printed is what was acknowledged to it.
"""

import asyncio
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sample_records import sample_trajectory
from tiltyard.store import RunReader, RunStore

pytestmark = pytest.mark.slow

Program = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_what_was_acknowledged_survives_any_kill(
    tmp_path: Path, program: Program, soak_s: float
) -> None:
    rng = random.Random(20)  # noqa: S311 - where to kill need not be secret
    run = tmp_path / "run"
    acknowledged: set[str] = set()
    deadline_s = time.monotonic() + soak_s
    first = kills = 0
    while kills < 3 or time.monotonic() < deadline_s:
        lines = kill_a_writer(program, run, first, after=rng.randint(1, 300))
        acknowledged |= set(lines)
        kills += 1
        with RunReader(run) as reader:
            found = {one.id: one for one in reader.iter_trajectories()}
        assert acknowledged <= found.keys()
        for rollout_id, one in found.items():
            assert one == sample_trajectory(int(rollout_id[1:]))
        # Numbers beyond every one that may have been recorded without being acknowledged.
        first = max(int(rollout_id[1:]) for rollout_id in acknowledged | found.keys()) + 1000
    store = RunStore.open(run)
    asyncio.run(store.close())
    assert store.recovery.lost == 0
    assert store.recovery.damaged == ()
    with RunReader(run) as reader:
        assert acknowledged <= {row.id for row in reader.iter_rows()}


def kill_a_writer(program: Program, run: Path, first: int, *, after: int) -> list[str]:
    """The ids that a writer said it recorded, until it is killed after `after` of them or more."""
    writer = program("write", run, first)
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(after)]
    writer.kill()
    writer.wait()
    lines += writer.stdout.readlines()
    writer.stdout.close()
    return [line.strip() for line in lines if line.endswith("\n")]


@pytest.mark.parametrize(
    ("padding_bytes", "bytes_max", "refusing"),
    [
        (100_000, 2_000_000, r"segments/000001\.seg at offset \d+: File too large"),
        (100_000, 2_000_123, r"segments/000001\.seg at offset \d+: File too large"),
        (10, 400_000, r"index\.sqlite cannot be used"),
    ],
)
def test_a_full_disk_refuses_and_keeps_what_it_said(
    tmp_path: Path, program: Program, padding_bytes: int, bytes_max: int, refusing: str
) -> None:
    """A limit on the size of files stands for the disk: it refuses in the middle of a write."""
    filling = program("fill", tmp_path / "run", padding_bytes, bytes_max)
    output, _ = filling.communicate(timeout=60)
    assert filling.returncode == 0
    lines = [line.split(" ", 2) for line in output.splitlines()]
    recorded = [int(number) for verb, number, *_ in lines if verb == "recorded"]
    refusals = [rest[0] for verb, _, *rest in lines if verb == "refused"]
    assert len(refusals) == 3
    for refusal in refusals:
        assert re.search(refusing, refusal)
        assert "Fix: " in refusal
    assert len(recorded) > 10
    with RunReader(tmp_path / "run") as reader:
        assert [one.seed for one in reader.iter_trajectories()] == recorded
    store = RunStore.open(tmp_path / "run")
    asyncio.run(store.close())
    assert store.recovery.torn_bytes == 0


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory of this test's own that another user can reach, unlike pytest's, whose parents
    belong to every session of this user at once."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-test-", dir="/tmp") as made:
        directory = Path(made)
        directory.chmod(0o755)
        yield directory


@pytest.mark.parametrize("killed", [False, True])
def test_a_closed_directory_is_refused_and_can_be_read(
    reachable: Path, program: Program, *, killed: bool
) -> None:
    """Also as a killed writer leaves it, with the index's log beside it."""
    run = reachable / "run"
    kill_a_writer(program, run, 0, after=8)
    if not killed:
        store = RunStore.open(run)
        asyncio.run(store.close())
    with RunReader(run) as reader:
        count = sum(1 for _ in reader.iter_rows())
    with closed_to_writing(run):
        denied = program("deny", run)
        output, _ = denied.communicate(timeout=60)
    lines = output.splitlines()
    assert lines[0] == f"read {count}"
    assert len(lines) == 3
    for line in lines[1:]:
        assert line.startswith(f"refused {run}")
        assert "Permission denied. Fix: Correct the permissions" in line


@contextmanager
def closed_to_writing(directory: Path) -> Iterator[None]:
    paths = [directory, *directory.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield
    for path in paths:
        if path.exists():
            path.chmod(0o755 if path.is_dir() else 0o644)
