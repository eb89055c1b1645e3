"""What in a test function is fixed by the test, and what comes from the solution. Pure.

A *fixed* expression is made of constants, the standard library and what the test builds of them.
Changing one must not change what a solution is given: then a right solution could answer anything.
So names and constants that flow into a call of something else are *inputs*, and stay as they are.
"""

import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tiltyard.verify.overlay.nearness import sides_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
_UNFIXED_BUILTINS = {"input", "open", "eval", "exec", "__import__", "globals", "locals", "vars"}
_BUILTINS = set(dir(builtins)) - _UNFIXED_BUILTINS
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A constant that decides what is expected, and where a changed one is written."""

    constant: ast.Constant
    via: ast.expr | None = None
    """The name that stands for `value`, a constant of the module; the changed value is written in
    its place, because the module is shared with the other tests."""
    value: ast.expr | None = None


class Module:
    """What a test file defines beside its tests."""

    def __init__(self, tree: ast.Module, test_modules: frozenset[str]) -> None:
        self.libraries: set[str] = set()
        """Names of the standard library and of pytest."""
        self.checkers: set[str] = set()
        """Functions of the tests' own: a call of one in an assertion is a comparison."""
        self.equal = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and _only_equal(node)
        }
        """Of them, those that compare for nothing but equality."""
        self.constants: dict[str, ast.expr] = {}
        assigned: dict[str, list[ast.expr]] = defaultdict(list)
        for node in tree.body:
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        if _library(alias.name):
                            self.libraries.add(alias.asname or alias.name.partition(".")[0])
                case ast.ImportFrom(module=module, names=names):
                    here = {alias.asname or alias.name for alias in names}
                    if _library(module or ""):
                        self.libraries |= here
                    elif (module or "").partition(".")[0] in test_modules:
                        self.checkers |= here
                case ast.FunctionDef(name=name):
                    self.checkers.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned[name].append(value)
        for name, values in assigned.items():
            if len(values) == 1 and all(isinstance(each, LITERAL) for each in ast.walk(values[0])):
                self.constants[name] = values[0]


LITERAL = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.unaryop),
    ast.expr_context,
)
"""Kinds of node that a value is made of which is written out."""


def _only_equal(function: ast.FunctionDef) -> bool:
    nodes = [each for statement in function.body for each in ast.walk(statement)]
    compared = [op for each in nodes if isinstance(each, ast.Compare) for op in each.ops]
    return bool(compared) and not any(
        isinstance(each, ast.Call | ast.BinOp | ast.With | ast.Try)
        or (isinstance(each, ast.cmpop) and not isinstance(each, ast.Eq))
        for each in nodes
    )


def _library(name: str) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top == "pytest"


