"""A task's test files as text with places in it. Pure; reads only the task's own files."""

import ast
import bisect
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiltyard.verify.overlay.fixed import LITERAL, Function, walk

_WORD = re.compile(rb"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Bytes of a file and what stands there instead."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TestFunction:
    """A test function or method, with its place in its file."""

    file: str
    """Its path in the tree."""
    scope: tuple[str, ...]
    """The classes that it is in, from outside."""
    name: str
    node: Function
    start: int
    """Where its lines begin, decorators included."""
    end: int
    named_at: int

    __test__ = False

    @property
    def place(self) -> str:
        return "::".join((self.file, *self.scope, self.name))


class SourceFile:
    """A parsed file that can say where its nodes are, in bytes."""

    def __init__(self, path: str, content: bytes) -> None:
        """Raises `SyntaxError`, `ValueError` or `RecursionError` for what is no Python in UTF-8."""
        content.decode("utf-8")
        self.path = path
        self.content = content if content.endswith(b"\n") else content + b"\n"
        self.tree = ast.parse(self.content)
        self._lines = [0]
        for line in self.content.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.functions = tuple(self._functions(self.tree.body, ()))
        """Test functions of the module and of its classes, also below `if`, `try` and `with`."""

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where an expression or a statement is, without parentheses around it."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("a node without a place")
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr) -> bytes:
        start, end = self.span(node)
        return self.content[start:end]

    def line_at(self, offset: int) -> int:
        """The number, from 1, of the line that `offset` is in."""
        return bisect.bisect_right(self._lines, offset)

    def _functions(self, body: list[ast.stmt], scope: tuple[str, ...]) -> Iterator[TestFunction]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._functions(node.body, (*scope, node.name))
            elif isinstance(node, Function):
                if node.name.startswith("test"):
                    yield self._function(node, scope)
            else:
                for block in _blocks(node):
                    yield from self._functions(block, scope)

    def _function(self, node: Function, scope: tuple[str, ...]) -> TestFunction:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        keyword = self._lines[node.lineno - 1] + node.col_offset
        return TestFunction(
            file=self.path,
            scope=scope,
            name=node.name,
            node=node,
            start=self._lines[first - 1],
            end=self._lines[node.end_lineno or node.lineno],
            named_at=self.content.index(node.name.encode(), keyword + len("def")),
        )


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """What is run where a statement stands, in the order of the text."""
    match node:
        case ast.If(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            yield from (body, *(each.body for each in handlers), orelse, final)
        case ast.With(body=body):
            yield body


def read(tests: Mapping[str, bytes]) -> dict[str, SourceFile]:
    """The Python files among a tree's tests; one that cannot be read has no canaries.

    A table with a name that only tests loop over is written into each of them: a false row would
    stand beside the true one in the module, and be known by that.
    """
    files: dict[str, SourceFile] = {}
    words = Counter(word for content in tests.values() for word in _WORD.findall(content))
    for path, content in sorted(tests.items()):
        if path.endswith(".py"):
            try:
                file = SourceFile(path, content)
                edits = list(_tables(file, words))
                text = edited(file.content, edits, 0, len(file.content))
                files[path] = SourceFile(path, text) if edits else file
            except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
                continue
    return files


def _tables(file: SourceFile, words: Mapping[bytes, int]) -> Iterator[Edit]:
    """Moves each table to where it is used, in one line, so that all lines keep their numbers."""
    named: dict[str, ast.Assign] = {}
    for node in file.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() as value):
                if all(isinstance(each, LITERAL) for each in ast.walk(value)):
                    named[name] = node
    uses: dict[str, list[ast.Name]] = defaultdict(list)
    for function in file.functions:
        for rows in rows_of(function.node):
            if isinstance(rows, ast.Name):
                uses[rows.id].append(rows)
    remarked = _remarked(file.content) if named.keys() & uses.keys() else Counter()
    for name, table in named.items():
        word = name.encode()
        if uses[name] and words[word] - remarked[word] == 1 + len(uses[name]):
            for used in uses[name]:
                start, end = file.span(used)
                yield Edit(start=start, end=end, text=ast.unparse(table.value).encode())
            start, end = file.span(table)
            gone = b"\n" * file.content.count(b"\n", start, end) + b"pass"
            yield Edit(start=start, end=end, text=gone)


def _remarked(content: bytes) -> Counter[bytes]:
    """How often each word is in comments, which nothing reads."""
    tokens = tokenize.tokenize(io.BytesIO(content).readline)
    texts = [each.string.encode() for each in tokens if each.type == tokenize.COMMENT]
    return Counter(word for text in texts for word in _WORD.findall(text))


def rows_of(node: Function) -> Iterator[ast.expr]:
    """What stands for rows: of `parametrize` and of loops."""
    for each in walk(node.body):
        if isinstance(each, ast.For):
            yield each.iter
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, rows]):
                yield rows


def renameable(files: Mapping[str, SourceFile], tests: Mapping[str, bytes]) -> frozenset[str]:
    """Names of test functions that nothing in the tests speaks of but their definitions."""
    defined = Counter(each.name for file in files.values() for each in file.functions)
    spoken = Counter(
        word for content in tests.values() for word in _WORD.findall(content) if b"test" in word
    )
    return frozenset(name for name, count in defined.items() if spoken[name.encode()] == count)


def edited(content: bytes, edits: list[Edit], start: int, end: int) -> bytes:
    """`content[start:end]` with the edits that lie in it. They must not overlap."""
    parts: list[bytes] = []
    at = start
    for edit in sorted(edits, key=lambda each: each.start):
        if edit.start < at or edit.end > end:
            raise ValueError("edits overlap")
        parts += [content[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*parts, content[at:end]])
