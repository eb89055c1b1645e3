"""Families of small classes, each driven by a few calls on one object."""

from random import Random

from tiltyard.core.task import MethodCall
from tiltyard.core.values import Value
from tiltyard.tasks.repair.inputs import key, whole
from tiltyard.tasks.repair.template import Template, Topic

_SMALL = ("2", "3", "4", "5")


def _calls(rng: Random, *names: str, low: int = 0, high: int = 9) -> tuple[MethodCall, ...]:
    """Two to six calls, each name with as many drawn integers as it has `:` behind it."""
    calls = []
    for _ in range(rng.randint(2, 6)):
        name, *places = rng.choice(names).split(":")
        calls.append(MethodCall(name=name, args=tuple(whole(rng, low, high) for _ in places)))
    return tuple(calls)


def _keyed(rng: Random, *names: str) -> tuple[MethodCall, ...]:
    """Three to seven calls; with `:` behind a name, its first argument is a key, a second one an
    integer."""
    calls = []
    for _ in range(rng.randint(3, 7)):
        name, *places = rng.choice(names).split(":")
        numbers = [whole(rng, 1, 9) for _ in places[1:]]
        args: tuple[Value, ...] = (key(rng), *numbers) if places else ()
        calls.append(MethodCall(name=name, args=args))
    return tuple(calls)


