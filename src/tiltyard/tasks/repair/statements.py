"""Edits of whole statements: first values, branches, returns, jumps and indentation."""

import ast
from collections.abc import Iterator

from tiltyard.tasks.repair.edits import Edit, FaultKind, Scope, replaced

_INDENT = 4


def statement_edits(
    member: ast.FunctionDef, scope: Scope, lines: tuple[str, ...]
) -> Iterator[Edit]:
    """All edits of the statements of one function. Wins over an edit of an expression in them."""
    for statement in _block(member.body):
        yield from _first_value(statement)
    for node in ast.walk(member):
        if not isinstance(node, ast.stmt) or node is member:
            continue
        yield from _dropped(node, member)
        yield from _returned(node, scope, lines)
        yield from _tested(node, lines)
        yield from _moved(node, member, lines)
        if isinstance(node, ast.AugAssign):
            yield from _updated(node, lines)
        elif isinstance(node, ast.Break):
            yield from replaced(FaultKind.WRONG_JUMP, node, "continue")
        elif isinstance(node, ast.Continue):
            yield from replaced(FaultKind.WRONG_JUMP, node, "break")


def _block(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a function that lie in no loop."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _block(statement.body)


def _first_value(statement: ast.stmt) -> Iterator[Edit]:
    """`total = 0` before a loop or in `__init__`, started at something else."""
    if not isinstance(statement, ast.Assign):
        return
    match statement.value:
        case ast.Constant(value=bool() as value):
            others = [str(not value)]
        case ast.Constant(value=int() as value):
            others = [str(value + 1), str(value - 1)]
        case ast.Constant(value=""):
            others = ['" "']
        case ast.List(elts=[]):
            others = ["[0]"]
        case ast.Subscript(slice=ast.Constant()):
            others = ["0"]
        case _:
            others = []
    for other in others:
        yield from replaced(FaultKind.WRONG_INITIAL_VALUE, statement.value, other)


def _dropped(node: ast.stmt, member: ast.FunctionDef) -> Iterator[Edit]:
    match node:
        case ast.If(orelse=[]):
            yield from replaced(FaultKind.DROPPED_BRANCH, node, "pass")
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield from replaced(FaultKind.DROPPED_STATEMENT, node, "pass")
        case ast.Assign() if node not in member.body:
            yield from replaced(FaultKind.DROPPED_STATEMENT, node, "pass")
        case _:
            pass


def _returned(node: ast.stmt, scope: Scope, lines: tuple[str, ...]) -> Iterator[Edit]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    match node.value:
        case ast.Constant(value=bool() as value):
            others = [str(not value)]
        case ast.Constant(value=int() as value):
            others = [str(value + 1), str(value - 1)]
        case ast.Constant(value=None):
            others = ["0"]
        case ast.Name():
            others = list(scope.names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            others = [lines[node.lineno - 1][operand.col_offset : operand.end_col_offset]]
        case ast.Compare() | ast.BoolOp() | ast.Constant():
            others = []
        case _:
            others = list(scope.names[:2])
    for other in others:
        yield from replaced(FaultKind.WRONG_RETURN, node.value, other)


def _tested(node: ast.stmt, lines: tuple[str, ...]) -> Iterator[Edit]:
    """The condition of an `if` or `while`, the wrong way round."""
    if not isinstance(node, ast.If | ast.While):
        return
    test = node.test
    text = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
    match test:
        case ast.UnaryOp(op=ast.Not()):
            yield from replaced(FaultKind.NEGATED_CONDITION, test, text.removeprefix("not "))
        case ast.BoolOp() | ast.Compare():
            pass
        case _:
            yield from replaced(FaultKind.NEGATED_CONDITION, test, f"not {text}")


def _updated(node: ast.AugAssign, lines: tuple[str, ...]) -> Iterator[Edit]:
    """`+=` taken for `-=`, and the like."""
    exchange = {ast.Add: ("+=", "-="), ast.Sub: ("-=", "+="), ast.Mult: ("*=", "+=")}
    signs = exchange.get(type(node.op))
    end = node.target.end_col_offset
    if signs is None or end is None:
        return
    between = lines[node.lineno - 1][end : node.value.col_offset]
    yield Edit(
        kind=FaultKind.OPERATOR,
        line_number=node.lineno,
        start=end,
        end=node.value.col_offset,
        text=between.replace(*signs, 1),
    )


def _moved(node: ast.stmt, member: ast.FunctionDef, lines: tuple[str, ...]) -> Iterator[Edit]:
    """A statement one block too deep or not deep enough, such as a return within the loop."""
    if not isinstance(node, ast.Return | ast.AugAssign | ast.Assign | ast.Expr):
        return
    before = lines[node.lineno - 2]
    indent = node.col_offset
    line = lines[node.lineno - 1]
    if line[:indent].strip():
        return
    depth_before = len(before) - len(before.lstrip())
    if depth_before >= indent + _INDENT:
        yield _shifted(node, " " * (indent + _INDENT))
    if depth_before == indent > member.col_offset + _INDENT:
        yield _shifted(node, " " * (indent - _INDENT))


def _shifted(node: ast.stmt, indent: str) -> Edit:
    return Edit(
        kind=FaultKind.WRONG_INDENT,
        line_number=node.lineno,
        start=0,
        end=node.col_offset,
        text=indent,
    )
