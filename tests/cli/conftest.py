"""The command, run as a user runs it: a process of its own."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sample_command import COMMAND
from tiltyard.core.task import Split
from tiltyard.tasks.repair import make_task

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TILTYARD_RUNS_DIR": str(tmp_path / "runs"),
        "TILTYARD_CACHE_DIR": str(tmp_path / "cache"),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }


@pytest.fixture
def tiltyard(environment: dict[str, str]) -> Tiltyard:
    """Runs the command to its end."""

    def run(*arguments: object, timeout_s: float = 100.0) -> "subprocess.CompletedProcess[str]":
        argv = [str(COMMAND), *map(str, arguments)]
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    return run


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts the command; killed at the test's end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> "subprocess.Popen[str]":
        argv = [str(COMMAND), *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """A script that repairs the first task of `repair:heldout?count=2` and spoils the other."""
    right = make_task(0, split=Split.HELDOUT)
    path = tmp_path / "answers.json"
    path.write_text(
        json.dumps({right.id: [_fenced(right.reference)], "*": ["no code", _fenced("x = 1")]})
    )
    return path


def _fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code.rstrip()}\n```\n"
