"""Edits inside an expression: operators, constants, names, calls.

Theory of operation: a node's positions say which columns of which line it covers; an `Edit`
replaces a range of columns of one line. The text between two operands holds the operator and
perhaps parentheses, so an operator is exchanged within that text only.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class FaultKind(StrEnum):
    """What was done to the faulty line."""

    OPERATOR = "operator"
    COMPARISON = "comparison"
    OFF_BY_ONE = "off_by_one"
    WRONG_VARIABLE = "wrong_variable"
    WRONG_INITIAL_VALUE = "wrong_initial_value"
    DROPPED_BRANCH = "dropped_branch"
    DROPPED_STATEMENT = "dropped_statement"
    SWAPPED_ARGUMENTS = "swapped_arguments"
    SWAPPED_OPERANDS = "swapped_operands"
    WRONG_RETURN = "wrong_return"
    MUTATED_ARGUMENT = "mutated_argument"
    WRONG_CALL = "wrong_call"
    NEGATED_CONDITION = "negated_condition"
    WRONG_JUMP = "wrong_jump"
    WRONG_INDENT = "wrong_indent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The names that a line of a function may mistake for each other."""

    parameters: tuple[str, ...]
    names: tuple[str, ...]
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Columns `start` to `end` of one line, replaced by `text`."""

    kind: FaultKind
    line_number: int
    start: int
    end: int
    text: str

    def line_of(self, line: str) -> str:
        """The line with the edit made."""
        return line[: self.start] + self.text + line[self.end :]


def replaced(kind: FaultKind, node: ast.expr | ast.stmt, text: str) -> Iterator[Edit]:
    """The edit that puts `text` in place of `node`; none when the node spans lines."""
    if node.end_lineno == node.lineno and node.end_col_offset is not None:
        yield Edit(
            kind=kind,
            line_number=node.lineno,
            start=node.col_offset,
            end=node.end_col_offset,
            text=text,
        )


def expression_edits(node: ast.AST, scope: Scope, source: str) -> Iterator[Edit]:
    """All edits of one node itself, not of the nodes below it."""
    match node:
        case ast.BinOp():
            yield from _operator(node.left, node.right, _BINARY.get(type(node.op), ()), source)
            yield from _swapped_operands(node, source)
        case ast.BoolOp(values=[left, right]):
            yield from _operator(left, right, _BOOLEAN[type(node.op)], source)
        case ast.Compare(ops=[op], comparators=[right]):
            yield from _comparison(node.left, op, right, source)
        case ast.Call():
            yield from _calls(node, scope, source)
        case ast.Subscript():
            yield from _subscript(node, scope, source)
        case ast.Constant():
            yield from _constant(node)
        case ast.Name(ctx=ast.Load()) if node.id in scope.names:
            for name in scope.names:
                yield from replaced(FaultKind.WRONG_VARIABLE, node, name)
        case ast.Attribute(value=ast.Name(id="self")) if node.attr in scope.attributes:
            for name in scope.attributes:
                yield from replaced(FaultKind.WRONG_VARIABLE, node, f"self.{name}")
        case _:
            pass


_BINARY: Mapping[type[ast.operator], tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        ast.Add: (("+", "-"),),
        ast.Sub: (("-", "+"),),
        ast.Mult: (("*", "+"),),
        ast.FloorDiv: (("//", "%"), ("//", "*")),
        ast.Div: (("/", "*"), ("/", "//")),
        ast.Mod: (("%", "//"),),
        ast.Pow: (("**", "*"),),
    }
)
_BOOLEAN: Mapping[type[ast.boolop], tuple[tuple[str, str], ...]] = MappingProxyType(
    {ast.And: (("and", "or"),), ast.Or: (("or", "and"),)}
)
_COMPARED: Mapping[type[ast.cmpop], tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        ast.Lt: (("<", "<="), ("<", ">")),
        ast.LtE: (("<=", "<"), ("<=", ">=")),
        ast.Gt: ((">", ">="), (">", "<")),
        ast.GtE: ((">=", ">"), (">=", "<=")),
        ast.Eq: (("==", "!="),),
        ast.NotEq: (("!=", "=="),),
    }
)
_MEMBERSHIP: Mapping[type[ast.cmpop], tuple[tuple[str, str], ...]] = MappingProxyType(
    {ast.In: (("in", "not in"),), ast.NotIn: (("not in", "in"),)}
)


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, source: str) -> Iterator[Edit]:
    yield from _operator(left, right, _MEMBERSHIP.get(type(op), ()), source)
    for edit in _operator(left, right, _COMPARED.get(type(op), ()), source):
        yield Edit(
            kind=FaultKind.COMPARISON,
            line_number=edit.line_number,
            start=edit.start,
            end=edit.end,
            text=edit.text,
        )


def _operator(
    left: ast.expr, right: ast.expr, exchanges: tuple[tuple[str, str], ...], source: str
) -> Iterator[Edit]:
    """The operator between two operands, exchanged."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    start, end = left.end_col_offset, right.col_offset
    between = source.split("\n")[right.lineno - 1][start:end]
    for old, new in exchanges:
        yield Edit(
            kind=FaultKind.OPERATOR,
            line_number=right.lineno,
            start=start,
            end=end,
            text=between.replace(old, new, 1),
        )


