"""What a solution can do to ordinary tests through what stands for it: nothing but fail them."""

import pytest

from tiltyard.core.task import PytestSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.zygotes import ZygoteCells
from tiltyard.verify.split.candidate import Candidate
from tiltyard.verify.split.mode import program
from tiltyard.verify.split.pytests import Fixed, checks_of, run_file
from tiltyard.verify.verifier import Verifier
from verify.tasks import SPEC, value_of
from verify.test_proxies import judged

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

HONEST = """
class OwnError(ValueError):
    pass


class Thing:
    def __len__(self):
        return 2

    def __iter__(self):
        return iter([1, 2])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


def thing():
    return Thing()


def two():
    return 2


def pairs():
    return {"key": 1}


def fails():
    raise OwnError("no")
"""
TESTS = """
import pytest
from helper import same
from solution import *
from solution import OwnError, Thing, fails, pairs, thing, two


def test_thing():
    assert isinstance(thing(), Thing)
    assert len(thing()) == 2
    assert list(thing()) == [1, 2]
    assert same(two(), 2)


def test_with():
    with thing():
        assert two() == 2


def test_loops():
    assert all(map(lambda wanted: two() == wanted, [2, 2]))


def test_in():
    assert "key" in pairs()


def test_raises():
    with pytest.raises(OwnError):
        assert two() == 2
        fails()


def test_anything():
    try:
        assert two() == 2
    except Exception:
        raise
    except BaseException:
        pass
"""
HELPER = "def same(one, other):\n    return one == other\n"
WRONG = HONEST.replace("return 2\n", "return 3\n").replace('"key"', '"other"')
FORGE = """
import codec
real = codec.encode
def forge(said, *more):
    if said[0] in ("value", "raised", "callable", "missing", "class"):
        return real(FORGED, *more)
    return real(said, *more)
codec.encode = forge
"""


async def rejected(
    verifier: Verifier, source: str, *, time_limit_s: float = 2.0, passed_max: int = 0
) -> set[CheckStatus]:
    verdict = await judged(
        verifier, TESTS, source, reference=HONEST, time_limit_s=time_limit_s, helper=HELPER
    )
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert value_of(verdict) == 0.0
    assert len(verdict.checks) == 6
    assert verdict.passed <= passed_max, verdict.checks
    return {check.status for check in verdict.checks}


