"""Families that call themselves: on numbers, lists, strings and nested lists."""

from random import Random

from tiltyard.tasks.repair.inputs import near, whole, wholes, word
from tiltyard.tasks.repair.template import LISTS, TEXTS, Template, Topic

_SMALL = ("2", "3", "4", "5")

RECURSION_TRAINED: tuple[Template, ...] = (
    Template(
        family="factorial",
        topic=Topic.RECURSION,
        says="Return the product of the whole numbers from 1 to n, times $k.",
        source="""
def factorial(n):
    if n <= 1: return $k
    $rest = factorial(n - 1)
    return n * $rest
""",
        args=lambda rng, _: (whole(rng, 0, 14),),
        options={"k": ("1", *_SMALL), "rest": ("rest", "less", "before")},
    ),
    Template(
        family="series",
        topic=Topic.RECURSION,
        says="Return number n of the series that starts $a, $b; each is the sum of two before.",
        source="""
def series(n, $a, $b):
    if n == 0: return $a
    return series(n - 1, $b, $a + $b)
""",
        args=lambda rng, _: (whole(rng, 0, 9), whole(rng, 0, 5), whole(rng, 1, 5)),
        options={"a": ("a", "x", "first"), "b": ("b", "y", "second")},
    ),
    Template(
        family="gcd",
        topic=Topic.RECURSION,
        says="Return the greatest common divisor of $a and $b.",
        source="""
def gcd($a, $b):
    if $b == 0: return $a
    return gcd($b, $a % $b)
""",
        args=lambda rng, _: _factored(rng, whole(rng, 1, 7)),
        options={"a": ("a", "x", "n"), "b": ("b", "y", "m")},
    ),
    Template(
        family="sum_list",
        topic=Topic.RECURSION,
        says="Return the sum of the numbers in $xs, plus $k.",
        source="""
def sum_list($xs):
    if not $xs: return $k
    $rest = sum_list($xs[1:])
    return $xs[0] + $rest
""",
        args=lambda rng, _: (wholes(rng),),
        options={"xs": LISTS, "k": ("0", "1", "2", "3"), "rest": ("rest", "total", "s")},
    ),
    Template(
        family="flatten",
        topic=Topic.RECURSION,
        says="Return all numbers of the nested list $xs in order, as one flat list.",
        source="""
def flatten($xs):
    $out = []
    for x in $xs:
        if isinstance(x, list):
            $out.extend(flatten(x))
        else:
            $out.append(x)
    return $out
""",
        args=lambda rng, _: (_nested(rng, 2),),
        options={"xs": LISTS, "out": ("out", "result", "flat")},
    ),
    Template(
        family="reverse_word",
        topic=Topic.RECURSION,
        says="Return $s backwards.",
        source="""
def reverse_word($s):
    if len($s) <= 1: return $s
    $rest = reverse_word($s[1:])
    return $rest + $s[0]
""",
        args=lambda rng, _: (word(rng, longest=7),),
        options={"s": TEXTS, "rest": ("rest", "tail", "out")},
    ),
    Template(
        family="count_in",
        topic=Topic.RECURSION,
        says="Return how many numbers of $xs are greater than $k.",
        source="""
def count_in($xs):
    if not $xs: return 0
    $rest = count_in($xs[1:])
    if $xs[0] > $k: return $rest + 1
    return $rest
""",
        args=lambda rng, picked: ([near(rng, picked["k"], 4) for _ in range(rng.randint(0, 8))],),
        options={"xs": LISTS, "k": _SMALL, "rest": ("rest", "count", "n")},
    ),
    Template(
        family="to_binary",
        topic=Topic.RECURSION,
        says="Return the digits of n, 0 or more, in base $k as a string.",
        source="""
def to_binary(n):
    if n < $k: return str(n)
    $rest = to_binary(n // $k)
    return $rest + str(n % $k)
""",
        args=lambda rng, _: (whole(rng, 0, 120),),
        options={"k": ("2", "3", "4", "5", "6"), "rest": ("rest", "head", "out")},
    ),
    Template(
        family="find_half",
        topic=Topic.RECURSION,
        says="Return the index of target in the sorted list $xs from low to high - 1, or -1.",
        source="""
def find_half($xs, target, low, high):
    if low >= high: return -1
    $mid = (low + high) // 2
    if $xs[$mid] == target: return $mid
    if $xs[$mid] < target: low = $mid + 1
    else: high = $mid
    return find_half($xs, target, low, high)
""",
        args=lambda rng, _: _search(rng),
        options={"xs": ("items", "xs", "nums"), "mid": ("mid", "m", "i")},
    ),
)

RECURSION_UNSEEN: tuple[Template, ...] = (
    Template(
        family="sum_digits",
        topic=Topic.RECURSION,
        says="Return the sum of the decimal digits of n, each times $k.",
        source="""
def sum_digits(n):
    if n == 0: return 0
    $rest = sum_digits(n // 10)
    return $rest + n % 10 * $k
""",
        args=lambda rng, _: (whole(rng, 0, 9999),),
        options={"k": _SMALL, "rest": ("rest", "total", "s")},
    ),
    Template(
        family="depth",
        topic=Topic.RECURSION,
        says="Return how deeply the list $xs is nested; a flat list has depth 1.",
        source="""
def depth($xs):
    $best = 0
    for x in $xs:
        if isinstance(x, list):
            $best = max($best, depth(x))
    return $best + 1
""",
        args=lambda rng, _: (_nested(rng, rng.randint(1, 4)),),
        options={"xs": LISTS, "best": ("best", "top", "result")},
    ),
)


def _factored(rng: Random, factor: int) -> tuple[int, int]:
    return factor * whole(rng, 1, 12), factor * whole(rng, 0, 12)


def _nested(rng: Random, levels: int) -> list[object]:
    """A list of numbers and of lists down to `levels` more levels."""
    return [
        _nested(rng, levels - 1) if levels and rng.random() < 0.5 else whole(rng)
        for _ in range(rng.randint(1, 3))
    ]


def _search(rng: Random) -> tuple[object, ...]:
    items = sorted({whole(rng, 0, 20) for _ in range(rng.randint(1, 7))})
    target = rng.choice(items) if rng.random() < 0.7 else whole(rng, 0, 20)
    return items, target, 0, len(items)
