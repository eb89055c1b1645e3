"""Forty pairs of a solution and its reference, and which side of it the solution is on.

Half of the functions do work of a known class and return what their input starts with; the others
are of the kind that one meets. Sizes are such that the steepest of a pair fits into the time.
"""

from dataclasses import dataclass
from textwrap import dedent, indent

from tiltyard.core.checks import Checks, Growth, Inputs
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, Split, Task

NUMBER = "def generate(rng, size):\n    return (size,)\n"
NUMBERS = "def generate(rng, size):\n    return ([rng.randrange(10**6) for _ in range(size)],)\n"
TEXT = "def generate(rng, size):\n    return (''.join(rng.choices('abcd', k=size)),)\n"

WORK = {
    "constant": "for i in range(20): pass",
    "log": """
    while n > 1:
        for i in range(20): pass
        n //= 2
    """,
    "linear": "for i in range(n): pass",
    "n_log_n": """
    step = 1
    while step < n:
        for i in range(n): pass
        step *= 2
    """,
    "quadratic": """
    for i in range(n):
        for j in range(n): pass
    """,
    "cubic": """
    for i in range(n):
        for j in range(n):
            for k in range(n): pass
    """,
    "exponential": """
    def walk(left):
        return 1 if left == 0 else walk(left - 1) + walk(left - 1)
    walk(n)
    """,
}


def working(name: str, times: int) -> str:
    """A function that does work of a class so many times over, and returns its argument."""
    body = indent(dedent(WORK[name]).strip(), "    ")
    repeated = f"def f(n):\n    for _ in range({times}): work(n)\n    return n\n"
    return f"def work(n):\n{body}\n\n{repeated}"


SORTED = "def f(xs):\n    return sorted(xs)[len(xs) // 2]\n"
MERGE_SORT = """
def f(xs):
    def sort(part):
        if len(part) < 2:
            return part
        left, right = sort(part[:len(part) // 2]), sort(part[len(part) // 2:])
        out, i, j = [], 0, 0
        while i < len(left) and j < len(right):
            if left[i] <= right[j]:
                out.append(left[i]); i += 1
            else:
                out.append(right[j]); j += 1
        return out + left[i:] + right[j:]
    return sort(xs)[len(xs) // 2]
"""
BUBBLE_SORT = """
def f(xs):
    xs = list(xs)
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs[len(xs) // 2]
"""
SMALL_N_QUICK = """
def f(xs):
    if len(xs) < 300:
        return sorted(xs)[len(xs) // 2]
    return sorted(xs, key=lambda x: sum(y < x for y in xs))[len(xs) // 2]
"""
DISTINCT_SET = """
def f(xs):
    seen = set()
    for x in xs:
        seen.add(x)
    return len(seen)
"""
DISTINCT_LIST = """
def f(xs):
    seen = []
    for x in xs:
        if x not in seen:
            seen.append(x)
    return len(seen)
"""
FIBONACCI = (
    "def f(n):\n    a, b = 0, 1\n    for _ in range(n): a, b = b, (a + b) % 1000003\n    return a\n"
)
FIBONACCI_TREE = """
def f(n):
    def walk(k):
        return k if k < 2 else walk(k - 1) + walk(k - 2)
    return walk(n) % 1000003
"""
COUNT_RUNS = """
def f(text):
    runs, last = 0, ""
    for letter in text:
        runs += letter != last
        last = letter
    return runs
"""
COUNT_RUNS_BY_CUTTING = """
def f(text):
    runs = 0
    while text:
        runs += 1
        text = text.lstrip(text[0])
    return runs
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One solution beside its reference."""

    name: str
    solution: str
    reference: str
    inputs: str
    slower: bool
    size_min: int = 8
    size_max: int = 100_000


def _made(solution: str, reference: str, *, slower: bool, factor: int = 1) -> Pair:
    return Pair(
        name=f"{solution}{f' x{factor}' if factor > 1 else ''} beside {reference}",
        solution=working(solution, factor),
        reference=working(reference, 1),
        inputs=NUMBER,
        slower=slower,
        size_max=5_000_000,
    )


PAIRS = (
    *(_made(each, each, slower=False) for each in WORK),
    *(_made(each, each, slower=False, factor=4) for each in WORK),
    _made("linear", "constant", slower=True),
    _made("n_log_n", "constant", slower=True),
    _made("quadratic", "constant", slower=True),
    _made("exponential", "constant", slower=True),
    _made("linear", "log", slower=True),
    _made("quadratic", "log", slower=True),
    _made("quadratic", "linear", slower=True),
    _made("cubic", "linear", slower=True),
    _made("exponential", "linear", slower=True),
    _made("quadratic", "n_log_n", slower=True),
    _made("cubic", "quadratic", slower=True),
    _made("exponential", "cubic", slower=True),
    _made("constant", "linear", slower=False),
    _made("log", "quadratic", slower=False),
    _made("linear", "quadratic", slower=False),
    _made("n_log_n", "cubic", slower=False),
    _made("cubic", "exponential", slower=False),
    Pair(name="merge sort", solution=MERGE_SORT, reference=SORTED, inputs=NUMBERS, slower=False),
    Pair(name="bubble sort", solution=BUBBLE_SORT, reference=SORTED, inputs=NUMBERS, slower=True),
    Pair(
        name="small n quick",
        solution=SMALL_N_QUICK,
        reference=MERGE_SORT,
        inputs=NUMBERS,
        slower=True,
    ),
    Pair(
        name="distinct by list",
        solution=DISTINCT_LIST,
        reference=DISTINCT_SET,
        inputs=NUMBERS,
        slower=True,
    ),
    Pair(
        name="distinct by set",
        solution=DISTINCT_SET,
        reference=DISTINCT_LIST,
        inputs=NUMBERS,
        slower=False,
    ),
    Pair(
        name="fibonacci tree",
        solution=FIBONACCI_TREE,
        reference=FIBONACCI,
        inputs=NUMBER,
        slower=True,
        size_max=1_000_000,
    ),
    Pair(
        name="fibonacci trees",
        solution=FIBONACCI_TREE.replace("return k if", "[0] * 5\n        return k if"),
        reference=FIBONACCI_TREE,
        inputs=NUMBER,
        slower=False,
        size_max=1_000_000,
    ),
    Pair(
        name="runs by cutting",
        solution=COUNT_RUNS_BY_CUTTING,
        reference=COUNT_RUNS,
        inputs=TEXT,
        slower=True,
        size_max=4_000_000,
    ),
    Pair(
        name="runs",
        solution=COUNT_RUNS,
        reference=COUNT_RUNS,
        inputs=TEXT,
        slower=False,
        size_max=4_000_000,
    ),
)


def growth_task(pair: Pair, *, seconds_max: float) -> Task:
    """A task that has nothing hidden: only how it grows is looked at."""
    return Task(
        id=TaskId(pair.name),
        family="growth",
        split=Split.TRAIN,
        revision="1",
        instruction="",
        starter="",
        reference=dedent(pair.reference),
        visible=CallSuite(cases=()),
        hidden=CallSuite(cases=()),
        checks=Checks(
            inputs=Inputs(source=pair.inputs, target="f"),
            growth=Growth(size_min=pair.size_min, size_max=pair.size_max, seconds_max=seconds_max),
        ),
    )
