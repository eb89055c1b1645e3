"""Repository tasks that submissions are judged on here: one file, and a package with everything."""

from collections.abc import Mapping

from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, RepositorySuite, Split, Submission, Task

REFERENCE = b"""
def add(a, b):
    return a + b


def order(xs):
    return sorted(xs)


def parse(text):
    if not text:
        raise ValueError("nothing")
    return [int(word) for word in text.split()]
"""

WRONG = b"""
def add(a, b):
    return 0


def order(xs):
    return []


def parse(text):
    return None
"""

TESTS = {
    "checker.py": b"def eq(one, other):\n    return one == other\n",
    "test_hidden.py": b"""
import unittest

import pytest
from checker import eq
from solution import add, order, parse


def test_small():
    want = 12
    assert eq(add(5, 7), 12)


def test_negative():
    assert add(-3, 10) == 7


@pytest.mark.parametrize("a, b, want", [(123, 877, 1000), (2, 2, 4), (-1, 1, 0)])
def test_table(a, b, want):
    assert add(a, b) == want


def test_order():
    xs = [3, 1, 2]
    want = [1, 2, 3]
    assert order(xs) == sorted(xs)
    assert xs == [3, 1, 2]


def test_bad():
    with pytest.raises(ValueError):
        parse("")


class ParseTest(unittest.TestCase):
    def test_words(self):
        expected = [1, 22, 3]
        self.assertEqual(parse("1 22 3"), expected)

    def test_none(self):
        self.assertRaises(ValueError, parse, "")
""",
}

SUITE = RepositorySuite(
    base={}, tests=TESTS, reference={"solution.py": REFERENCE}, sources=("solution.py",)
)

TEXT = b"""
def shout(text):
    return text.upper()
"""

PROJECT = RepositorySuite(
    base={
        "src/yard/__init__.py": b"from yard.text import shout\n",
        "src/yard/text.py": b"def shout(text):\n    return text\n",
        "src/yard/numbers.py": b"LIMIT = 10\n\n\ndef clamp(n):\n    return n\n",
        "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '-x'\n",
        "tests/test_text.py": b"def test_visible():\n    assert True\n",
        "README.md": b"# Yard\n",
    },
    tests={
        "conftest.py": b"""
import pytest


@pytest.fixture
def word():
    return "abc"
""",
        "test_text.py": b"""
import yard


def test_shout(word):
    assert yard.shout(word) == "ABC"


def test_empty():
    assert yard.shout("") == ""
""",
        "deep/test_numbers.py": b"""
import unittest

import pytest
from yard.numbers import LIMIT, clamp

CASES = [(1, 1), (9, 9), (11, 10), (1000, 10)]


@pytest.mark.parametrize(("given", "want"), CASES)
def test_clamp(given, want):
    assert clamp(given) == want


@pytest.mark.skip(reason="never here")
def test_skipped():
    assert False


class Base(unittest.TestCase):
    kind = int

    def setUp(self):
        self.n = 5

    def test_kind(self):
        self.assertIsInstance(clamp(self.n), self.kind)

    def test_all(self):
        for n in (1, 2, 3):
            with self.subTest(n=n):
                self.assertEqual(clamp(n), n)


class Derived(Base):
    def test_limit(self):
        assert clamp(50) == LIMIT == 10
""",
    },
    reference={
        "src/yard/text.py": TEXT,
        "src/yard/numbers.py": b"LIMIT = 10\n\n\ndef clamp(n):\n    return min(n, LIMIT)\n",
    },
    sources=("src/**",),
    protected=("tests/**", "src/yard/__init__.py"),
)


def repository(suite: RepositorySuite = SUITE, *, time_limit_s: float = 5.0) -> Task:
    return Task(
        id=TaskId("repository"),
        family="repositories",
        split=Split.TRAIN,
        revision="1",
        instruction="Make the tests pass.",
        starter="",
        reference="",
        visible=CallSuite(cases=()),
        hidden=suite,
        time_limit_s=time_limit_s,
    )


def left(files: Mapping[str, bytes], **links: str) -> Submission:
    """What an agent left behind."""
    return Submission(files=files, links=links)
