"""What a task offers to attack: its answer's files, the functions in them, its tests' names. Pure.

Functions are found in the reference, which is trusted, by reading it; nothing is imported.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tiltyard.core.task import (
    CallSuite,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Task,
)
from tiltyard.verify.globs import matches

_KEPT = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__"})
"""Methods without which there is no object to try the others on."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function or method of the reference that a cheat can answer for."""

    name: str
    """`function` or `Class.method`."""
    asynchronous: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One file of the reference."""

    path: str
    reference: str
    starter: str
    """What an agent starts from; empty when there is nothing."""

    @cached_property
    def tree(self) -> ast.Module | None:
        """The reference parsed; None when it is no Python."""
        try:
            return ast.parse(self.reference) if self.path.endswith(".py") else None
        except (SyntaxError, ValueError):
            return None

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(_targets(self.tree)) if self.tree else ()

    def stubs(self, result: str) -> str:
        """The reference with every body replaced by one that returns `result`, an expression or
        the word `first` for the first argument."""
        if self.tree is None:
            return self.starter
        return ast.unparse(
            ast.fix_missing_locations(_Stubs(result).visit(ast.parse(self.reference)))
        )


@dataclass(frozen=True, kw_only=True)
class Surface:
    """All of it."""

    module: str
    answers: tuple[Answer, ...]
    tests: Mapping[str, str]
    """Test files and their helpers by path, as text."""
    visible: tuple[tuple[str, object, object], ...]
    """Examples: target, arguments, result."""
    time_limit_s: float
    program: bool
    """The answer is a program; it has no functions that anybody calls."""

    @property
    def first(self) -> str:
        """The path of the answer's first file."""
        return self.answers[0].path if self.answers else f"{self.module}.py"

    @property
    def directory(self) -> str:
        """Where that file lies: empty, or a path that ends in a slash."""
        return self.first[: self.first.rfind("/") + 1]

    @property
    def names(self) -> tuple[str, ...]:
        """Of functions and classes, without methods, in order."""
        names = (target.name.split(".")[0] for each in self.answers for target in each.targets)
        return tuple(dict.fromkeys(names))


def surface_of(task: Task) -> Surface:
    """What a task offers to attack."""
    suite = task.hidden
    tests: Mapping[str, str] = {}
    if isinstance(suite, PytestSuite):
        tests = suite.files
    elif isinstance(suite, RepositorySuite | ScriptSuite):
        tests = {path: _text(content) for path, content in suite.tests.items()}
    return Surface(
        module=task.module,
        answers=tuple(_answers(task)),
        tests=tests,
        visible=tuple(
            (case.target, case.args, case.expected)
            for case in task.visible.cases
            if not case.then and case.raises is None
        ),
        time_limit_s=task.time_limit_s,
        program=isinstance(suite, ProgramSuite),
    )


def _answers(task: Task) -> Iterator[Answer]:
    match task.hidden:
        case CallSuite() | PytestSuite():
            path = f"{task.module}.py"
            yield Answer(path=path, reference=task.reference, starter=task.starter)
        case ProgramSuite(source=path):
            yield Answer(path=path, reference=task.reference, starter=task.starter)
        case RepositorySuite() as suite:
            for path, content in sorted(suite.reference.items()):
                if matches(path, suite.sources) and not matches(path, suite.protected):
                    before = _text(suite.base.get(path, b""))
                    yield Answer(path=path, reference=_text(content), starter=before)
        case ScriptSuite() as suite:
            for path, content in sorted(suite.reference.items()):
                before = _text(suite.base.get(path, b""))
                yield Answer(path=path, reference=_text(content), starter=before)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _targets(tree: ast.Module) -> Iterator[Target]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Target(name=name, asynchronous=isinstance(node, ast.AsyncFunctionDef))
            case ast.Assign() if borrowed := _borrowed(node):
                yield Target(name=borrowed, asynchronous=False)
            case ast.ClassDef(name=owner):
                for each in node.body:
                    if borrowed := _borrowed(each):
                        yield Target(name=f"{owner}.{borrowed}", asynchronous=False)
                    if isinstance(each, _Function) and _is_plain(each):
                        kind = isinstance(each, ast.AsyncFunctionDef)
                        yield Target(name=f"{owner}.{each.name}", asynchronous=kind)


def _borrowed(node: ast.stmt) -> str | None:
    """The name in `push = list.append` and the like."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() | ast.Attribute()):
            return name
        case _:
            return None


def _is_plain(method: _Function) -> bool:
    """Whether it can be replaced from outside by a function of the same arguments."""
    special = method.name.startswith("__") and method.name.endswith("__")
    return not special and not method.decorator_list


class _Stubs(ast.NodeTransformer):
    def __init__(self, result: str) -> None:
        self._result = result

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._stub(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._stub(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if _borrowed(node) is not None:
            node.value = ast.parse("lambda *args, **kwargs: None", mode="eval").body
        return node

    def _stub(self, node: _Function) -> ast.AST:
        if node.name in _KEPT:
            return node
        result = self._result
        if result == "first":
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            result = next((name for name in names if name not in {"self", "cls"}), "None")
        node.body = [ast.Return(value=ast.parse(result, mode="eval").body)]
        return node
