"""Whether a value is the expected one. Pure; sees only decoded, exact builtin values."""

import math
from collections.abc import Hashable, Sequence

from tiltyard.core.task import Compare
from tiltyard.core.values import Value

PAIRED_MAX = 300
"""Members that are looked for one by one; of more, only an order of their own is tried."""


def accepted(compare: Compare, expected: Value, got: Value, *, tolerance: float) -> bool:
    """True when `got` is what a case expects, as `Compare` says."""
    if compare is Compare.ANY_OF and isinstance(expected, (list, tuple)):
        return any(same(each, got, tolerance=tolerance) for each in expected)
    if (
        compare is Compare.UNORDERED
        and isinstance(expected, (list, tuple))
        and isinstance(got, (list, tuple))
    ):
        return (
            type(got) is type(expected)
            and len(got) == len(expected)
            and _same_in_any_order(expected, got, tolerance=tolerance)
        )
    return same(expected, got, tolerance=tolerance)


def _same_in_any_order(
    expected: Sequence[Value], got: Sequence[Value], *, tolerance: float
) -> bool:
    """Whether the members can be paired so that each pair is the same; exact likes first."""
    left = _without_exact(expected, got)
    right = _without_exact(got, expected)
    if len(left) != len(right):
        return False
    # Floats that differ a little have other keys. In the order of their keys most are beside each
    # other, and a few are looked for everywhere.
    if all(same(one, other, tolerance=tolerance) for one, other in zip(left, right, strict=True)):
        return True
    return len(left) <= PAIRED_MAX and _paired(left, right, tolerance=tolerance)


def _without_exact(members: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    """The members that have no exact like among the others, each of which serves for one; in the
    order of their keys."""
    free: dict[Hashable, int] = {}
    for other in others:
        key = _key(other)
        free[key] = free.get(key, 0) + 1
    rest: list[tuple[str, Value]] = []
    for member in members:
        key = _key(member)
        if free.get(key, 0) > 0:
            free[key] -= 1
        else:
            rest.append((_order(member), member))
    return [member for _, member in sorted(rest, key=lambda pair: pair[0])]


def _paired(left: list[Value], right: list[Value], *, tolerance: float) -> bool:
    """Whether there is a perfect matching: for each on the left a free place is found, or made by
    moving others."""
    near = [
        [place for place, other in enumerate(right) if same(one, other, tolerance=tolerance)]
        for one in left
    ]
    holder: dict[int, int] = {}
    for start in range(len(left)):
        came_from: dict[int, int] = {}
        queue = [start]
        free: int | None = None
        while queue and free is None:
            one = queue.pop()
            for place in near[one]:
                if place in came_from:
                    continue
                came_from[place] = one
                if place not in holder:
                    free = place
                    break
                queue.append(holder[place])
        if free is None:
            return False
        _move(holder, came_from, free)
    return True


def _move(holder: dict[int, int], came_from: dict[int, int], free: int) -> None:
    """Gives the free place to who found it, whose old place goes to who found that, and so on."""
    held = {one: place for place, one in holder.items()}
    place: int | None = free
    while place is not None:
        one = came_from[place]
        holder[place] = one
        place = held.get(one)


def _key(value: Value) -> Hashable:
    """The same for values that are the same without any tolerance, and only for those. Of texts,
    because numbers of the same hash can be made on purpose."""
    kind = type(value).__name__
    if isinstance(value, (list, tuple)):
        return kind, tuple(map(_key, value))
    if isinstance(value, (set, frozenset)):
        return kind, frozenset(map(_key, value))
    if isinstance(value, dict):
        return kind, frozenset((_key(key), _key(each)) for key, each in value.items())
    if isinstance(value, float):
        return kind, repr(value + 0.0)  # which makes the two zeros one
    return kind, hex(value) if isinstance(value, int) else value


def _order(value: Value) -> str:
    """A text to sort by, in which near floats are mostly near."""
    if isinstance(value, float):
        return f"{value:+030.6f}" if abs(value) < 1e15 else "~"
    if isinstance(value, (list, tuple)):
        return "\0".join(map(_order, value))
    if isinstance(value, int):
        return f"{value:+030d}" if abs(value) < 10**28 else "~"
    return value if isinstance(value, str) else type(value).__name__


def same(expected: Value, got: Value, *, tolerance: float) -> bool:
    """True when `got` has the expected's types throughout and equals it.

    Floats may differ by `tolerance`, relative or absolute; not-a-number equals itself. Members of
    sets and keys of dicts are found by equality, so there a float must be exact. Depth is bounded
    by the codec, so recursion is too.
    """
    if type(expected) is not type(got):
        return False
    if isinstance(expected, float) and isinstance(got, float):
        if math.isnan(expected) or math.isnan(got):
            return math.isnan(expected) and math.isnan(got)
        return math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)):
        return len(expected) == len(got) and all(
            same(one, other, tolerance=tolerance) for one, other in zip(expected, got, strict=True)
        )
    if isinstance(expected, dict) and isinstance(got, dict):
        return _same_members(expected, got, tolerance=tolerance) and all(
            same(value, got[key], tolerance=tolerance) for key, value in expected.items()
        )
    if isinstance(expected, (set, frozenset)) and isinstance(got, (set, frozenset)):
        return _same_members(dict.fromkeys(expected), dict.fromkeys(got), tolerance=tolerance)
    return expected == got


def _same_members(
    expected: dict[Value, Value], got: dict[Value, Value], *, tolerance: float
) -> bool:
    """Whether the keys are the same, types included: `1`, `1.0` and `True` find each other."""
    members = {key: key for key in got}
    return len(expected) == len(got) and all(
        key in members and same(key, members[key], tolerance=tolerance) for key in expected
    )
