"""The tests' side of split mode: ordinary pytest files against a proxy of the solution's module.

Runs inside a sandbox of its own that no solution ever enters; imports no Tiltyard. Messages to the
host are a u32 length and one encoded value:

    from the host: ("run", module name, file to run, {file name: source}, in place, fixed)
    to the host:   ("ask", request)      -> ("reply", reply) | ("gone", words)
                   ("result", test id, status, words)
                   ("end", [collected test ids], words about collection errors, fixed)

A status is "passed", "wrong", "exception", "gone" or "not_passed". `request` and `reply` are the
candidate's, encoded; the host passes them on unread. What becomes of a reply is in `proxies.py`.
What is fixed with the reference, and None while it runs, is (what `from solution import *` brings
or None, where its objects decide something): a solution can put no names of its own over those of a
test, and its objects have no more to say than the reference's.
"""

import os
import socket
import sys
from collections.abc import Generator

from proxies import Solution, opened
from wire import Host, SolutionGone

# Installed plugins are the environment's, not the task's: they must not change how its tests run.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest

TESTS = "/workspace/tests"
WORDS_MAX = 1000


class Recorder:
    """Hears from pytest itself which tests there are and how each went."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ids: list[str] = []
        self.errors: list[str] = []
        self.failed: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.ids = [item.nodeid for item in items]
        self.host.collecting = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(error_lines(str(report.longrepr))[-WORDS_MAX:])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.host.test = nodeid
        self.host.spoilt = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        spoilt = self.host.spoilt
        clean = report.passed and not hasattr(report, "wasxfail") and spoilt is None
        if not clean and report.nodeid not in self.failed:
            if spoilt is not None and call.excinfo is None:  # the test went over it
                status = "gone" if isinstance(spoilt, SolutionGone) else "exception"
                self.failed[report.nodeid] = (status, f"{type(spoilt).__name__}: {spoilt}")
            else:
                self.failed[report.nodeid] = (status_of(call), words_of(call, report))
        if report.when == "teardown":
            status, words = self.failed.get(report.nodeid, ("passed", ""))
            self.host.send(("result", report.nodeid, status, words))
        return report


def error_lines(text: str) -> str:
    """Of what pytest says of a file that it could not load, the error without the import machinery
    above it; pytest marks these lines with an E."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(lines) or text


def status_of(call: pytest.CallInfo[None]) -> str:
    """How a test failed, in the words of the host's protocol."""
    if call.excinfo is None:
        return "not_passed"
    if issubclass(call.excinfo.type, SolutionGone):
        return "gone"
    return "wrong" if issubclass(call.excinfo.type, AssertionError) else "exception"


def words_of(call: pytest.CallInfo[None], report: pytest.TestReport) -> str:
    """Where a test failed and with what; values are not shown, because they may be huge."""
    if call.excinfo is None:
        return report.outcome
    where = ""
    for entry in call.excinfo.traceback:
        if str(entry.path).startswith(TESTS):
            where = f"{os.path.basename(entry.path)}:{entry.lineno + 1}: {entry.statement}"
    return f"{where} - {call.excinfo.exconly()[:WORDS_MAX]}"[:WORDS_MAX]


def options(directory: str) -> list[str]:
    """Nothing of the environment, nothing printed, and no explanation of a failed comparison: to
    set two large values against each other line by line takes longer than any test may."""
    off = [word for name in ("cacheprovider", "terminal") for word in ("-p", f"no:{name}")]
    return ["-c", "/dev/null", f"--rootdir={directory}", *off, "--assert=plain"]


def serve(channel: socket.socket) -> None:
    """One pytest session over one file."""
    host = opened(channel)
    _, module, chosen, files, host.inplace, fixed = host.receive()
    if fixed is not None:
        host.names, deciding = fixed
        host.deciding, host.deciding_fixed = set(deciding), True
    os.makedirs(TESTS, exist_ok=True)
    for name, source in files.items():
        place = os.path.join(TESTS, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w") as file:
            file.write(source)
    os.chdir(TESTS)
    sys.path.insert(0, TESTS)
    sys.modules[module] = Solution(module, host)
    recorder = Recorder(host)
    pytest.main([*options(TESTS), chosen], plugins=[recorder])
    host.send(
        ("end", recorder.ids, "\n".join(recorder.errors), (host.names, sorted(host.deciding)))
    )


def warm_up() -> None:
    """Runs pytest once before any run, so that its own imports and caches are paid for here."""
    directory = "/tmp/warm"
    os.makedirs(directory)
    with open(f"{directory}/test_warm.py", "w") as file:
        file.write("def test_warm():\n    assert [1] == [1]\n")
    pytest.main([*options(directory), f"{directory}/test_warm.py"])
    sys.modules.pop("test_warm", None)


warm_up()
# A helper module of a task's tests may have one of these names.
for _name in ("codec", "wire", "errors", "proxies"):
    sys.modules.pop(_name, None)
