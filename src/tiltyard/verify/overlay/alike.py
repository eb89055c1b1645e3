"""Tests that ask a solution the same, such as one test under two names. Pure.

What one of them expects says what another must, so a run that has one in a false form has none of
the others.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

from tiltyard.verify.overlay.fixed import Module, Scope, walk
from tiltyard.verify.overlay.source import SourceFile, TestFunction, rows_of

_DEPTH_MAX = 4


def alike(
    files: Mapping[str, SourceFile], modules: frozenset[str]
) -> tuple[tuple[TestFunction, ...], ...]:
    """All test functions, those together that call something with the same arguments."""
    group: dict[TestFunction, list[TestFunction]] = {}
    first: dict[str, TestFunction] = {}
    for file in files.values():
        module = Module(file.tree, modules)
        for function in file.functions:
            group[function] = [function]
            for question in set(_questions(function, module)):
                other = first.setdefault(question, function)
                if group[other] is not group[function]:
                    larger, smaller = group[other], group[function]
                    larger += smaller
                    group.update(dict.fromkeys(smaller, larger))
    return tuple({id(each): tuple(each) for each in group.values()}.values())


def _questions(function: TestFunction, module: Module) -> Iterator[str]:
    """What it asks of the solution and compares, where all of that is known, as text; and the rows
    that it does so with, which are true beside a false form of them."""
    yield from (ast.dump(rows) for rows in rows_of(function.node) if _has_answers(rows))
    scope = Scope(function.node, module)
    for node in walk(function.node.body):
        for asked in _asked(node):
            told = None if scope.fixed(asked) else _told(asked, scope, _DEPTH_MAX)
            if told and "Call(" in told:
                yield told


def _has_answers(rows: ast.expr) -> bool:
    """Whether the rows of a table may have what is asked and what is expected."""
    match rows:
        case ast.List(elts=[ast.List(elts=row) | ast.Tuple(elts=row), *_]):
            return len(row) > 1
        case ast.Tuple(elts=[ast.List(elts=row) | ast.Tuple(elts=row), *_]):
            return len(row) > 1
        case _:
            return False


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assert(test=ast.Compare(left=left, comparators=others)):
            yield from (left, *others)
        case ast.Assert(test=ast.Call(args=args) as test):
            yield from (test, *args)
        case ast.Assert(test=test):
            yield test
        case ast.Call(func=ast.Attribute(attr=name), args=[_, called, *args]) if "aises" in name:
            # In the words of one that is called in a block.
            yield ast.Call(func=called, args=args, keywords=[])
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name.startswith("assert"):
            yield from args
        case ast.With(items=items, body=body) if any("aises" in ast.dump(each) for each in items):
            yield from (each.value for each in body if isinstance(each, ast.Expr))
        case _:
            return


def _told(node: ast.expr, scope: Scope, depth: int) -> str | None:
    """An expression with what its names stand for; None where that is not known."""
    said = [ast.dump(node)]
    for each in _names(node):
        sources = scope.sources.get(each)
        if sources is None:
            continue  # a name of the module, the same for all its tests
        for value in sources:
            inner = None if value is None or not depth else _told(value, scope, depth - 1)
            if inner is None:
                return None
            said.append(inner)
    return " ".join(said)


def _names(node: ast.AST) -> Iterable[str]:
    return sorted({each.id for each in ast.walk(node) if isinstance(each, ast.Name)})
