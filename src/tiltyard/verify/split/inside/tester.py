"""The tests' side of split mode: ordinary pytest files against a proxy of the solution's module.

Runs inside a sandbox of its own that no solution ever enters; imports no Tiltyard. Messages to the
host are a u32 length and one encoded value:

    from the host: ("run", module name, file to run, {file name: source})
    to the host:   ("ask", request)      -> ("reply", reply) | ("gone", words)
                   ("result", test id, status, words)
                   ("end", [collected test ids], words about collection errors)

A status is "passed", "wrong", "exception", "gone" or "not_passed". `request` and `reply` are the
candidate's, encoded; the host passes them on unread. A reply is hostile: it is decoded within
bounds and becomes a plain value, an exception or a proxy, and nothing else.
"""

import builtins
import os
import socket
import sys
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import codec

# Installed plugins are the environment's, not the task's: they must not change how its tests run.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
TESTS = "/workspace/tests"
WORDS_MAX = 1000
NEVER_RAISED = (KeyboardInterrupt, SystemExit, GeneratorExit)


class SolutionGone(BaseException):
    """The solution ended. Not an Exception, so that no test can expect it by accident."""


class SolutionError(Exception):
    """The solution raised something that is no builtin exception."""


class Host:
    """The channel to the host."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def receive(self) -> Any:
        header = self.exactly(4)
        length = int.from_bytes(header, "little")
        if length > MESSAGE_BYTES_MAX:
            raise SolutionGone("a message over the bound")
        return codec.decode(self.exactly(length))

    def exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.channel.recv(min(count, 1 << 20))
            if not part:
                os._exit(0)  # the host is done with this run
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, message: Any) -> None:
        self.channel.sendall(codec.frame(codec.encode(message)))

    def ask(self, *request: Any) -> tuple[Any, ...]:
        """What the solution answered, as a decoded tuple."""
        self.send(("ask", codec.encode(request)))
        kind, payload = self.receive()
        if kind == "gone":
            raise SolutionGone(payload)
        try:
            reply = codec.decode(payload)
        except codec.BadBytesError as error:
            raise SolutionGone(f"a forged reply: {error}") from None
        if type(reply) is not tuple or not reply:
            raise SolutionGone("a forged reply")
        answered: tuple[Any, ...] = reply
        return answered


def call(host: Host, target: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls in the solution's process; by value, both ways."""
    keep_objects, echo = -1, False
    reply = host.ask("call", target, name, tuple(args), dict(kwargs), keep_objects, echo)
    kind = reply[0]
    if kind == "value":
        return reply[1]
    if kind == "object":
        return Object(host, reply[1], str(reply[2]))
    if kind == "raised":
        raise exception_of(reply[1], reply[2])
    raise SolutionGone(f"a value that may not cross: {reply[1:]}")


def exception_of(names: Any, message: Any) -> Exception:
    """The nearest builtin exception that the solution's names; never one that steers a test run."""
    for name in names if isinstance(names, list) else ():
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            continue
        if kind in (Exception, BaseException) or issubclass(kind, NEVER_RAISED):
            break
        try:
            return kind(str(message)[:WORDS_MAX])
        except TypeError:  # some builtin exceptions want more than a message
            continue
    return SolutionError(f"{names}: {message}"[:WORDS_MAX])


class Object:
    """Something that stays with the solution: its attributes and methods are asked for there."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, host: Host, number: int, kind: str) -> None:
        self.__dict__.update(_host=host, _number=number, _kind=kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return attribute(self._host, self._number, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("objects of the solution cannot be changed from a test")

    def __eq__(self, other: object) -> bool:
        raise TypeError("an object of the solution decides nothing by its own equality")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call(self._host, self._number, "__call__", args, kwargs)

    def __len__(self) -> int:
        return int(call(self._host, self._number, "__len__", (), {}))

    def __getitem__(self, key: Any) -> Any:
        return call(self._host, self._number, "__getitem__", (key,), {})

    def __contains__(self, item: Any) -> bool:
        return bool(call(self._host, self._number, "__contains__", (item,), {}))

    def __repr__(self) -> str:
        return f"<{self._kind} of the solution>"


def attribute(host: Host, target: int, name: str) -> Any:
    reply = host.ask("get", target, name)
    if reply[0] == "value":
        return reply[1]
    if reply[0] == "object":
        return Object(host, reply[1], str(reply[2]))
    if reply[0] == "missing":
        raise AttributeError(name)
    return function(host, target, name)


def function(host: Host, target: int, name: str) -> Callable[..., Any]:
    def proxy(*args: Any, **kwargs: Any) -> Any:
        return call(host, target, name, args, kwargs)

    proxy.__name__ = proxy.__qualname__ = name
    return proxy


class Solution(types.ModuleType):
    """The proxy that tests import.

    Importing a name never fails, so that which tests exist does not depend on the solution;
    calling what is not there does.
    """

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name)
        self.__dict__["_host"] = host

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return attribute(self._host, 0, name)
        except (AttributeError, SolutionGone):
            return function(self._host, 0, name)


class Recorder:
    """Hears from pytest itself which tests there are and how each went."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.ids: list[str] = []
        self.errors: list[str] = []
        self.failed: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.ids = [item.nodeid for item in items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(error_lines(str(report.longrepr))[-WORDS_MAX:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        clean = report.passed and not hasattr(report, "wasxfail")
        if not clean and report.nodeid not in self.failed:
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
    host = Host(channel)
    _, module, chosen, files = host.receive()
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
    host.send(("end", recorder.ids, "\n".join(recorder.errors)))


def warm_up() -> None:
    """Runs pytest once before any run, so that its own imports and caches are paid for here."""
    directory = "/tmp/warm"
    os.makedirs(directory)
    with open(f"{directory}/test_warm.py", "w") as file:
        file.write("def test_warm():\n    assert [1] == [1]\n")
    pytest.main([*options(directory), f"{directory}/test_warm.py"])
    sys.modules.pop("test_warm", None)


warm_up()
