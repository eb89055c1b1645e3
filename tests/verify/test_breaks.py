"""Attacks that once worked: each was found by trying, and is kept here."""

from pathlib import Path

import pytest

from tiltyard.core.task import CallCase, CallSuite, PytestSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.verify.verifier import Verifier
from verify.tasks import answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

ONE = CallSuite(cases=(CallCase(id="one", target="f", args=(2,), expected=4),))
KILLED_BY_REAL_TIME = """
import ctypes, resource
libc = ctypes.CDLL(None)
try:
    resource.setrlimit(15, (0, 0))
except OSError:
    pass
timer = ctypes.c_int()
libc.timer_create(3, None, ctypes.byref(timer))
libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 1000000, 0, 1000000), None)
while True:
    pass
"""
TOO_IDLE_TO_DIE = """
import os
for _ in range(40):
    try:
        if os.fork() == 0:
            while True:
                pass
    except OSError:
        break
try:
    os.sched_setscheduler(0, 5, os.sched_param(0))
except OSError:
    pass
while True:
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", [KILLED_BY_REAL_TIME, TOO_IDLE_TO_DIE], ids=["rttime", "idle"])
async def test_no_run_escapes_its_zero_by_dying_oddly(verifier: Verifier, source: str) -> None:
    verdict = await verifier.verify(task(ONE, time_limit_s=1.0), answer(source))

    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert verdict.checks[0].status is CheckStatus.TIMEOUT


@pytest.mark.slow
async def test_a_reply_that_fills_a_whole_message_is_too_large(verifier: Verifier) -> None:
    tests = PytestSuite(
        files={"test_f.py": "from solution import f\n\ndef test_f():\n    assert f(2) == 4\n"}
    )
    judged = task(tests, reference="def f(x):\n    return x + x\n")
    large = "def f(x):\n    return bytes(8 * 1024 * 1024 - 27)\n"
    verdict = await verifier.verify(judged, answer(large))

    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert verdict.checks[0].status is CheckStatus.OUTPUT_LIMIT


async def test_arguments_are_kept_also_by_a_call_that_raises(verifier: Verifier) -> None:
    case = CallCase(id="a", target="f", args=([3, 1],), raises="ValueError", arguments_kept=True)
    spoils = "def f(x):\n    x.clear()\n    raise ValueError('no')\n"
    keeps = "def f(x):\n    raise ValueError('no')\n"

    for source, value in ((spoils, 0.0), (keeps, 1.0)):
        verdict = await verifier.verify(task(CallSuite(cases=(case,))), answer(source))
        assert value_of(verdict) == value, verdict


@pytest.mark.parametrize(
    "attempt",
    [
        "os.utime('/dev/null')",
        "os.chmod('/dev/zero', 0o600)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "ctypes.CDLL(None, use_errno=True).inotify_init1(0) < 0 and fail()",
        "os.nice(5)",
    ],
)
async def test_runs_leave_and_see_nothing_of_each_other(verifier: Verifier, attempt: str) -> None:
    before = Path("/dev/null").stat()
    source = f"""
import ctypes, os, socket
def fail():
    raise OSError("refused")
def f(x):
    try:
        {attempt}
    except OSError:
        return x + x
    return "it worked"
"""
    verdict = await verifier.verify(task(ONE), answer(source))

    assert value_of(verdict) == 1.0, verdict
    assert Path("/dev/null").stat().st_mtime_ns == before.st_mtime_ns
