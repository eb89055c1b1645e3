"""Whether a value is the expected one, types and all; and words about values, safe to show."""

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.task import Compare
from tiltyard.verify.compare import PAIRED_MAX, accepted, same
from tiltyard.verify.evidence import SHOWN_CHARACTERS_MAX, plain, shown
from tiltyard.verify.inside import codec
from verify.values import VALUES, described


def equal(expected: Any, got: Any, *, tolerance: float = 1e-9) -> bool:
    return same(expected, got, tolerance=tolerance)


@given(value=VALUES)
@pytest.mark.slow
def test_a_value_is_the_same_as_its_copy(value: Any) -> None:
    copy = codec.decode(codec.encode(value))
    assert equal(value, copy)
    assert equal(copy, value)


@given(one=VALUES, other=VALUES)
@pytest.mark.slow
def test_two_values_are_the_same_when_their_descriptions_are(one: Any, other: Any) -> None:
    assert equal(one, other, tolerance=0.0) == equal(other, one, tolerance=0.0)
    if described(one) == described(other):
        assert equal(one, other, tolerance=0.0)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, True),
        (1, 1.0),
        (0, False),
        ("1", 1),
        (b"a", "a"),
        ([1], (1,)),
        ({1}, frozenset({1})),
        ([1, [2]], [1, [2.0]]),
        ({1: 2}, {True: 2}),
        ({1: 2}, {1: 2.0}),
        ({1, 2}, {True, 2}),
        ({(1, 2)}, {(1.0, 2)}),
        ({(1, 2): 3}, {(True, 2): 3}),
        ({frozenset({1})}, {frozenset({True})}),
        ({(1, frozenset({(2,)}))}, {(1, frozenset({(2.0,)}))}),
        ([1, 2], [2, 1]),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [1]),
        ({1: 2}, {1: 2, 3: 4}),
        ({1, 2}, {1}),
        (None, 0),
        (None, False),
        ("", None),
        (0.1, 0.2),
        (math.nan, 0.0),
        (0.0, math.nan),
        (math.inf, 1e308),
        (math.inf, -math.inf),
    ],
    ids=repr,
)
def test_what_is_not_the_same(expected: Any, got: Any) -> None:
    assert not equal(expected, got)
    assert not equal(got, expected)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (0.3, 0.1 + 0.2),
        (math.nan, math.nan),
        ([math.nan, {"a": 0.3}], [math.nan, {"a": 0.1 + 0.2}]),
        (math.inf, math.inf),
        (0.0, -0.0),
        ({1: "a", 2: "b"}, {2: "b", 1: "a"}),
        ({3, 1, 2}, {1, 2, 3}),
        (1e300, 1e300 * (1 + 1e-12)),
    ],
    ids=repr,
)
def test_what_is_the_same(expected: Any, got: Any) -> None:
    assert equal(expected, got)


def test_the_tolerance_is_the_suites() -> None:
    assert equal(1.0, 1.05, tolerance=0.1)
    assert not equal(1.0, 1.05, tolerance=0.01)
    assert equal(1.0, 1.0, tolerance=0.0)


@given(value=VALUES)
@pytest.mark.slow
def test_any_value_has_short_printable_words(value: Any) -> None:
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= SHOWN_CHARACTERS_MAX + 3


def test_words_about_huge_values_are_short_and_quick() -> None:
    huge: list[Any] = [
        "x" * 8_000_000,
        b"\0" * 8_000_000,
        1 << 50_000_000,
        [1 << 20_000] * 10,
        [b"\0" * 400_000] * 20,
        dict.fromkeys(range(5000), "x" * 1000),
    ]
    for value in huge:
        text = shown(value)
        assert len(text) <= SHOWN_CHARACTERS_MAX + 3
        assert text.isprintable()


@given(text=st.text(st.characters(), max_size=400))
def test_words_of_a_solution_are_made_harmless(text: str) -> None:
    clean = plain(text)
    assert clean.isprintable()
    clean.encode("utf-8")


def test_ordinary_words_stay_as_they_are() -> None:
    assert plain("list index out of range: café 😀") == "list index out of range: café 😀"
    assert plain("a\x1b[31mb\n\ud800\x00") == "a\\x1b[31mb\\n\\ud800\\x00"
    assert plain("x" * 301) == "x" * 300 + "..."


def unordered(expected: Any, got: Any, *, tolerance: float = 1e-9) -> bool:
    return accepted(Compare.UNORDERED, expected, got, tolerance=tolerance)


@given(members=st.lists(VALUES, max_size=6), seed=st.randoms())
@pytest.mark.slow
def test_any_order_is_accepted(members: list[Any], seed: Any) -> None:
    mixed = list(members)
    seed.shuffle(mixed)
    assert unordered(members, mixed)
    assert unordered(tuple(members), tuple(mixed))
    assert not unordered(members, tuple(mixed))
    assert not unordered(members, [*mixed, None])
    if members:
        assert not unordered(members, mixed[1:])


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        ([1, 2, 2], [2, 1, 2], True),
        ([1, 2, 2], [2, 1, 1], False),
        ([1, 2], [1.0, 2], False),
        ([1, 0], [True, 0], False),
        ([[1, 2], [3]], [[3], [1, 2]], True),
        ([[1, 2], [3]], [[3], [2, 1]], False),
        ([0.1 + 0.2, 1.0], [1.0, 0.3], True),
        ([float("nan"), 1.0], [1.0, float("nan")], True),
        ([float("nan"), 1.0], [1.0, 1.0], False),
        ([0.0, -0.0], [-0.0, -0.0], True),
        ([{"a": 0.3}, {"a": 2}], [{"a": 2}, {"a": 0.1 + 0.2}], True),
        ({1, 2}, {2, 1}, True),
        ([1], 1, False),
        (3, 3, True),
    ],
)
def test_members_in_any_order(expected: Any, got: Any, right: bool) -> None:
    assert unordered(expected, got) == right


def test_a_greedy_choice_does_not_decide() -> None:
    """0.91 is near to both: paired with 0.0 it leaves one for 1.8."""
    assert unordered([[1.8], [0.91]], [[0.9], [0.0]], tolerance=0.95)
    assert unordered([(2.0, 1), (1.0, 1), (3.0, 1)], [(3.9, 1), (2.9, 1), (1.9, 1)], tolerance=0.95)
    assert not unordered([[0.0], [0.5], [5.0]], [[0.2], [4.9], [5.1]], tolerance=0.3)


def test_many_members_cost_little() -> None:
    prime = (1 << 61) - 1
    many = [n * prime for n in range(30_000)]
    assert unordered(many, many[::-1])
    floats = [n / 7 for n in range(30_000)]
    assert unordered(floats, [each + 1e-13 for each in reversed(floats)])
    wrong = [each + 0.01 for each in floats]
    assert not unordered(floats, wrong)
    assert len(floats) > PAIRED_MAX


def test_one_of_several() -> None:
    for compare, right in ((Compare.ANY_OF, True), (Compare.EXACT, False)):
        assert accepted(compare, [1, [2.0]], [2.0 + 1e-12], tolerance=1e-9) == right
    assert not accepted(Compare.ANY_OF, [1, 2], [1, 2], tolerance=0)
    assert not accepted(Compare.ANY_OF, [1, 2], "1", tolerance=0)
    assert not accepted(Compare.ANY_OF, [], [], tolerance=0)