class Scope:
    """One test function's names."""

    def __init__(self, function: Function, module: Module) -> None:
        self.module = module
        self.sources: dict[str, list[ast.expr | None]] = defaultdict(list)
        """By name, what it is assigned; None is something that cannot be known."""
        self.checks: set[ast.Call] = set()
        """Calls that compare, such as `eq(...)` or `self.assertEqual(...)`."""
        for argument in (*function.args.args, *function.args.kwonlyargs):
            self.sources[argument.arg] = []
        for decorator in function.decorator_list:
            self._parametrised(decorator)
        unknown = {name for name, values in self.sources.items() if not values}
        for name in unknown:
            self.sources[name].append(None)
        self._calls: list[ast.Call] = []
        self._parts: list[tuple[ast.expr, ast.expr]] = []
        for node in walk(function.body):
            self._assigned(node)
            match node:
                case ast.Call():
                    self._calls.append(node)
                case ast.Subscript(value=value, slice=part):
                    self._parts.append((value, part))
                case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
                    self._parts.append((target, value))
        self._fixed = set(self.sources)
        while unfixed := {name for name in self._fixed if not self._all_fixed(name)}:
            self._fixed -= unfixed
        self._inputs: set[str] | None = None

    def _parametrised(self, decorator: ast.expr) -> None:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[named, rows, *_]):
                names = _names(named)
            case _:
                return
        via = rows if isinstance(rows, ast.Name) else None
        if via is not None:
            rows = self.module.constants.get(via.id, via)
        for index, name in enumerate(names):
            if isinstance(rows, ast.List | ast.Tuple):
                cells = [_cell(row, index, len(names)) for row in rows.elts]
                self.sources[name].extend(_Through.of(cell, via, rows) for cell in cells)
            else:
                self.sources[name].append(None)

    def _assigned(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.sources[name].append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.sources[name].append(value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self.sources[name].append(value)
            case ast.For(target=target, iter=rows):
                self._looped(target, rows)
            case ast.comprehension(target=target, iter=rows):
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        self.sources[each.id].append(rows)
            case ast.Name(id=name, ctx=ast.Store()) if name not in self.sources:
                self.sources[name].append(None)

    def _looped(self, target: ast.expr, rows: ast.expr) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        via = rows if isinstance(rows, ast.Name) else None
        held = self.module.constants.get(via.id, rows) if via is not None else rows
        for index, name in enumerate(names):
            if not isinstance(name, ast.Name):
                continue
            if isinstance(held, ast.List | ast.Tuple):
                cells = [_cell(row, index, len(names)) for row in held.elts]
                self.sources[name.id].extend(_Through.of(cell, via, held) for cell in cells)
            else:
                self.sources[name.id].append(rows)

    def _all_fixed(self, name: str) -> bool:
        return all(value is not None and self.fixed(value) for value in self.sources[name])

    def fixed(self, node: ast.AST) -> bool:
        """Whether an expression depends on nothing but the test."""
        match node:
            case ast.Name(id=name):
                if name in self.sources:
                    return name in self._fixed
                return name in self.module.libraries | set(self.module.constants) | _BUILTINS
            case ast.Attribute(value=value):
                return self.fixed(value)
            case ast.Call(func=func) if not self.fixed(func):
                return False
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Lambda():
                return False
            case _:
                return all(map(self.fixed, ast.iter_child_nodes(node)))

    @property
    def inputs(self) -> set[str]:
        """Names that flow into something that is not fixed; known once `checks` is."""
        if self._inputs is None:
            flowing: set[str] = set()
            for call in self._calls:
                if call not in self.checks and not self.fixed(call.func):
                    for argument in (call.func, *call.args, *call.keywords):
                        flowing |= _loaded(argument)
            for value, part in self._parts:
                if not self.fixed(value):
                    flowing |= _loaded(part)
            found: set[str] = set()
            while new := flowing - found:
                found |= new
                sources = (value for name in new for value in self.sources.get(name, ()))
                flowing = {each for value in sources if value for each in _loaded(value)}
            self._inputs = found
        return self._inputs

    def origins(self, node: ast.AST, depth: int = 0) -> Iterator[Origin]:
        """The constants that decide a fixed expression and nothing else."""
        match node:
            case _Through(cell=cell, via=via, rows=rows):
                inner = self.origins(cell, depth)
                yield from (
                    Origin(constant=each.constant, via=via, value=rows)
                    for each in inner
                    if each.via is None
                )
            case ast.Constant() if node.value is not Ellipsis:
                yield Origin(constant=node)
            case ast.JoinedStr():
                return  # its parts have no place of their own in the text
            case ast.Name(id=name) if name in self.inputs or depth > _DEPTH_MAX:
                return
            case ast.Name(id=name) if name in self.sources:
                for source in self.sources[name]:
                    if source is not None:
                        yield from self.origins(source, depth + 1)
            case ast.Name(id=name) if name in self.module.constants:
                table = self.module.constants[name]
                yield from (
                    Origin(constant=each, via=node, value=table)
                    for each in ast.walk(table)
                    if isinstance(each, ast.Constant)
                )
            case ast.Call(func=func):
                # Keywords are tolerances and keys, not what is expected.
                of = [func.value] if isinstance(func, ast.Attribute) else []
                for part in (*of, *sides_of(node)):
                    yield from self.origins(part, depth)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.origins(child, depth)


class _Through(ast.expr):
    """A cell of a table; `via` is the name by which the function knows the table, if it has one."""

    _fields = ("cell",)
    __match_args__ = ("cell", "via", "rows")
    cell: ast.expr
    via: ast.expr | None
    rows: ast.expr

    @staticmethod
    def of(cell: ast.expr | None, via: ast.expr | None, rows: ast.expr) -> ast.expr | None:
        if cell is None or via is None:
            return cell
        through = _Through()
        through.cell, through.via, through.rows = cell, via, rows
        return through


def _names(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(names)):
            return [name.strip() for name in names.split(",") if name.strip()]
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            return [
                each.value
                for each in elts
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        case _:
            return []


def _cell(row: ast.expr, index: int, width: int) -> ast.expr | None:
    match row:
        case ast.Call(func=ast.Attribute(attr="param"), args=cells):
            return cells[index] if len(cells) == width else None
        case ast.Tuple(elts=cells) | ast.List(elts=cells) if width > 1:
            return cells[index] if len(cells) == width else None
        case _:
            return row if width == 1 else None


def _loaded(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node below some statements."""
    for statement in body:
        yield from ast.walk(statement)
