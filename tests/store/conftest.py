"""Programs that write or follow a run in a process of their own, so that it can be killed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "run_program.py"


@pytest.fixture
def program(repository: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start `run_program.py` with these arguments; killed at the test's end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
        paths = [str(repository / "tests"), os.environ.get("PYTHONPATH", "")]
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
