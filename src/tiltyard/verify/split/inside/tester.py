"""The tests' side of split mode: ordinary pytest files against a proxy of the solution's module.

Runs inside a sandbox of its own that no solution ever enters; imports no Tiltyard. Messages to the
host are a u32 length and one encoded value:

    from the host: ("run", module name, file to run, {file name: source}, in place, fixed)
    to the host:   ("ask", request)      -> ("reply", reply) | ("gone", words)
                   ("result", test id, status, words)
                   ("end", [collected test ids], words about collection errors, fixed)

A status is one of `recorder.py`. `request` and `reply` are the
candidate's, encoded; the host passes them on unread. What becomes of a reply is in `proxies.py`.
What is fixed with the reference, and None while it runs, is (what `from solution import *` brings
or None, where its objects decide something): a solution can put no names of its own over those of a
test, and its objects have no more to say than the reference's.
"""

import os
import socket
import sys

from proxies import Solution, opened
from recorder import TESTS, Recorder, options, pytest, warm_up
from wire import Host, SolutionGone


class Listener(Recorder):
    """Also hears what an object of the solution did that a test went over."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.send, gone=(SolutionGone,))
        self.host = host

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        super().pytest_collection_modifyitems(items)
        self.host.collecting = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.host.test = nodeid
        self.host.spoilt = None

    def failure_of(
        self, call: pytest.CallInfo[None], report: pytest.TestReport
    ) -> tuple[str, str] | None:
        spoilt = self.host.spoilt
        if spoilt is None or call.excinfo is not None:
            return super().failure_of(call, report)
        status = "gone" if isinstance(spoilt, SolutionGone) else "exception"
        return status, f"{type(spoilt).__name__}: {spoilt}"


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
    heard = Listener(host)
    pytest.main([*options(TESTS), chosen], plugins=[heard])
    host.send(("end", heard.ids, "\n".join(heard.errors), (host.names, sorted(host.deciding))))


warm_up()
# A helper module of a task's tests may have one of these names.
for _name in ("codec", "channel", "wire", "errors", "proxies"):
    sys.modules.pop(_name, None)
