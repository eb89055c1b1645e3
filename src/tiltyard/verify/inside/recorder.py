"""Hears from pytest how each test went. Runs inside, beside the program that ships it.

What it says are tuples for a channel:

    ("result", test id, status, words)

A status is "passed", "wrong" (an assertion), "exception", "skipped" (also an expected failure),
"gone" (one of the exceptions named to it) or "not_passed".
"""

import linecache
import os
import sys
import traceback
from collections.abc import Callable, Generator
from typing import Any

# Installed plugins are the environment's, not the task's: they must not change how its tests run.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest

TESTS = "/workspace/tests"
WORDS_MAX = 1000


class Recorder:
    """A pytest plugin that says each test's result as soon as the test is torn down."""

    def __init__(
        self, say: Callable[[tuple[Any, ...]], None], gone: tuple[type[BaseException], ...] = ()
    ) -> None:
        self.say = say
        self.gone = gone
        self.ids: list[str] = []
        self.errors: list[str] = []
        self.failed: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.ids = [item.nodeid for item in items]
        # What pytest would say of a failure takes ten times as long as a test, and is not heard.
        silenced: list[Any] = [*items]
        for item in silenced:
            item.repr_failure = item._repr_failure_py = unsaid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(error_lines(str(report.longrepr))[-WORDS_MAX:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        failure = self.failure_of(call, report)
        if failure is not None:
            self.failed.setdefault(report.nodeid, failure)
        if report.when == "teardown":
            status, words = self.failed.get(report.nodeid, ("passed", ""))
            self.say(("result", report.nodeid, status, words))
        return report

    def failure_of(
        self, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> tuple[str, str] | None:
        """Status and words of a phase that did not plainly pass."""
        if report.passed and not hasattr(report, "wasxfail"):
            return None
        return self.status_of(call, report), words_of(call, report)

    def status_of(self, call: pytest.CallInfo[None], report: pytest.TestReport) -> str:
        """How a test failed, in the words of the host's protocol."""
        if call.excinfo is not None and issubclass(call.excinfo.type, self.gone):
            return "gone"
        if report.skipped:
            return "skipped"
        if call.excinfo is None:
            return "not_passed"
        return "wrong" if issubclass(call.excinfo.type, AssertionError) else "exception"


def error_lines(text: str) -> str:
    """Of what pytest says of a file that it could not load, the error without the import machinery
    above it; pytest marks these lines with an E."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(lines) or text


def unsaid(*_: Any, **__: Any) -> str:
    return "failed"


def words_of(call: pytest.CallInfo[None], report: pytest.TestReport) -> str:
    """Where a test failed and with what; values are not shown, because they may be huge."""
    if call.excinfo is None:
        return report.outcome
    where = ""
    for frame, line in traceback.walk_tb(call.excinfo.tb):
        path = frame.f_code.co_filename
        if path.startswith(TESTS):
            where = f"{os.path.basename(path)}:{line}: {linecache.getline(path, line).strip()}"
    return f"{where} - {call.excinfo.exconly()[:WORDS_MAX]}"[:WORDS_MAX]


OFF = (
    *("cacheprovider", "terminal", "unraisableexception", "threadexception", "faulthandler"),
    *("pastebin", "stepwise", "setuponly", "setupplan"),
)
"""Parts of pytest that neither a test nor a fixture needs, and that take a third of a short run."""
WARM = """
import unittest

import pytest


@pytest.fixture
def one():
    yield 1


@pytest.mark.parametrize("n", [1, 2])
def test_warm(n, one, tmp_path, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        n / 0
    assert n == pytest.approx(one)


class Test(unittest.TestCase):
    def test_equal(self):
        self.assertEqual([1], [2])
"""


def options(directory: str) -> list[str]:
    """Nothing of the environment, nothing printed, and no explanation of a failed comparison: to
    set two large values against each other line by line takes longer than any test may."""
    off = [word for name in OFF for word in ("-p", f"no:{name}")]
    return ["-c", "/dev/null", f"--rootdir={directory}", *off, "--assert=plain"]


def warm_up() -> None:
    """Runs pytest once before any run, so that its own imports and caches are paid for here: also
    those of a test that fails."""
    directory = "/tmp/warm"
    os.makedirs(directory)
    with open(f"{directory}/test_warm.py", "w") as file:
        file.write(WARM)
    heard = Recorder(lambda _: None)
    pytest.main([*options(directory), f"{directory}/test_warm.py"], plugins=[heard])
    sys.modules.pop("test_warm", None)
