"""Runs the pack's own code on a drawn input, within a bound of steps and of sizes.

Only templates and mutants of templates are run here; nothing a policy wrote ever is. A mutant
may still loop for ever or double a list at each turn, and the generator must stay fast and must
give the same task on every machine, so a clock cannot be the bound. Instead the syntax tree gets
a counter call in every loop and function and a size check behind every assignment.
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, TypeVar, cast

from tiltyard.core.task import MethodCall
from tiltyard.core.values import Value

_T = TypeVar("_T")

STEPS_MAX = 400
"""Loop turns and calls of one case. Far above what a template needs on the small inputs drawn,
and below the interpreter's recursion limit, so that endless recursion ends here as well."""

_SIZE_MAX = 2_000
_INT_BITS_MAX = 256
_FLOAT_TOLERANCE = 1e-9
_ATOMS = frozenset({int, str, bool, type(None)})


class OverrunError(Exception):
    """The code exceeded its bound of steps or sizes; the mutant is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one case ended."""

    value: object
    """What was returned; for a driven object, the list of what its methods returned."""
    raised: str | None
    """Name of the exception; None when the case returned."""
    calls_made: int
    """Method calls that were started on the object; 0 for a function."""
    arguments_changed: bool


class Program:
    """One source, loaded and counted. Not for sharing between threads."""

    __slots__ = ("_steps", "_target")

    def __init__(self, source: str, target: str) -> None:
        """Raises SyntaxError when `source` does not compile."""
        self._steps = 0
        namespace: dict[str, Any] = {"__name__": "solution", "_tick": self._tick, "_sized": _sized}
        exec(_compiled(source), namespace)  # noqa: S102 - template code of this pack
        self._target = cast("Callable[..., Any]", namespace[target])

    def run(self, args: tuple[Value, ...], then: tuple[MethodCall, ...] = ()) -> Ended:
        """One case. Raises OverrunError when it exceeds its bound."""
        self._steps = 0
        given = copied(args)
        value: object = None
        raised = None
        calls_made = 0
        try:
            value = self._target(*given)
            if then:
                results: list[object] = []
                for call in then:
                    calls_made += 1
                    method = getattr(value, call.name)
                    results.append(copied(method(*copied(call.args))))
                value = results
        except OverrunError:
            raise
        except Exception as error:  # noqa: BLE001 - a mutant may raise anything; it is a result
            value, raised = None, type(error).__name__
        return Ended(
            value=value,
            raised=raised,
            calls_made=calls_made,
            arguments_changed=not same(given, args),
        )

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise OverrunError


def same(left: object, right: object) -> bool:
    """Equal in value and in every type, floats within a tolerance.

    Walks the two side by side, so a self-containing `left` ends where a finite `right` does.
    """
    if type(left) is not type(right):
        return False
    if type(left) in _ATOMS:
        return left == right
    if isinstance(left, float) and isinstance(right, float):
        return left == right or math.isclose(
            left, right, rel_tol=_FLOAT_TOLERANCE, abs_tol=_FLOAT_TOLERANCE
        )
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in right)
    return bool(left == right)


def copied(value: _T) -> _T:
    """A copy that shares no mutable container with `value`."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, list):
        return cast("_T", [copied(item) for item in value])
    if isinstance(value, tuple):
        return cast("_T", tuple(copied(item) for item in value))
    if isinstance(value, dict):
        return cast("_T", {key: copied(item) for key, item in value.items()})
    if isinstance(value, set):
        return cast("_T", set(value))
    return value


def _sized(value: object) -> object:
    if isinstance(value, int):
        if value.bit_length() > _INT_BITS_MAX:
            raise OverrunError
    elif isinstance(value, (str, list, tuple, dict, set)) and len(value) > _SIZE_MAX:
        raise OverrunError
    return value


@lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    tree = _Counted().visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), "<repair>", "exec")


class _Counted(ast.NodeTransformer):
    """Adds the counter and the size checks."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._ticking(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._ticking(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._ticking(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = _call("_sized", node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        grown = ast.parse(ast.unparse(node.target), mode="eval").body
        return [node, ast.Expr(_call("_sized", grown))]

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        """Behind `out.extend(more)`: the size of `out`."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as grown)):
                return [node, ast.Expr(_call("_sized", grown))]
            case _:
                return [node]

    def _ticking(self, node: ast.FunctionDef | ast.For | ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_call("_tick")))
        return node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=list(args), keywords=[])
