"""`tiltyard verify` killed half-way: it has printed no number, and leaves no process behind."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sandbox.processes import descendants
from tasks.directories import FUNCTION, PROGRAM, REPOSITORY, SCRIPT, lay

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

GONE_S_MAX = 20
SAMPLED = ("split",)
FOR_EVER = "while True:\n    pass\n"
LIMIT = "time_limit_s = 60\n"
HALVES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "split": (
        {**FUNCTION, "task.toml": FUNCTION["task.toml"] + LIMIT},
        {"solution.py": FOR_EVER},
    ),
    "program": (
        {**PROGRAM, "task.toml": PROGRAM["task.toml"] + LIMIT, "tests/deep/two.in": "0\n"},
        {"solution.py": FOR_EVER},
    ),
    "overlay": (REPOSITORY, {"src/p/__init__.py": FOR_EVER}),
    "script": (
        {**SCRIPT, "tests/test.sh": "sh made/run.sh\n" + SCRIPT["tests/test.sh"]},
        {"made/run.sh": "sleep 60\n"},
    ),
}


@pytest.mark.parametrize(
    "mode",
    [mode if mode in SAMPLED else pytest.param(mode, marks=pytest.mark.long) for mode in HALVES],
)
def test_killed_half_way_it_gives_no_number_and_leaves_nothing(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path, mode: str
) -> None:
    files, left = HALVES[mode]
    task, submission = lay(tmp_path / "task", files), lay(tmp_path / "left", left)
    process = start("verify", task, submission)
    assert process.stderr is not None
    # It says so when judging takes long, and by then it has its sandboxes.
    assert " after 5 s" in process.stderr.readline()
    below = [pid for each in descendants(process.pid) if (pid := opened(each)) is not None]
    assert len(below) >= 3, "launcher, supervisor and what runs"
    try:
        process.send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        assert (process.returncode, said) == (-signal.SIGKILL, "")
        for pid in below:
            ended, _, _ = select.select([pid], [], [], GONE_S_MAX)
            assert ended, "a process of its sandboxes lives on"
    finally:
        for pid in below:
            os.close(pid)


def opened(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None when it had already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