CLASSES_TRAINED: tuple[Template, ...] = (
    Template(
        family="counter",
        topic=Topic.CLASSES,
        class_name="Counter",
        says="up adds n times $k, down takes n off, not below 0; both return the count.",
        source="""
class Counter:
    def __init__(self, start):
        self.$count = start

    def up(self, n):
        self.$count += n * $k
        return self.$count

    def down(self, n):
        self.$count = max(0, self.$count - n)
        return self.$count
""",
        args=lambda rng, _: (whole(rng, 0, 9),),
        calls=lambda rng, _: _calls(rng, "up:", "down:"),
        options={"count": ("count", "n", "total"), "k": _SMALL},
    ),
    Template(
        family="account",
        topic=Topic.CLASSES,
        class_name="Account",
        says="add and take return the balance; take of more than it is a ValueError. Fee: $k.",
        source="""
class Account:
    def __init__(self, $money):
        self.$money = $money

    def add(self, n):
        self.$money += n
        return self.$money

    def take(self, n):
        if n + $k > self.$money: raise ValueError
        self.$money -= n + $k
        return self.$money
""",
        args=lambda rng, _: (whole(rng, 4, 15),),
        calls=lambda rng, _: _calls(rng, "add:", "take:", high=7),
        options={"money": ("money", "balance", "cash"), "k": ("1", "2", "3")},
    ),
    Template(
        family="stack",
        topic=Topic.CLASSES,
        class_name="Stack",
        says="push adds x on top and returns the size; pop takes the top off, $none if empty.",
        source="""
class Stack:
    def __init__(self):
        self.$items = []

    def push(self, x):
        self.$items.append(x)
        return len(self.$items)

    def pop(self):
        if not self.$items: return $none
        return self.$items.pop()
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _calls(rng, "push:", "push:", "pop"),
        options={"items": ("items", "parts", "pile"), "none": ("None", "0", "-1")},
    ),
    Template(
        family="queue",
        topic=Topic.CLASSES,
        class_name="Queue",
        says="put adds x at the end, False when $k are in; get takes the first out, 0 if empty.",
        source="""
class Queue:
    def __init__(self):
        self.$items = []

    def put(self, x):
        if len(self.$items) >= $k: return False
        self.$items.append(x)
        return True

    def get(self):
        if not self.$items: return 0
        return self.$items.pop(0)
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _calls(rng, "put:", "put:", "put:", "get"),
        options={"items": ("items", "parts", "line"), "k": ("2", "3")},
    ),
    Template(
        family="meter",
        topic=Topic.CLASSES,
        class_name="Meter",
        says="add counts a reading and returns the sum; mean is the whole part of the average.",
        source="""
class Meter:
    def __init__(self):
        self.$total = 0
        self.$count = 0

    def add(self, x):
        self.$total += x
        self.$count += 1
        return self.$total

    def mean(self):
        if self.$count == 0: return 0
        return self.$total // self.$count
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _calls(rng, "add:", "add:", "mean"),
        options={"total": ("total", "sum"), "count": ("count", "n", "size")},
    ),
    Template(
        family="stock",
        topic=Topic.CLASSES,
        class_name="Stock",
        says="put adds n of name and returns how many there are; left says it, 0 if unknown.",
        source="""
class Stock:
    def __init__(self):
        self.$table = {}

    def put(self, name, n):
        old = self.$table.get(name, 0)
        self.$table[name] = old + n
        return old + n

    def left(self, name):
        return self.$table.get(name, 0)
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _keyed(rng, "put::", "put::", "left:"),
        options={"table": ("table", "parts", "counts", "items")},
    ),
    Template(
        family="range_box",
        topic=Topic.CLASSES,
        class_name="Range",
        says="has tells whether low <= x < high; grow widens both ends by n, returns the width.",
        source="""
class Range:
    def __init__(self, $low, $high):
        self.$low = $low
        self.$high = $high

    def has(self, x):
        return self.$low <= x and x < self.$high

    def grow(self, n):
        self.$low -= n
        self.$high += n
        return self.$high - self.$low
""",
        args=lambda rng, _: (whole(rng, 0, 4), whole(rng, 5, 9)),
        calls=lambda rng, _: _calls(rng, "has:", "has:", "grow:", high=12),
        options={"low": ("low", "a", "start"), "high": ("high", "b", "end")},
    ),
    Template(
        family="walker",
        topic=Topic.CLASSES,
        class_name="Walker",
        says="go moves by dx and dy; far returns the distance from the start along both axes.",
        source="""
class Walker:
    def __init__(self, $x, $y):
        self.$x = $x
        self.$y = $y

    def go(self, dx, dy):
        self.$x += dx
        self.$y += dy
        return [self.$x, self.$y]

    def far(self):
        return abs(self.$x) + abs(self.$y)
""",
        args=lambda rng, _: (whole(rng, -5, 5), whole(rng, -5, 5)),
        calls=lambda rng, _: _calls(rng, "go::", "go::", "far", low=-5, high=5),
        options={"x": ("x", "a", "row"), "y": ("y", "b", "col")},
    ),
    Template(
        family="high_score",
        topic=Topic.CLASSES,
        class_name="Score",
        says="play counts a game and returns the best so far; bonus is games times $k.",
        source="""
class Score:
    def __init__(self):
        self.$best = 0
        self.$games = 0

    def play(self, n):
        self.$games += 1
        if n > self.$best: self.$best = n
        return self.$best

    def bonus(self):
        return self.$games * $k
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _calls(rng, "play:", "play:", "bonus"),
        options={"best": ("best", "top"), "games": ("games", "count", "n"), "k": _SMALL},
    ),
)

CLASSES_UNSEEN: tuple[Template, ...] = (
    Template(
        family="tank",
        topic=Topic.CLASSES,
        class_name="Tank",
        says="fill adds n up to the size, drain takes n off down to 0; both return the level.",
        source="""
class Tank:
    def __init__(self, size):
        self.size = size
        self.$level = 0

    def fill(self, n):
        self.$level = min(self.size, self.$level + n)
        return self.$level

    def drain(self, n):
        self.$level = max(0, self.$level - n)
        return self.$level
""",
        args=lambda rng, _: (whole(rng, 6, 12),),
        calls=lambda rng, _: _calls(rng, "fill:", "fill:", "drain:"),
        options={"level": ("level", "n", "amount")},
    ),
    Template(
        family="votes",
        topic=Topic.CLASSES,
        class_name="Votes",
        says="vote counts $k votes for name and returns its votes; lead is the most of any name.",
        source="""
class Votes:
    def __init__(self):
        self.$table = {}

    def vote(self, name):
        n = self.$table.get(name, 0) + $k
        self.$table[name] = n
        return n

    def lead(self):
        if not self.$table: return 0
        return max(self.$table.values())
""",
        args=lambda _rng, _: (),
        calls=lambda rng, _: _keyed(rng, "vote:", "vote:", "vote:", "lead"),
        options={"table": ("table", "counts"), "k": ("1", "2", "3")},
    ),
)
