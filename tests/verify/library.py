"""A module of classes, generators, exceptions and such, and ordinary tests of it."""

LIBRARY = '''
"""Shapes and such."""
import asyncio
import contextlib
import functools

LIMIT = 3
POINTS = []


class ShapeError(ValueError):
    def __init__(self, message, code=7):
        super().__init__(message, code)
        self.code = code


class EmptyError(ShapeError, LookupError):
    pass


class Shape:
    """Something with a name."""
    made = 0

    def __init__(self, name="shape"):
        self.name = name
        type(self).made += 1

    @classmethod
    def named(cls, name):
        return cls(name)

    @staticmethod
    def double(x):
        return 2 * x

    @property
    def title(self):
        if not self.name:
            raise EmptyError("no name")
        return self.name.title()

    @title.setter
    def title(self, value):
        self.name = value.lower()

    def __str__(self):
        return f"a {self.name}"

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"


class Square(Shape):
    def larger(self, by):
        self.name += "!" * by
        return self

    def meet(self, other):
        return [self, other, {"both": (self, other)}]


class Bag:
    def __init__(self, *items):
        self.items = dict.fromkeys(items, 1)

    def __len__(self):
        return len(self.items)

    def __bool__(self):
        return "no" not in self.items

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, item):
        return item in self.items

    def __getitem__(self, key):
        return self.items[key]

    def __setitem__(self, key, value):
        self.items[key] = value

    def __delitem__(self, key):
        del self.items[key]

    def __enter__(self):
        self.items["open"] = 1
        return self

    def __exit__(self, kind, error, trace):
        self.items["closed"] = kind and kind.__name__
        return kind is KeyError


def count(n):
    i = 0
    while i < n:
        yield i
        i += 1
    return "done"


def shapes(n):
    return [Square(str(i)) for i in range(n)]


def names(given):
    return [each.name for each in given]


def compose(f, g):
    return lambda x: f(g(x))


def inc(x):
    """Adds one."""
    return x + 1


@functools.lru_cache
def slow(x):
    return x


@contextlib.contextmanager
def opened(name):
    yield Square(name)


async def later(x):
    await asyncio.sleep(0)
    if x < 0:
        raise ShapeError("negative", 9)
    return x * 2


async def ticks(n):
    for i in range(n):
        yield i


def fails(what):
    raise {"shape": ShapeError("bad", 5), "empty": EmptyError("none"), "key": KeyError("k"),
           "os": FileNotFoundError(2, "gone"), "plain": Exception("just so")}[what]


def sort(xs):
    xs.sort()


def _fills(xs):
    xs += [2, 3, 4]
    return len(xs)


fills = _fills
__all__ = ["LIMIT", "Bag", "Shape", "names", "sort"]


def kinds(x):
    return type(x).__name__, list(x) if isinstance(x, range) else x
'''

