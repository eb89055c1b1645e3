"""Families over dicts from strings to integers: counting, merging, looking up and selecting."""

from tiltyard.tasks.repair.inputs import key, near, table, whole, word
from tiltyard.tasks.repair.template import MAPS, OUTS, SUMS, Template, Topic

_SMALL = ("2", "3", "4", "5", "6")

DICTS_TRAINED: tuple[Template, ...] = (
    Template(
        family="count_chars",
        topic=Topic.DICTS,
        says="Return a dict that says how often each character is in text.",
        source="""
def count_chars(text):
    $out = {}
    for $c in text:
        $out[$c] = $out.get($c, 0) + 1
    return $out
""",
        args=lambda rng, _: (word(rng, "abc"),),
        options={"out": ("out", "counts", "result"), "c": ("c", "ch", "x")},
    ),
    Template(
        family="sum_values",
        topic=Topic.DICTS,
        says="Return the sum of the values of $d that are $k or more.",
        source="""
def sum_values($d):
    $total = 0
    for v in $d.values():
        if v < $k: continue
        $total += v
    return $total
""",
        args=lambda rng, _: (table(rng),),
        options={"d": MAPS, "total": SUMS, "k": _SMALL},
    ),
    Template(
        family="add_stock",
        topic=Topic.DICTS,
        says="Return a copy of $d in which the value of key is greater by n, from 0 if missing.",
        source="""
def add_stock($d, key, n):
    $out = dict($d)
    $out[key] = $out.get(key, 0) + n
    return $out
""",
        args=lambda rng, _: (table(rng), key(rng), whole(rng, 1, 9)),
        options={"d": ("table", "stock", "old"), "out": ("out", "result", "fresh")},
    ),
    Template(
        family="without_key",
        topic=Topic.DICTS,
        says="Return a copy of $d without key.",
        source="""
def without_key($d, key):
    $out = $d.copy()
    if key in $out:
        $out.pop(key)
    return $out
""",
        args=lambda rng, _: (table(rng, shortest=1), key(rng)),
        options={"d": MAPS, "out": ("out", "result", "rest")},
    ),
    Template(
        family="best_key",
        topic=Topic.DICTS,
        says="Return the first key of $d with the greatest value, or an empty string.",
        source="""
def best_key($d):
    $best = ""
    $top = -1
    for k in $d:
        if $d[k] > $top:
            $best = k
            $top = $d[k]
    return $best
""",
        args=lambda rng, _: (table(rng, shortest=1),),
        options={"d": MAPS, "best": ("best", "result", "name"), "top": ("top", "high")},
    ),
    Template(
        family="keys_below",
        topic=Topic.DICTS,
        says="Return the sorted list of the keys of $d whose value is less than $k.",
        source="""
def keys_below($d):
    $out = []
    for k, v in $d.items():
        if v >= $k: continue
        $out.append(k)
    return sorted($out)
""",
        args=lambda rng, picked: (
            {name: near(rng, picked["k"], 3) for name in table(rng, shortest=2)},
        ),
        options={"d": MAPS, "out": OUTS, "k": _SMALL},
    ),
    Template(
        family="merge_sums",
        topic=Topic.DICTS,
        says="Return a new dict with the keys of a and b; values of a common key are added.",
        source="""
def merge_sums(a, b):
    $out = dict(a)
    for $k in b:
        if $k in $out:
            $out[$k] += b[$k]
        else:
            $out[$k] = b[$k]
    return $out
""",
        args=lambda rng, _: (table(rng, longest=4), table(rng, shortest=1, longest=4)),
        options={"out": OUTS, "k": ("k", "key", "name")},
    ),
    Template(
        family="invoice",
        topic=Topic.DICTS,
        says="Return the sum of the prices of names; a name without a price costs $k.",
        source="""
def invoice(prices, names):
    $total = 0
    for $name in names:
        if $name in prices:
            $total += prices[$name]
        else:
            $total += $k
    return $total
""",
        args=lambda rng, _: (table(rng, 1, 9), [key(rng) for _ in range(rng.randint(0, 5))]),
        options={"total": SUMS, "name": ("name", "item", "x"), "k": _SMALL},
    ),
    Template(
        family="scale_values",
        topic=Topic.DICTS,
        says="Return a new dict with the keys of $d and its values times $k.",
        source="""
def scale_values($d):
    $out = {}
    for key in $d:
        $out[key] = $d[key] * $k
    return $out
""",
        args=lambda rng, _: (table(rng, 0, 9, shortest=1),),
        options={"d": MAPS, "out": OUTS, "k": _SMALL},
    ),
)

DICTS_UNSEEN: tuple[Template, ...] = (
    Template(
        family="count_over",
        topic=Topic.DICTS,
        says="Return how many values of $d are greater than $k.",
        source="""
def count_over($d):
    $count = 0
    for key in $d:
        if $d[key] > $k: $count += 1
    return $count
""",
        args=lambda rng, picked: ({name: near(rng, picked["k"], 3) for name in table(rng)},),
        options={"d": MAPS, "count": ("count", "n", "total"), "k": _SMALL},
    ),
    Template(
        family="move_stock",
        topic=Topic.DICTS,
        says="Return a copy of $d in which n is taken from a and added to b, if a has n or more.",
        source="""
def move_stock($d, n):
    $out = dict($d)
    if $out["a"] < n: return $out
    $out["a"] -= n
    $out["b"] += n
    return $out
""",
        args=lambda rng, _: ({"a": whole(rng, 2, 9), "b": whole(rng, 0, 9)}, whole(rng, 1, 6)),
        options={"d": ("table", "stock", "old"), "out": OUTS},
    ),
)
