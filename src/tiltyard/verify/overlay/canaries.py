"""Tests that must fail: copies of a task's own tests with a false expectation. Pure.

And some that must not: where a test computes what it expects, a copy with the value written out
shows when the computing was tampered with, such as a `sorted` that sorts nothing.

What makes a copy sound is that whoever passes the original cannot pass the copy honestly, whatever
else a right solution does. So only what a test expects is changed, never what it gives a solution
(`fixed.py`), and only where the original is certain to get there.
"""

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tiltyard.verify.overlay.fixed import Module, Origin, Scope, walk
from tiltyard.verify.overlay.looks import like, other
from tiltyard.verify.overlay.nearness import EXACT, Near, called, near_of, sides_of, widest
from tiltyard.verify.overlay.source import Edit, SourceFile, TestFunction, edited


class Kind(StrEnum):
    """What is false in a copy."""

    LITERAL = "literal"
    """A constant that is expected is another one, throughout the function; or what is expected is
    written out as another value."""
    TRIVIAL = "trivial"
    """What is expected is an empty value or nothing."""
    NEGATED = "negated"
    """An assertion is turned round."""
    EXCEPTION = "exception"
    """Another exception is expected."""
    WRITTEN = "written"
    """Nothing: what is expected is written out as a value. It passes where the original does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canary:
    """A copy of `function` that must fail."""

    function: TestFunction
    kind: Kind
    edits: tuple[Edit, ...]
    near: Near | None = EXACT
    """Of a probe, what may be taken for what is expected; None where nobody knows."""
    true: "Canary | None" = None
    """Of a value that is written out and false, the copy with the true one."""

    def written(self, value: str, rng: random.Random) -> "Iterator[Canary]":
        """Of a probe, the copies with this value for what it asked, and with others."""
        true = self._with(value)
        yield true
        constants = [
            node
            for node in ast.walk(ast.parse(value, mode="eval"))
            if isinstance(node, ast.Constant) and node.lineno == node.end_lineno == 1
        ]
        for node in rng.sample(constants, min(len(constants), _VARIANTS)):
            raw, end = value.encode(), node.end_col_offset or 0
            new = like(raw[node.col_offset : end], other(node.value, rng, self.near))
            false = (raw[: node.col_offset] + new + raw[end:]).decode()
            yield replace(self._with(false), kind=Kind.LITERAL, true=true)

    def _with(self, value: str) -> "Canary":
        return replace(self, edits=tuple(replace(each, text=value.encode()) for each in self.edits))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Site:
    """One assertion: what is wrong to expect of it, in each way."""

    expected: tuple[ast.expr, ...] = ()
    near: Near | None = None
    """What may be taken for what is expected; None where nobody knows."""
    negation: Edit | None = None
    error: ast.expr | None = None


PER_KIND = {Kind.LITERAL: 3, Kind.TRIVIAL: 4, Kind.NEGATED: 1, Kind.EXCEPTION: 1, Kind.WRITTEN: 2}
"""Copies of one function that are tried at most."""
_VARIANTS = 3
"""Other values for one literal. Whoever learns from the first of several what to answer has but one
chance in four to have met the true one."""
_PROBE = b"(_ for _ in ()).throw(AssertionError('<<' + repr((%b)) + '>>'))"
VALUE = re.compile(r"AssertionError: <<(?P<value>.*)>>", re.DOTALL)
"""What a probe says with the reference: the value that is expected."""
_DISJOINT = (
    *("ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "RuntimeError"),
    "ZeroDivisionError",
)
"""Errors that tests often expect, none of which is another."""
OTHER_ERRORS = (
    *("BufferError", "EOFError", "FloatingPointError", "ZeroDivisionError", "TimeoutError"),
    *("ChildProcessError", "UnicodeError", "KeyError", "ImportError", "StopAsyncIteration"),
)
_COMPUTES = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.comprehension, ast.Subscript)
_LEAVES = {"skip", "xfail", "importorskip", "skipTest", "exit"}
_EQUAL = {
    *("assertEqual", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual"),
    *("assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual", "assertAlmostEqual"),
}
_PAIRS = (
    *(
        ("assertEqual", "assertNotEqual"),
        ("assertTrue", "assertFalse"),
        ("assertIs", "assertIsNot"),
    ),
    *(("assertIn", "assertNotIn"), ("assertIsNone", "assertIsNotNone")),
    *(("assertIsInstance", "assertNotIsInstance"), ("assertLess", "assertGreaterEqual")),
    *(("assertGreater", "assertLessEqual"), ("assertAlmostEqual", "assertNotAlmostEqual")),
    ("assertRegex", "assertNotRegex"),
)
_OPPOSITE = {one: other for a, b in _PAIRS for one, other in ((a, b), (b, a))}
_PASSING = {
    *("time", "now", "utcnow", "today", "localtime", "gmtime", "ctime", "strftime", "monotonic"),
    *("perf_counter", "random", "secrets", "uuid", "hash", "id", "getpid", "get_ident", "environ"),
    *("getenv", "getcwd", "cwd", "gethostname", "node", "gettempdir", "tempfile"),
}
"""What depends on the moment, the process or the machine."""
_RAISES = {"raises", "assertRaises", "assertRaisesRegex"}


def canaries_of(file: SourceFile, module: Module, rng: random.Random) -> Iterator[Canary]:
    """Copies of every test function in a file; each may still turn out to pass."""
    for function in file.functions:
        found: dict[Kind, list[Canary]] = {kind: [] for kind in Kind}
        for kind, edits, near in _falsehoods(file, function, module, rng):
            if _parses(file, function, edits):
                one = Canary(function=function, kind=kind, edits=tuple(edits), near=near)
                found[kind].append(one)
        for kind, some in found.items():
            yield from rng.sample(some, min(len(some), PER_KIND[kind]))


def _falsehoods(
    file: SourceFile, function: TestFunction, module: Module, rng: random.Random
) -> Iterator[tuple[Kind, list[Edit], Near | None]]:
    node = function.node
    if any(map(_leaves_early, walk(node.body))):
        return
    scope = Scope(node, module)
    sites = [site for each in _reached(node.body, scope) for site in _sites(file, each, scope)]
    origins = [
        (origin, site.near if site.near == EXACT or _as_written(expected, scope) else None)
        for site in sites
        for expected in site.expected
        for origin in scope.origins(expected)
    ]
    unread = [
        origin
        for name, values in scope.sources.items()
        if name not in scope.inputs
        for value in values
        if value is not None and scope.fixed(value)
        for origin in scope.origins(value)
    ]
    everywhere = [origin for origin, _ in origins] + unread
    for origin, near in origins * _VARIANTS:
        yield Kind.LITERAL, _changed(file, origin, everywhere, rng, near), near
    for site in sites:
        for expected in site.expected:
            start, end = file.span(expected)
            for text in _trivial(expected):
                yield Kind.TRIVIAL, [Edit(start=start, end=end, text=text)], site.near
            if _computed(expected, scope):
                probe = _PROBE % file.text(expected)
                yield Kind.WRITTEN, [Edit(start=start, end=end, text=probe)], site.near
        if site.negation is not None:
            yield Kind.NEGATED, [site.negation], site.near
        if site.error is not None:
            start, end = file.span(site.error)
            said = file.text(site.error).decode()
            likely = _DISJOINT if said in _DISJOINT else OTHER_ERRORS
            wrong = rng.choice([name for name in likely if name not in said])
            yield Kind.EXCEPTION, [Edit(start=start, end=end, text=wrong.encode())], EXACT


def _computed(expected: ast.expr, scope: Scope) -> bool:
    """Whether it calls something, itself or by what its names stand for, that says the same at
    another time and in another process."""
    nodes = list(ast.walk(expected))
    for name in {each.id for each in nodes if isinstance(each, ast.Name)}:
        nodes += [one for each in scope.sources.get(name, ()) if each for one in ast.walk(each)]
    named = {each.id for each in nodes if isinstance(each, ast.Name)}
    named |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    return not named & _PASSING and any(isinstance(each, ast.Call) for each in nodes)


def _leaves_early(node: ast.AST) -> bool:
    match node:
        case ast.Return() | ast.Yield() | ast.YieldFrom():
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _LEAVES
        case _:
            return False


def _reached(body: list[ast.stmt], scope: Scope) -> Iterator[ast.stmt]:
    """Statements that whoever passes the test has gone through."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.With) and not any(map(_swallows, statement.items)):
            yield from _reached(statement.body, scope)
        # A loop over a table of the test's own, with at least one row.
        if isinstance(statement, ast.For) and scope.fixed(statement.iter):
            yield from _reached(statement.body, scope)


