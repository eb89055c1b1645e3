"""Values that may cross, drawn at random, and what makes two of them the same."""

import math
from typing import Any

from hypothesis import strategies as st

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**60), 10**60),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.binary(max_size=8),
)
KEYS = st.recursive(
    LEAVES.filter(lambda value: not (isinstance(value, float) and math.isnan(value))),
    lambda inner: st.one_of(
        st.tuples(inner, inner), st.frozensets(inner, max_size=3), st.lists(inner).map(tuple)
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=12,
)


def described(value: Any) -> str:
    """A value with the types of everything in it; members of a set in an order of their own."""
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({[described(each) for each in value]})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({sorted(described(each) for each in value)})"
    if isinstance(value, dict):
        pairs = [f"{described(key)}:{described(each)}" for key, each in value.items()]
        return f"dict({pairs})"
    return f"{type(value).__name__}({value!r})"