def _swapped_operands(node: ast.BinOp, source: str) -> Iterator[Edit]:
    left, right = _text(node.left, source), _text(node.right, source)
    whole = _text(node, source)
    between = whole[len(left) : len(whole) - len(right)]
    # With parentheses around an operand the three texts do not add up to the whole; leave those.
    if whole == left + between + right and "(" not in between and ")" not in between:
        yield from replaced(FaultKind.SWAPPED_OPERANDS, node, right + between + left)


_OTHER_CALL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "min": ("max",),
        "max": ("min",),
        "sum": ("len", "max"),
        "len": ("sum",),
        "any": ("all",),
        "all": ("any",),
        "lower": ("upper",),
        "upper": ("lower",),
        "startswith": ("endswith",),
        "endswith": ("startswith",),
        "isdigit": ("isalpha",),
        "isalpha": ("isdigit",),
        "isupper": ("islower",),
        "find": ("rfind",),
        "keys": ("values",),
        "values": ("keys",),
        "append": ("extend",),
        "extend": ("append",),
        "add": ("discard",),
        "lstrip": ("rstrip",),
        "rstrip": ("lstrip",),
    }
)
_COPIERS = frozenset({"list", "dict", "set"})


def _calls(node: ast.Call, scope: Scope, source: str) -> Iterator[Edit]:
    match node.func:
        case ast.Name(id=name):
            for other in _OTHER_CALL.get(name, ()):
                yield from replaced(FaultKind.WRONG_CALL, node.func, other)
            if name == "sorted" and len(node.args) == 1:
                text = f"list({_text(node.args[0], source)})"
                yield from replaced(FaultKind.WRONG_CALL, node, text)
        case ast.Attribute(value=owner, attr=name):
            for other in _OTHER_CALL.get(name, ()):
                text = f"{_text(owner, source)}.{other}"
                yield from replaced(FaultKind.WRONG_CALL, node.func, text)
            if name == "pop" and len(node.args) <= 1:
                args = "" if node.args else "0"
                text = f"{_text(owner, source)}.pop({args})"
                yield from replaced(FaultKind.WRONG_CALL, node, text)
        case _:
            pass
    yield from _arguments(node, scope, source)


def _arguments(node: ast.Call, scope: Scope, source: str) -> Iterator[Edit]:
    texts = [_text(arg, source) for arg in node.args]
    called = _text(node.func, source)
    for index in range(len(texts) - 1):
        moved = [*texts[:index], texts[index + 1], texts[index], *texts[index + 2 :]]
        text = f"{called}({', '.join(moved)})"
        yield from replaced(FaultKind.SWAPPED_ARGUMENTS, node, text)
    if called == "range":
        for arg in node.args:
            yield from _bound(arg, source)
    owner = called.removesuffix(".copy")
    if called in _COPIERS and len(texts) == 1 and texts[0] in scope.parameters:
        yield from replaced(FaultKind.MUTATED_ARGUMENT, node, texts[0])
    elif owner != called and owner in scope.parameters:
        yield from replaced(FaultKind.MUTATED_ARGUMENT, node, owner)


def _subscript(node: ast.Subscript, scope: Scope, source: str) -> Iterator[Edit]:
    match node.slice:
        case ast.Slice(lower=None, upper=None, step=None):
            owner = _text(node.value, source)
            if owner in scope.parameters:
                yield from replaced(FaultKind.MUTATED_ARGUMENT, node, owner)
        case ast.Slice(lower=lower, upper=upper):
            for part in (lower, upper):
                if part is not None:
                    yield from _bound(part, source)
        case ast.BinOp():
            yield from _bound(node.slice, source)
        case _:
            pass


def _bound(node: ast.expr, source: str) -> Iterator[Edit]:
    """One more or one less in the bound of a range, a slice or an index."""
    text = _text(node, source)
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield from replaced(FaultKind.OFF_BY_ONE, node, _text(left, source))
        case ast.Name() | ast.Call():
            yield from replaced(FaultKind.OFF_BY_ONE, node, f"{text} - 1")
            yield from replaced(FaultKind.OFF_BY_ONE, node, f"{text} + 1")
        case _:
            pass


def _constant(node: ast.Constant) -> Iterator[Edit]:
    if type(node.value) is int:
        yield from replaced(FaultKind.OFF_BY_ONE, node, str(node.value + 1))
        yield from replaced(FaultKind.OFF_BY_ONE, node, str(node.value - 1))


def _text(node: ast.expr, source: str) -> str:
    """The text of a node that lies on one line; empty when it spans lines."""
    if node.lineno != node.end_lineno:
        return ""
    return source.split("\n")[node.lineno - 1][node.col_offset : node.end_col_offset]