def _swallows(item: ast.withitem) -> bool:
    call = item.context_expr
    name = called(call) if isinstance(call, ast.Call) else ""
    return name in _RAISES | {"suppress"}


def _sites(file: SourceFile, statement: ast.stmt, scope: Scope) -> Iterator[_Site]:
    match statement:
        case ast.Assert(test=test):
            expected, near = _expected(test, scope)
            yield _Site(expected=expected, near=near, negation=_turned(file, test))
        case ast.Expr(value=ast.Call() as call):
            yield from _call_sites(file, call, scope)
        case ast.With(items=items):
            for item in items:
                if isinstance(item.context_expr, ast.Call):
                    yield from _call_sites(file, item.context_expr, scope)


_OPERATORS: dict[type[ast.cmpop], bytes] = {
    ast.Eq: b"!=",
    ast.NotEq: b"==",
    ast.Lt: b">=",
    ast.GtE: b"<",
    ast.Gt: b"<=",
    ast.LtE: b">",
    ast.In: b"not in",
    ast.NotIn: b"in",
    ast.Is: b"is not",
    ast.IsNot: b"is",
}


def _turned(file: SourceFile, test: ast.expr) -> Edit:
    """An assertion turned round in the words that an author would choose."""
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            start, end = file.span(left)[1], file.span(right)[0]
            between = file.content[start:end]
            # Parentheses and comments around the sides stay as they are.
            operator = re.search(rb"not\s+in|is\s+not|[=!<>]=|[<>]|\bin\b|\bis\b", between)
            if operator and b"#" not in between:
                return Edit(
                    start=start + operator.start(),
                    end=start + operator.end(),
                    text=_OPERATORS[type(op)],
                )
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() | ast.Name() | ast.Attribute() as inner):
            start, end = file.span(test)
            return Edit(start=start, end=end, text=file.text(inner))
        case ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript():
            start, end = file.span(test)
            return Edit(start=start, end=end, text=b"not " + file.text(test))
        case _:
            pass
    start, end = file.span(test)
    return Edit(start=start, end=end, text=b"not (" + file.text(test) + b")")


