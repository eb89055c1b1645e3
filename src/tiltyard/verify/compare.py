"""Whether a value is the expected one. Pure; sees only decoded, exact builtin values."""

import math
import reprlib

from tiltyard.core.values import Value

_short = reprlib.Repr()
_short.maxlevel = 5
_short.maxstring = _short.maxother = 160
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = _short.maxdict = 20
SHOWN_CHARACTERS_MAX = 240


def same(expected: Value, got: Value, *, tolerance: float) -> bool:
    """True when `got` has the expected's types throughout and equals it.

    Floats may differ by `tolerance`, relative or absolute; not-a-number equals itself. Depth is
    bounded by the codec, so recursion is too.
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
        keys = {key: key for key in got}
        return len(expected) == len(got) and all(
            key in keys
            and type(key) is type(keys[key])
            and same(value, got[key], tolerance=tolerance)
            for key, value in expected.items()
        )
    if isinstance(expected, (set, frozenset)) and isinstance(got, (set, frozenset)):
        kinds = {item: type(item) for item in got}
        return expected == got and all(type(item) is kinds[item] for item in expected)
    return expected == got


def shown(value: Value) -> str:
    """A short text of a value for evidence; never slow and never an error, whatever the value."""
    try:
        text = _short.repr(value)
    except ValueError:  # an integer with more digits than Python agrees to print
        text = f"<{type(value).__name__} too long to print>"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
