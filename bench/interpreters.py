"""A line of Python, and a pytest run of one test: by a kept interpreter, and by a new one.

What runs is data in both cases, sent when it is to run. A kept interpreter answers from inside a
sandbox with every limit; a new one is started without any, or in bubblewrap.
"""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from board import Board
from peers import bwrap_argv, bwrap_python, run_program
from race import Act, PeerFailed, System, race
from sandboxes import SPEC
from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.zygotes import ZygoteCells, ZygoteProgram

WALL_S = 30.0
LINE = "print(sum(range(10)) == 45)"
TEST_FILE = "test_one.py"
TEST = "def test_one():\n    assert sorted([3, 1, 2]) == [1, 2, 3]\n"
PYTEST = ("-q", "-p", "no:cacheprovider", TEST_FILE)
PASSED = b"\x00"

_LINES = """\
import socket


def serve(channel):
    exec(compile(channel.recv(4096), "line", "exec"), {})
    channel.sendall(b"\\0")
"""

# The first run is of a test of its own, while the zygote starts: what pytest does only once, its
# runs find done. It leaves nothing that a test could see but loaded modules.
_TESTS = """\
import os
import sys

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest


def run(source, place):
    os.chdir(place)
    with open("test_one.py", "w") as file:
        file.write(source)
    return pytest.main(["-q", "-p", "no:cacheprovider", "test_one.py"])


os.makedirs("/tmp/warm", exist_ok=True)
if run("def test_nothing():\\n    pass\\n", "/tmp/warm") != 0:
    raise RuntimeError("pytest does not run")
sys.modules.pop("test_one", None)
os.chdir("/")


def serve(channel):
    channel.sendall(bytes([run(channel.recv(65536).decode(), "/workspace")]))
"""


async def one_by_one(board: Board) -> None:
    """One script or test at a time, in a new place each time."""
    async with NativeProvider() as provider:
        async with _kept(provider, "line", _LINES, LINE) as kept:
            peers = _new_interpreters(board, "line", ["-c", LINE])
            await race(board, "line", [kept, *peers], paced=True)
        async with _kept(provider, "pytest", _TESTS, TEST) as kept:
            peers = _new_interpreters(board, "pytest", ["-m", "pytest", *PYTEST])
            await race(board, "pytest", [kept, *peers], paced=True)


@asynccontextmanager
async def _kept(
    provider: NativeProvider, bench: str, program: str, source: str
) -> AsyncIterator[System]:
    async with ZygoteCells(
        provider,
        interpreter=provider.interpreter,
        program=ZygoteProgram(files={"bench_run.py": program}, main="bench_run.py"),
        spec=SPEC,
        cells_max=1,
    ) as cells:

        async def once() -> None:
            async with cells.run(wall_s=WALL_S) as run:
                run.send(source.encode())
                if await run.channel.take(1) != PASSED:
                    raise SandboxError(f"{bench} in a kept interpreter did not pass")

        yield System(name="kept-interpreter", once=once)


def _new_interpreters(board: Board, bench: str, arguments: Sequence[str]) -> Iterator[System]:
    argv = [sys.executable, *arguments]
    yield System(name="subprocess", once=_in_a_directory(argv), peer=True)
    try:
        start = [*bwrap_argv(), *bwrap_python()]
    except PeerFailed as error:
        board.leave_out(f"{bench}/bwrap", str(error))
        return
    yield System(name="bwrap", once=_in_a_directory(argv, start), peer=True)


def _in_a_directory(argv: Sequence[str], start: Sequence[str] = ()) -> Act:
    env = {"PATH": os.defpath, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    async def once() -> None:
        with tempfile.TemporaryDirectory(prefix="tiltyard-bench-") as name:
            directory = Path(name)
            (directory / TEST_FILE).write_text(TEST)
            place = ["--bind", name, "/workspace", "--chdir", "/workspace"] if start else []
            await run_program([*start, *place, *argv], cwd=directory, env=env)

    return once
