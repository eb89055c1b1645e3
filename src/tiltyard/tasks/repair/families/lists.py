"""Families over lists of integers: folds, filters, scans and rebuilding."""

from tiltyard.tasks.repair.inputs import near, whole, wholes
from tiltyard.tasks.repair.template import LISTS, OUTS, SUMS, Template, Topic

_SMALL = ("2", "3", "4", "5")

LISTS_TRAINED: tuple[Template, ...] = (
    Template(
        family="sum_above",
        topic=Topic.LISTS,
        says="Return the sum of the numbers in $xs that are greater than $k.",
        source="""
def sum_above($xs):
    $total = 0
    for x in $xs:
        if x > $k:
            $total += x
    return $total
""",
        args=lambda rng, picked: ([near(rng, picked["k"], 4) for _ in range(rng.randint(0, 7))],),
        options={
            "xs": LISTS,
            "total": SUMS,
            "k": _SMALL,
        },
    ),
    Template(
        family="count_equal",
        topic=Topic.LISTS,
        says="Return how many numbers in $xs are equal to target.",
        source="""
def count_equal($xs, target):
    $count = 0
    for x in $xs:
        if x == target: $count += 1
    return $count
""",
        args=lambda rng, _: (wholes(rng, 0, 3, longest=8), whole(rng, 0, 3)),
        options={
            "xs": LISTS,
            "count": ("count", "n", "total"),
        },
    ),
    Template(
        family="biggest",
        topic=Topic.LISTS,
        says="Return the greatest number in $xs, or $none when $xs is empty.",
        source="""
def biggest($xs):
    if not $xs: return $none
    $best = $xs[0]
    for x in $xs[1:]:
        if x > $best: $best = x
    return $best
""",
        args=lambda rng, _: (wholes(rng, longest=5),),
        options={
            "xs": LISTS,
            "best": ("best", "top", "result"),
            "none": ("0", "1", "None"),
        },
    ),
    Template(
        family="first_index",
        topic=Topic.LISTS,
        says="Return the index of the first number in $xs that is $k or more, or -1.",
        source="""
def first_index($xs):
    for i in range(len($xs)):
        if $xs[i] >= $k: return i
    return -1
""",
        args=lambda rng, picked: ([near(rng, picked["k"], 3) for _ in range(rng.randint(0, 7))],),
        options={
            "xs": LISTS,
            "k": ("2", "3", "4", "5", "6"),
        },
    ),
    Template(
        family="running_sum",
        topic=Topic.LISTS,
        says="Return the list of the sums of the first 1, 2, 3 and so on numbers in $xs.",
        source="""
def running_sum($xs):
    $out = []
    $total = 0
    for x in $xs:
        $total += x
        $out.append($total)
    return $out
""",
        args=lambda rng, _: (wholes(rng, shortest=1),),
        options={
            "xs": LISTS,
            "out": ("out", "sums"),
            "total": ("total", "s"),
        },
    ),
    Template(
        family="rotate",
        topic=Topic.LISTS,
        says="Return $xs with its first k numbers moved to the end.",
        source="""
def rotate($xs, k):
    if not $xs: return []
    $k2 = k % len($xs)
    return $xs[$k2:] + $xs[:$k2]
""",
        args=lambda rng, _: (wholes(rng, longest=6), whole(rng, 0, 8)),
        options={
            "xs": LISTS,
            "k2": ("m", "i", "cut"),
        },
    ),
    Template(
        family="add_last",
        topic=Topic.LISTS,
        says="Return a new list: $xs followed by its own length times $k.",
        source="""
def add_last($xs):
    $out = list($xs)
    $out.append(len($xs) * $k)
    return $out
""",
        args=lambda rng, _: (wholes(rng, 1, 9),),
        options={
            "xs": LISTS,
            "out": OUTS,
            "k": _SMALL,
        },
    ),
    Template(
        family="without",
        topic=Topic.LISTS,
        says="Return a new list of the numbers in $xs that are not target.",
        source="""
def without($xs, target):
    $out = []
    for x in $xs:
        if x != target:
            $out.append(x)
    return $out
""",
        args=lambda rng, _: (wholes(rng, 0, 3, longest=8), whole(rng, 0, 3)),
        options={
            "xs": LISTS,
            "out": OUTS,
        },
    ),
    Template(
        family="pair_sums",
        topic=Topic.LISTS,
        says="Return the list of the sums of each number in $xs and the next one.",
        source="""
def pair_sums($xs):
    $out = []
    for i in range(len($xs) - 1):
        $out.append($xs[i] + $xs[i + 1])
    return $out
""",
        args=lambda rng, _: (wholes(rng),),
        options={
            "xs": LISTS,
            "out": ("out", "result", "sums"),
        },
    ),
    Template(
        family="is_sorted",
        topic=Topic.LISTS,
        says="Return True when no number in $xs is less than the one before it.",
        source="""
def is_sorted($xs):
    for $i in range(1, len($xs)):
        if $xs[$i] < $xs[$i - 1]:
            return False
    return True
""",
        args=lambda rng, _: (
            sorted(wholes(rng, 0, 5, shortest=1, longest=5))
            if rng.random() < 0.5
            else wholes(rng, 0, 5, shortest=1, longest=4),
        ),
        options={
            "xs": LISTS,
            "i": ("i", "k", "pos"),
        },
    ),
    Template(
        family="sum_until",
        topic=Topic.LISTS,
        says="Return the sum of the numbers in $xs before the first one that is $k.",
        source="""
def sum_until($xs):
    $total = 0
    for x in $xs:
        if x == $k: break
        $total += x
    return $total
""",
        args=lambda rng, picked: ([near(rng, picked["k"], 3) for _ in range(rng.randint(0, 7))],),
        options={
            "xs": LISTS,
            "total": SUMS,
            "k": ("0", "3", "4", "5"),
        },
    ),
    Template(
        family="drop_extremes",
        topic=Topic.LISTS,
        says="Return the numbers in $xs in order, without the least and the greatest one.",
        source="""
def drop_extremes($xs):
    if len($xs) < 3: return []
    $out = sorted($xs)
    $out.pop(0)
    $out.pop()
    return $out
""",
        args=lambda rng, _: (wholes(rng, shortest=1),),
        options={
            "xs": LISTS,
            "out": ("out", "result", "rest"),
        },
    ),
    Template(
        family="set_first",
        topic=Topic.LISTS,
        says="Return a copy of $xs whose first number is replaced by value.",
        source="""
def set_first($xs, value):
    $out = $xs[:]
    if $out: $out[0] = value
    return $out
""",
        args=lambda rng, _: (wholes(rng, longest=5), whole(rng)),
        options={
            "xs": ("items", "nums", "row"),
            "out": ("out", "result", "fresh"),
        },
    ),
)

LISTS_UNSEEN: tuple[Template, ...] = (
    Template(
        family="smallest_gap",
        topic=Topic.LISTS,
        says="Return the least distance of two neighbours in $xs, or $none without a pair.",
        source="""
def smallest_gap($xs):
    if len($xs) < 2: return $none
    $best = abs($xs[1] - $xs[0])
    for i in range(2, len($xs)):
        $best = min($best, abs($xs[i] - $xs[i - 1]))
    return $best
""",
        args=lambda rng, _: (wholes(rng, -20, 20, shortest=1, longest=6),),
        options={
            "xs": LISTS,
            "best": ("best", "low", "result"),
            "none": ("0", "-1"),
        },
    ),
    Template(
        family="swap_ends",
        topic=Topic.LISTS,
        says="Return a new list: $xs with its first and last number exchanged.",
        source="""
def swap_ends($xs):
    $out = list($xs)
    if len($out) > 1:
        $out[0] = $xs[-1]
        $out[-1] = $xs[0]
    return $out
""",
        args=lambda rng, _: (wholes(rng),),
        options={
            "xs": LISTS,
            "out": OUTS,
        },
    ),
)
