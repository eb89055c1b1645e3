"""A repository's tests in overlay mode, beside the same pytest run with nothing that watches it.

Both run in kept interpreters with the same limits. The other one runs the tests as they are, and
its exit code is believed.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from board import Board
from interpreters import WALL_S
from race import System, race
from sandboxes import SPEC
from tiltyard.core.errors import SandboxError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, RepositorySuite, Split, Submission, Task
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.zygotes import ZygoteCells, ZygoteProgram
from tiltyard.verify.overlay.mode import OverlayMode

TESTS_OF = (10, 100)
PASSED = b"\x00"
PROJECT = {"src/sums/__init__.py": b"def add(a, b):\n    return a + b\n"}

_RUNNER = """\
import json
import os
import sys

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest


def run(files, place):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(place, path)), exist_ok=True)
        with open(os.path.join(place, path), "w") as file:
            file.write(text)
    os.chdir(place)
    sys.path.insert(0, os.path.join(place, "src"))
    return pytest.main(["-q", "-p", "no:cacheprovider", "tests"])


if run({"tests/test_nothing.py": "def test_nothing():\\n    pass\\n"}, "/tmp/warm") != 0:
    raise RuntimeError("pytest does not run")
sys.modules.pop("test_nothing", None)
sys.path.pop(0)
os.chdir("/")


def serve(channel):
    length = int.from_bytes(channel.recv(4), "little")
    text = b""
    while len(text) < length:
        text += channel.recv(1 << 20)
    channel.sendall(bytes([run(json.loads(text), "/workspace")]))
"""


def suite_of(tests: int) -> RepositorySuite:
    text = "from sums import add\n" + "".join(
        f"\n\ndef test_{n}():\n    want = {n + 7}\n    assert add({n}, 7) == want\n"
        for n in range(tests)
    )
    return RepositorySuite(
        base={"src/sums/__init__.py": b"def add(a, b):\n    return 0\n"},
        tests={"test_sums.py": text.encode()},
        reference=PROJECT,
        sources=("src/**",),
    )


async def one_by_one(board: Board) -> None:
    """One verification at a time, of a small and of a larger suite."""
    async with NativeProvider() as provider:
        for tests in TESTS_OF:
            suite = suite_of(tests)
            async with _overlay(provider, suite) as overlay, _plain(provider, suite) as plain:
                await overlay.once()  # what is known of a suite is found once, with its reference
                await race(board, f"overlay-{tests}", [overlay, plain], paced=True)


@asynccontextmanager
async def _overlay(provider: NativeProvider, suite: RepositorySuite) -> AsyncIterator[System]:
    task = Task(
        id=TaskId("sums"),
        family="sums",
        split=Split.TRAIN,
        revision="1",
        instruction="",
        starter="",
        reference="",
        visible=CallSuite(cases=()),
        hidden=suite,
        time_limit_s=WALL_S,
    )
    submission = Submission(files=PROJECT)
    async with OverlayMode(provider, interpreter=provider.interpreter, spec=SPEC) as mode:

        async def once() -> None:
            found = await mode.judge(task, submission)
            if found.tamper or any(check.status != "passed" for check in found.checks):
                raise SandboxError(f"overlay mode did not pass the reference: {found}")

        yield System(name="verified", once=once)


@asynccontextmanager
async def _plain(provider: NativeProvider, suite: RepositorySuite) -> AsyncIterator[System]:
    files = {**PROJECT, **{f"tests/{path}": body for path, body in suite.tests.items()}}
    sent = json.dumps({path: body.decode() for path, body in files.items()}).encode()
    async with ZygoteCells(
        provider,
        interpreter=provider.interpreter,
        program=ZygoteProgram(files={"bench_run.py": _RUNNER}, main="bench_run.py"),
        spec=SPEC,
        cells_max=1,
    ) as cells:

        async def once() -> None:
            async with cells.run(wall_s=WALL_S) as run:
                run.send(len(sent).to_bytes(4, "little") + sent)
                if await run.channel.take(1) != PASSED:
                    raise SandboxError("pytest in a kept interpreter did not pass")

        yield System(name="unwatched", once=once)
