"""Values as text: every `Value` comes back with its types, and hostile text is refused shortly."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from tiltyard.tasks.literals import (
    DEPTH_MAX,
    TEXT_CHARS_MAX,
    LiteralError,
    read_literal,
    write_literal,
)

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | ENCODABLE
    | st.binary(max_size=20),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=12,
)


def typed(value: object) -> object:
    """The value with the type of every part, so that 1, 1.0 and True are three things."""
    match value:
        case list() | tuple():
            return type(value), [typed(item) for item in value]
        case set() | frozenset():
            return type(value), sorted(repr(typed(item)) for item in value)
        case dict():
            return dict, {repr(typed(key)): typed(item) for key, item in value.items()}
        case _:
            return type(value), repr(value)


@pytest.mark.slow
@settings(deadline=None)
@given(value=VALUES)
def test_every_value_comes_back(value: object) -> None:
    assert typed(read_literal(write_literal(value))) == typed(value)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(deadline=None)
@given(
    text=st.text(alphabet="[](){},:'\"\\b01_-+.infset na*\n", max_size=30) | st.text(max_size=30)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = read_literal(text)
    except LiteralError:
        return
    assert typed(read_literal(write_literal(value))) == typed(value)


def test_infinity_and_not_a_number_are_names() -> None:
    assert read_literal("[inf, -inf, 1e999]") == [math.inf, -math.inf, math.inf]
    nan = read_literal("nan")
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert write_literal([math.inf, -math.inf]) == "[inf, -inf]"


def brief(value: object) -> str:
    """A test's name for a parameter that may be huge."""
    return value[:30] if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a Python literal"),
        ("1 +", "not a Python literal"),
        ("hello", "the name 'hello'; strings need quotes"),
        ("1 + 1", "a BinOp"),
        ("2j", "a Constant"),
        ("...", "a Constant"),
        ("f'{1}'", "a JoinedStr"),
        ("__import__('os')", "a Call"),
        ("set([1])", "a Call"),
        ("().__class__", "a Attribute"),
        ("[x for x in [1]]", "a ListComp"),
        ("{**{}}", "holds `\\*\\*`"),
        ("{[]: 1}", "dict key that cannot be hashed"),
        ("{[]}", "set member that cannot be hashed"),
        ("-'a'", "sign before something"),
        ("-True", "sign before something"),
        ("'\\ud800'", "half of a surrogate pair"),
        ("a.b" * 20_000, "Attribute|nested too deeply|not a Python literal"),
        ("1" * 5_000, "not a Python literal"),
        ("0x" + "f" * 5_000, "more than 10000 bits"),
        ("[" * 60 + "]" * 60, f"nested deeper than {DEPTH_MAX}"),
        ("[" * 50_000, "not a Python literal"),
        ("-" * 50_000 + "1", "UnaryOp|nested too deeply"),
        ("\0", "not a Python literal"),
        ("0" * (TEXT_CHARS_MAX + 1), "longer than"),
    ],
    ids=brief,
)
def test_what_is_no_literal_is_refused(text: str, message: str) -> None:
    with pytest.raises(LiteralError, match=message):
        read_literal(text)


class Sly(int):
    """An int that says it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "holds a object"),
        ([1, Sly(3)], "holds a Sly"),
        (2j, "holds a complex"),
        ("\ud800", "surrogate"),
        (1 << 20_000, "more than 10000 bits"),
        (nested(DEPTH_MAX + 1), "nested deeper"),
        ("x" * TEXT_CHARS_MAX, "longer than"),
    ],
    ids=brief,
)
def test_what_is_no_value_cannot_be_written(value: object, message: str) -> None:
    with pytest.raises(LiteralError, match=message):
        write_literal(value)  # type: ignore[arg-type]
