"""What `run` says beside its results."""

import pytest

from tiltyard.cli.run import tell_unenforced
from tiltyard.core.execution import Enforcement, Limit


def test_limits_that_are_not_held_are_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell_unenforced(
        {
            Limit.CPU: Enforcement.NONE,
            Limit.DISK: Enforcement.TMPFS,
            Limit.MEMORY: Enforcement.RLIMIT,
            Limit.OPEN_FILES: Enforcement.RLIMIT,
            Limit.PIDS: Enforcement.NONE,
        }
    )

    captured = capsys.readouterr()
    assert captured.err == (
        "not held for a whole sandbox here: cpu, memory, pids; tiltyard doctor says why\n"
    )
    assert captured.out == ""


def test_where_every_limit_is_held_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tell_unenforced({Limit.CPU: Enforcement.CGROUP})

    assert capsys.readouterr().err == ""
