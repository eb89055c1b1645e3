"""Whether a program printed what it should have. Pure; sees only bytes, of bounded length."""

import math
import re
from itertools import zip_longest

from tiltyard.core.task import CompareOutput
from tiltyard.verify.evidence import plain

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_INTEGER = re.compile(rb"[+-]?\d+")
NUMBER_BYTES_MAX = 400
"""A longer word is compared as text."""
SHOWN_BYTES_MAX = 80


def difference(
    compare: CompareOutput, expected: bytes, got: bytes, *, tolerance: float
) -> str | None:
    """The first difference in words, or None when there is none that counts.

    Of `TOKENS`, two whole numbers are compared exactly, and what Python calls `nan` or `inf` as the
    word that it is. Raises ValueError for a comparison that is not made here.
    """
    match compare:
        case CompareOutput.EXACT:
            return None if got == expected else _first(_whole(expected), _whole(got), "line")
        case CompareOutput.LINES:
            return _first(_lines(expected), _lines(got), "line")
        case CompareOutput.TOKENS:
            return _first(expected.split(), got.split(), "word", tolerance=tolerance)
        case _:
            raise ValueError(f"{compare} is no comparison of texts")


def _whole(text: bytes) -> list[bytes]:
    return text.split(b"\n")


def _lines(text: bytes) -> list[bytes]:
    lines = [line.rstrip() for line in text.split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _first(
    expected: list[bytes], got: list[bytes], what: str, *, tolerance: float | None = None
) -> str | None:
    # Never only as far as the shorter one goes: a right beginning is no right answer.
    for place, (want, have) in enumerate(zip_longest(expected, got), start=1):
        if want == have or (
            tolerance is not None and want and have and _near(want, have, tolerance=tolerance)
        ):
            continue
        if have is None:
            return f"it ends after {what} {place - 1} of {len(expected)}"
        if want is None:
            return f"{what} {place} is {_shown(have)}, expected nothing more"
        return f"{what} {place} is {_shown(have)}, expected {_shown(want)}"
    return None


def _near(want: bytes, have: bytes, *, tolerance: float) -> bool:
    if max(len(want), len(have)) > NUMBER_BYTES_MAX:
        return False
    if not _NUMBER.fullmatch(want) or not _NUMBER.fullmatch(have):
        return False
    if _INTEGER.fullmatch(want) and _INTEGER.fullmatch(have):
        return int(want) == int(have)
    one, other = float(want), float(have)
    finite = math.isfinite(one) and math.isfinite(other)
    return finite and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


def _shown(text: bytes) -> str:
    return repr(plain(text[:SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")))