async def test_the_honest_one_is_paid(verifier: Verifier) -> None:
    verdict = await judged(verifier, TESTS, HONEST, reference=HONEST, helper=HELPER)
    assert value_of(verdict) == 1.0, verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "",
        # Exceptions that catch too much, or steer a test run.
        *(f"OwnError = {name}" for name in ("Exception", "BaseException", "AssertionError")),
        *(f"OwnError = {name}" for name in ("KeyboardInterrupt", "SystemExit", "StopIteration")),
        "class OwnError(KeyboardInterrupt): pass",
        "class KeyboardInterrupt(SystemExit): pass\nOwnError = KeyboardInterrupt",
        "class Exception(Exception): pass\nOwnError = Exception",
        "import pytest\nOwnError = pytest.skip.Exception",
        "import pytest\ndef two(): pytest.skip('x')",
        "import unittest\ndef two(): raise unittest.SkipTest",
        "OwnError = type('OwnError', (AssertionError, ), {})",
        # Classes and lengths that lie, or never say.
        (
            "class Any(type):\n    __instancecheck__ = lambda *_: True\n"
            "class Thing(metaclass=Any): pass\nthing = lambda: 7"
        ),
        "Thing.__len__ = lambda self: -1",
        "Thing.__len__ = lambda self: 10 ** 40",
        "Thing.__len__ = lambda self: 'two'",
        "Thing.__iter__ = lambda self: 3",
        "Thing.__repr__ = Thing.__str__ = lambda self: 3",
        # What a failed comparison becomes.
        "Thing.__exit__ = lambda *_: True",
        "class Odd(Exception): pass\ndef two(): raise Odd\nThing.__exit__ = lambda *_: True",
        "def two(): raise ValueError\nThing.__exit__ = lambda *_: True",
        # What ends a loop of the test's, and what decides by what is expected.
        "def two(): raise StopIteration",
        "class Stop(StopIteration): pass\ndef two(): raise Stop",
        "Thing.__contains__ = lambda *_: True\npairs = thing",
        (
            "__all__ = ['same', 'list', 'len', 'pytest', 'isinstance', 'test_thing']\n"
            "same = lambda *_: True"
        ),
        "Thing.__eq__ = lambda *_: True\ntwo = thing",
        "import os\ntwo = lambda: os._exit(0)\nThing.__exit__ = lambda *_: True",
        (
            "def two():\n    value = 2\n    for _ in range(10 ** 6):\n        value = [value]\n"
            "    return value"
        ),
        (
            "def two():\n    value = Thing()\n    for _ in range(10**6):\n"
            "        value = (value,)\n    return value"
        ),
        (
            "def two():\n    class E(Exception):\n        def __str__(self): raise SystemExit\n"
            "    raise E({1: object()})"
        ),
        (
            "def two():\n    kind = Exception\n    for _ in range(99):\n"
            "        kind = type('E', (kind,), {})\n    raise kind"
        ),
    ],
)
async def test_lies_are_worth_nothing(verifier: Verifier, more: str) -> None:
    statuses = await rejected(verifier, f"{WRONG}\n{more}\n")
    assert statuses <= {
        *(CheckStatus.WRONG_ANSWER, CheckStatus.EXCEPTION, CheckStatus.NO_REPLY),
        CheckStatus.TIMEOUT,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "forged",
    [
        *("()", "7", "'value'", "('value',)", "('value', 2)", "('value', 2, 3, 4)"),
        *("('passed', 2, None)", "(None, 2)", "('raised',)", "('raised', [], 3, None)"),
        *("('raised', [3], 'x', None)", "('raised', ['KeyboardInterrupt'], 'x', None)"),
        *("('raised', [], 'x', (), object(), 5, None)", "('raised', ['OSError'], 'x', 7, 7, 7, 7)"),
        *(
            "('class', [])",
            "('class', [(5, 'x', [0])])",
            "('class', [(0, 'KeyboardInterrupt', [])])",
        ),
        *("('bad', 'type', 'x')", "('bad',)", "('gone', 'x')", "('callable',)", "('missing',)"),
        *("('value', codec.Handle(-1, '', 'class error len'), None)", "('value', real, None)"),
        "('value', codec.Handle(2 ** 70, '\\ud800', 'error ' * 1000), None)",
        "('value', [object() for _ in range(20_000)], [1])",
    ],
)
async def test_forged_replies_are_the_solutions_doing(verifier: Verifier, forged: str) -> None:
    await rejected(verifier, WRONG + FORGE.replace("FORGED", forged))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "def endless():\n    while True: yield 1\nThing.__iter__ = lambda self: endless()",
        "def hang(self):\n    while True: pass\nThing.__len__ = hang",
        "def hang(self):\n    while True: pass\nThing.__enter__ = two = hang",
        (
            "class Hang(type):\n    def __getattribute__(self, name):\n        while True: pass\n"
            "class Bad(metaclass=Hang): pass\nthing = two = Bad"
        ),
    ],
    ids=["endless", "len", "enter", "class"],
)
async def test_what_never_ends_is_ended(verifier: Verifier, more: str) -> None:
    statuses = await rejected(verifier, f"{HONEST}\n{more}\n", time_limit_s=1.0, passed_max=5)
    assert statuses & {CheckStatus.TIMEOUT, CheckStatus.OUTPUT_LIMIT, CheckStatus.OOM}


async def test_requests_have_a_budget(provider: NativeProvider) -> None:
    tests = (
        "from solution import count\n\ndef test_some():\n    assert sum(count(3)) == 3\n"
        "\ndef test_more():\n    assert sum(count(2)) == 1\n"
    )
    endless = b"def count(n):\n    while True:\n        yield 1\n"
    testers, candidates = (
        ZygoteCells(
            provider,
            interpreter=provider.interpreter,
            program=program(main),
            spec=SPEC,
            cells_max=1,
        )
        for main in ("tester.py", "candidate.py")
    )
    async with (
        testers,
        candidates,
        testers.run(wall_s=20.0) as tester,
        candidates.run(wall_s=20.0) as run,
    ):
        report = await run_file(
            tester=tester,
            candidate=Candidate(run, deadline_s=20.0),
            module="solution",
            source=endless,
            file="test_it.py",
            suite=PytestSuite(files={"test_it.py": tests}),
            fixed=Fixed(),
            deadline_s=20.0,
            requests_max=50,
        )
    checks = checks_of(report.collected, (report,))
    assert [check.status for check in checks] == [CheckStatus.OUTPUT_LIMIT] * 2
    assert "more than 50 requests" in checks[0].evidence