def _call_sites(file: SourceFile, call: ast.Call, scope: Scope) -> Iterator[_Site]:
    name = called(call)
    if name in _RAISES and call.args:
        yield _Site(error=call.args[0])
    elif name in _EQUAL | _OPPOSITE.keys() and isinstance(call.func, ast.Attribute):
        turned = None
        if name in _OPPOSITE:
            _, end = file.span(call.func)
            turned = Edit(start=end - len(name), end=end, text=_OPPOSITE[name].encode())
        expected: tuple[ast.expr, ...] = ()
        if name in _EQUAL:
            scope.checks.add(call)
            expected = _one_fixed(call.args[:2], scope)
        near = near_of(call) if name == "assertAlmostEqual" else EXACT
        yield _Site(expected=expected, negation=turned, near=near)


def _expected(test: ast.expr, scope: Scope) -> tuple[tuple[ast.expr, ...], Near | None]:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            nears = [
                near_of(each)
                for side in (left, right)
                for each in ast.walk(side)
                if isinstance(each, ast.Call) and called(each) == "approx"
            ]
            return _one_fixed([left, right], scope), widest(nears)
        case ast.Call(func=func) if _checks(func, scope):
            scope.checks.add(test)
            args = sides_of(test)
            fixed = tuple(each for each in args if scope.fixed(each))
            near = EXACT if called(test) in scope.module.equal else near_of(test)
            return (fixed if len(fixed) < len(args) else ()), near
        case _:
            return (), None


def _as_written(expected: ast.expr, scope: Scope) -> bool:
    """Whether its constants are what is compared, and nothing is computed with them."""
    nodes = list(ast.walk(expected))
    for name in {each.id for each in nodes if isinstance(each, ast.Name)}:
        nodes += [one for each in scope.sources.get(name, ()) if each for one in ast.walk(each)]
    calls = [called(each) for each in nodes if isinstance(each, ast.Call)]
    return set(calls) <= {"approx"} and not any(isinstance(each, _COMPUTES) for each in nodes)


def _checks(func: ast.expr, scope: Scope) -> bool:
    """Whether it is a function of the tests' own or of a library that compares."""
    match func:
        case ast.Name(id=name):
            return name in scope.module.checkers | scope.module.libraries
        case ast.Attribute(value=ast.Name(id=name)):
            return name in scope.module.checkers | scope.module.libraries
        case _:
            return False


def _one_fixed(sides: list[ast.expr], scope: Scope) -> tuple[ast.expr, ...]:
    fixed = tuple(side for side in sides if scope.fixed(side))
    return fixed if len(fixed) == 1 and len(sides) == 2 else ()


def _changed(
    file: SourceFile,
    origin: Origin,
    everywhere: list[Origin],
    rng: random.Random,
    near: Near | None,
) -> list[Edit]:
    """The constant, and its equals in all that is expected, as another one."""
    old = origin.constant.value
    value = other(old, rng, near)
    same = {
        file.span(each.via or each.constant): each
        for each in (*everywhere, origin)
        if type(each.constant.value) is type(old) and each.constant.value == old
    }
    edits: list[Edit] = []
    for (start, end), each in same.items():
        text = new = like(file.text(each.constant), value)
        if each.via is not None and each.value is not None:
            inside = file.span(each.value)
            at = file.span(each.constant)
            written = edited(file.content, [Edit(start=at[0], end=at[1], text=new)], *inside)
            text = b"(" + written + b")"
        edits.append(Edit(start=start, end=end, text=text))
    return edits


def _trivial(expected: ast.expr) -> tuple[bytes, ...]:
    match expected:
        case ast.List() | ast.ListComp():
            return (b"[]",)
        case ast.Dict() | ast.DictComp():
            return (b"{}",)
        case ast.Set() | ast.SetComp():
            return (b"set()",)
        case ast.Tuple():
            return (b"()",)
        case ast.Constant(value=value):
            empty = {str: b"''", bytes: b"b''", int: b"0", float: b"0.0", bool: b"0"}
            return (empty.get(type(value), b"0"), b"None")
        case ast.Call(func=ast.Name(id="sorted" | "list")):
            return (b"[]",)
        case _:
            return (b"[]", b"0", b"''", b"None")


def _parses(file: SourceFile, function: TestFunction, edits: list[Edit]) -> bool:
    try:
        text = edited(file.content, edits, function.start, function.end)
        ast.parse(b"if True:\n" + text if function.node.col_offset else text)
    except (SyntaxError, ValueError):
        return False
    return True
