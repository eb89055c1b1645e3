"""The task that submissions are judged on here, once as plain calls and once as pytest files."""

from tiltyard.core.execution import MIB, Limit, Limits, SandboxSpec
from tiltyard.core.ids import TaskId
from tiltyard.core.task import (
    CallCase,
    CallSuite,
    MethodCall,
    PytestSuite,
    Split,
    Submission,
    Task,
)
from tiltyard.core.verdict import Verdict
from tiltyard.verify.reward import reward_of

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=256 * MIB, disk_bytes=32 * MIB, pids=48),
    allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
)

REFERENCE = """
def add(a, b):
    return a + b


def order(xs):
    return sorted(xs)


class Counter:
    def __init__(self):
        self.count = 0

    def up(self, by):
        self.count += by
        return self.count
"""

WRONG = """
def add(a, b):
    return 0


def order(xs):
    return []


class Counter:
    def up(self, by):
        return 0
"""

CALLS = CallSuite(
    cases=(
        CallCase(id="small", target="add", args=(5, 7), expected=12),
        CallCase(id="negative", target="add", args=(-3, 10), expected=7),
        CallCase(id="large", target="add", args=(123, 877), expected=1000),
        CallCase(id="bad", target="add", args=(None, 1), raises="TypeError"),
        CallCase(
            id="order", target="order", args=([3, 1, 2],), expected=[1, 2, 3], arguments_kept=True
        ),
        CallCase(
            id="counter",
            target="Counter",
            then=(MethodCall(name="up", args=(1,)), MethodCall(name="up", args=(2,))),
            expected=[1, 3],
        ),
    )
)

TESTS = PytestSuite(
    files={
        "checker.py": "def eq(one, other):\n    return one == other\n",
        "test_hidden.py": """
import pytest
from checker import eq
from solution import Counter, add, order


def test_small():
    want = 12
    assert eq(add(5, 7), want)


def test_negative():
    assert add(-3, 10) == 7


def test_large():
    expected = 1000
    assert add(123, 877) == expected


def test_bad():
    with pytest.raises(TypeError):
        add(None, 1)


def test_order():
    xs = [3, 1, 2]
    assert eq(order(xs), sorted(xs))
    assert xs == [3, 1, 2]


def test_counter():
    counter = Counter()
    assert [counter.up(1), counter.up(2)] == [1, 3]
""",
    }
)


def task(
    hidden: CallSuite | PytestSuite = CALLS,
    *,
    reference: str = REFERENCE,
    time_limit_s: float = 5.0,
    reference_checked: bool = True,
) -> Task:
    """By default its reference counts as checked: many a suite here is not made for it."""
    return Task(
        id=TaskId("sums"),
        family="sums",
        split=Split.TRAIN,
        revision="1",
        instruction="Add, order, count.",
        starter=WRONG,
        reference=reference,
        visible=CallSuite(cases=()),
        hidden=hidden,
        time_limit_s=time_limit_s,
        reference_checked=reference_checked,
    )


def answer(source: str | bytes, **files: str) -> Submission:
    """A submission of `solution.py` and other files, named with `__` for a dot."""
    raw = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    others = {name.replace("__", "."): text.encode() for name, text in files.items()}
    return Submission(files={"solution.py": raw, **others})


def value_of(verdict: Verdict) -> float | None:
    return reward_of(verdict).value
