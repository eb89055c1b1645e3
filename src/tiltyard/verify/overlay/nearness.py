"""How far from an expected number an answer may be, as a test's own call says. Pure.

A false number must be further off than any right answer; and no further than that asks, or whoever
reads the tests would know it by that.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """How far from a number those are that may be taken for it: the larger of two bounds."""

    relative: float = 0.0
    """Times its size."""
    absolute: float = 0.0

    def reach(self, number: float) -> float:
        """The bound for one number."""
        return max(self.relative * abs(number), self.absolute)


EXACT = Near()
"""Nothing else may be taken for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Close:
    """A call that compares numbers with a tolerance."""

    after: tuple[str, ...] = ()
    """Names of the arguments after what is compared, in their order."""
    own: tuple[str, ...]
    """The tolerances that it may be told."""


_SIDES = {"approx": 1, "isclose": 2, "allclose": 2, "assert_allclose": 2, "assertAlmostEqual": 2}
"""How many of the arguments are what is compared; of other calls all are."""
_CLOSE = {
    "approx": _Close(after=("rel", "abs", "nan_ok"), own=("rel", "abs")),
    "isclose": _Close(own=("rel_tol", "abs_tol")),
    "assertAlmostEqual": _Close(after=("places", "msg", "delta"), own=("places", "delta")),
}
_TOLERANCE_MAX = 1e100
_SILENT = {"nan_ok", "msg"}
"""Arguments that say nothing of how near is near enough."""


def called(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def sides_of(call: ast.Call) -> list[ast.expr]:
    """Its arguments without those that are known to be tolerances."""
    return call.args[: _SIDES.get(called(call))]


def near_of(call: ast.Call) -> Near | None:
    """What a call takes for what it expects; None where only a run would tell."""
    name = called(call)
    close = _CLOSE.get(name)
    if close is None:
        return None
    sides = sides_of(call)
    if _is_narrow(call, len(sides)):
        return EXACT
    told: dict[str, float] = {}
    given = [*zip(close.after, call.args[len(sides) :], strict=False)]
    given += [(each.arg or "", each.value) for each in call.keywords]
    for argument, value in given:
        match value:
            case ast.Constant(value=int() | float() as number) if (
                argument in close.own and abs(number) < _TOLERANCE_MAX
            ):
                told[argument] = float(number)
            case ast.Constant(value=None) if argument in close.own:
                pass
            case _ if argument not in _SILENT:
                return None
    return _near(name, told)


def _near(name: str, told: Mapping[str, float]) -> Near:
    match name:
        case "approx" if "abs" in told and "rel" not in told:
            return Near(absolute=told["abs"])
        case "approx":
            return Near(relative=told.get("rel", 1e-6), absolute=told.get("abs", 1e-12))
        case "isclose":
            return Near(relative=told.get("rel_tol", 1e-9), absolute=told.get("abs_tol", 0.0))
        case _:
            return Near(absolute=told.get("delta", 0.5 * 10.0 ** -told.get("places", 7)))


def widest(nears: Sequence[Near | None]) -> Near | None:
    """The bounds that hold for all; `EXACT` for none of them, None where one is not known."""
    known = [each for each in nears if each is not None]
    if len(known) < len(nears):
        return None
    return Near(
        relative=max((each.relative for each in known), default=0.0),
        absolute=max((each.absolute for each in known), default=0.0),
    )


def _is_narrow(call: ast.Call, arguments: int) -> bool:
    """Whether it is told no tolerance, and its own is too small for another number to be near."""
    numbers = [
        abs(each.value)
        for each in ast.walk(call)
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float)
    ]
    small = all(each == 0 or 0.1 <= each < 100_000 for each in numbers)
    return bool(numbers) and small and len(call.args) == arguments and not call.keywords
