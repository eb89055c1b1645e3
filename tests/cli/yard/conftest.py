"""The sandbox commands in a runtime directory of their own, whose daemon ends with the test."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sample_command import COMMAND

Sandbox = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    return tmp_path / "runtime"


@pytest.fixture
def environment(runtime: Path, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TILTYARD_RUNTIME_DIR": str(runtime),
        "TILTYARD_CACHE_DIR": str(tmp_path / "cache"),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }


@pytest.fixture
def sandbox(environment: dict[str, str], runtime: Path) -> Iterator[Sandbox]:
    """Runs `tiltyard sandbox ...` to its end. Whatever the test leaves is ended after it."""

    def run(*arguments: object, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(COMMAND), "sandbox", *map(str, arguments)],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    yield run
    run("stop")
    assert not daemons(runtime)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `tiltyard sandbox ...`; killed at the test's end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [str(COMMAND), "sandbox", *map(str, arguments)],
            env=environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def made(sandbox: Sandbox) -> str:
    """The id of a small sandbox."""
    done = sandbox("create", "--memory", "128M", "--pids", 32, "--ttl", "10m")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def daemons(runtime: Path) -> list[int]:
    """The pids of the daemons that serve a runtime directory."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"tiltyard.cli.yard" in words and os.fsencode(runtime) in words:
                found.append(int(process.name))
    return found


def listed(sandbox: Sandbox) -> dict[str, str]:
    """The states by id."""
    done = sandbox("ls", "--json")
    assert done.returncode == 0, done.stderr
    return {row["id"]: row["state"] for row in json.loads(done.stdout)}