TESTS = """
import asyncio
import unittest

import pytest
import solution
from solution import *
from solution import Bag, EmptyError, Shape, ShapeError, Square, compose, count, fails, inc


def test_classes():
    square = Square("s")
    assert isinstance(square, Square) and isinstance(square, Shape)
    assert not isinstance(square, Bag) and not isinstance(3, Shape)
    assert isinstance(square, (int, Shape))
    assert issubclass(Square, Shape) and not issubclass(Shape, Square)
    assert Shape.named("x").name == "x" and Shape.double(4) == 8
    assert Shape.__name__ == "Shape" and LIMIT == 3


def test_attributes():
    square = Square("small thing")
    assert square.title == "Small Thing"
    square.title = "BIG"
    assert square.name == "big"
    square.extra = [1, 2]
    assert square.extra == [1, 2]
    del square.extra
    assert not hasattr(square, "extra")
    before = Shape.made
    Shape()
    assert Shape.made == before + 1
    assert str(square) == "a big" and repr(square) == "Square('big')" and f"{square}" == "a big"


def test_objects_go_back():
    one, other = Square("one"), Square("other")
    assert one.larger(2) is one and one.name == "one!!"
    first, second, both = one.meet(other)
    assert first is one and second is other and both["both"][1] is other
    assert solution.names([one, other]) == ["one!!", "other"]
    assert names(solution.shapes(3)) == ["0", "1", "2"]
    assert names(given=[one]) == ["one!!"]


def test_functions_go_back():
    assert compose(inc, inc)(1) == 3
    assert compose(Shape.double, inc)(1) == 4
    assert inc.__name__ == "inc"
    solution.slow(1)
    assert solution.slow.cache_info().misses == 1


def test_containers():
    bag = Bag("a", "b")
    assert len(bag) == 2 and list(bag) == ["a", "b"] and "a" in bag and "z" not in bag
    assert bag["a"] == 1
    bag["c"] = [3]
    assert bag["c"] == [3]
    del bag["a"]
    assert sorted(bag) == ["b", "c"]
    with pytest.raises(KeyError):
        bag["a"]
    assert bag and not Bag("no")


def test_generators():
    assert list(count(4)) == [0, 1, 2, 3]
    numbers = count(2)
    assert iter(numbers) is numbers
    assert next(numbers) == 0 and next(numbers) == 1
    with pytest.raises(StopIteration) as stop:
        next(numbers)
    assert stop.value.value == "done"
    assert [a + b for a, b in zip(count(3), count(3))] == [0, 2, 4]


def test_with():
    with Bag() as bag:
        assert "open" in bag
    assert bag["closed"] is None
    with bag:
        raise KeyError("x")
    assert bag["closed"] == "KeyError"
    with pytest.raises(ValueError):
        with bag:
            raise ValueError("y")
    assert bag["closed"] == "ValueError"
    with pytest.raises(ShapeError):
        with bag:
            fails("shape")
    assert bag["closed"] == "ShapeError"
    with solution.opened("o") as square:
        assert square.name == "o"


def test_exceptions():
    with pytest.raises(ShapeError, match="bad") as caught:
        fails("shape")
    assert caught.value.args == ("bad", 5) and caught.value.code == 5
    assert str(caught.value) == "('bad', 5)"
    for kind in (EmptyError, ShapeError, ValueError, LookupError):
        with pytest.raises(kind):
            fails("empty")
    with pytest.raises(KeyError) as caught:
        fails("key")
    assert caught.value.args == ("k",)
    with pytest.raises(OSError) as caught:
        fails("os")
    assert caught.value.errno == 2
    with pytest.raises(Exception, match="^just so$"):
        fails("plain")
    with pytest.raises(EmptyError):
        Square("").title
    try:
        fails("shape")
    except EmptyError:
        raise AssertionError("too narrow")
    except ShapeError as error:
        assert isinstance(error, ShapeError) and not isinstance(error, EmptyError)
    made = ShapeError("mine", code=3)
    assert made.code == 3 and isinstance(made, ValueError)
    assert issubclass(EmptyError, ShapeError)


def test_async():
    assert asyncio.run(solution.later(4)) == 8

    async def several():
        assert await solution.later(1) == 2
        assert await asyncio.gather(solution.later(1), solution.later(2)) == [2, 4]
        with pytest.raises(ShapeError):
            await solution.later(-1)
        return [each async for each in solution.ticks(3)]

    assert asyncio.run(several()) == [0, 1, 2]


def test_values():
    assert solution.kinds(range(2)) == ("range", [0, 1])
    assert solution.kinds(2j) == ("complex", 2j)
    assert solution.kinds(bytearray(b"x")) == ("bytearray", bytearray(b"x"))
    xs = [3, 1]
    solution.sort(xs)
    assert xs == [3, 1], "arguments go by value"
    assert solution.fills([1]) == 4 and "fills" not in globals()


class TestOld(unittest.TestCase):
    def setUp(self):
        self.bag = Bag("a")

    def test_bag(self):
        self.assertIsInstance(self.bag, Bag)
        self.assertIn("a", self.bag)
        self.assertEqual(len(self.bag), 1)
        with self.assertRaises(ShapeError) as caught:
            fails("shape")
        self.assertEqual(caught.exception.code, 5)
        with self.assertRaisesRegex(ValueError, "bad"):
            fails("shape")
        self.assertRaises(EmptyError, fails, "empty")
"""
