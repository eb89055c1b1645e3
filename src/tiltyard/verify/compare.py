"""Whether a value is the expected one. Pure; sees only decoded, exact builtin values."""

import math

from tiltyard.core.values import Value


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
