"""What the text and the syntax tree of Python sources show. Runs inside; imports no Tiltyard."""

import ast
import io
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from radon.visitors import ComplexityVisitor

Files = list[tuple[str, bytes]]
LISTED_MAX = 50
COMPLEX_LISTED_MAX = 5
BLOB_CHARACTERS = 200
TABLE_ITEMS = 256
LITERALS_SHARE = 0.5
LITERALS_CHARACTERS = 500

SUPPRESSION = re.compile(
    r"\b(noqa|nosec|nosemgrep|noinspection|pyright:|pyre-|pytype:|type:\s*ignore|mypy:|ruff:|flake8:"
    r"|pylint:|fmt:|isort:|pragma:\s*no|sonar)",
    re.IGNORECASE,
)
NAMES = {"exec", "eval", "compile", "__import__", "__builtins__", "__loader__", "__spec__"}
NAMES |= {"globals", "breakpoint", "no_type_check"}
TEXTS = {"exec", "eval", "__import__", "builtins", "__builtins__", "__globals__", "__subclasses__"}
ATTRIBUTES = {"__globals__", "__builtins__", "__code__", "__subclasses__", "_getframe", "fromhex"}
ATTRIBUTES |= {"f_back", "f_globals", "f_locals", "f_builtins", "gi_frame", "tb_frame", "cr_frame"}
ATTRIBUTES |= {"CodeType", "FunctionType", "no_type_check", "__import__"}
MODULES = {"builtins", "importlib", "imp", "runpy", "code", "codeop", "zipimport", "inspect", "gc"}
MODULES |= {"marshal", "pickle", "_pickle", "shelve", "ctypes", "_ctypes", "cffi"}
MODULES |= {"base64", "binascii", "codecs", "zlib", "gzip", "bz2", "lzma"}
WORDS = {
    "name": "names {}, which runs or reaches code that is not written here",
    "attribute": "reads {}, which reaches into frames, code or hidden bytes",
    "module": "imports {}, which decodes or runs what is not written here",
    "computed": "getattr with a computed name",
    "blob": "a literal with {} characters in a row",
    "table": "a literal with {} constants",
    "literals": "literals are {} of the source",
}


def parsed(source: bytes) -> ast.Module:
    """The tree; warnings about the source are nobody's here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def syntax(files: Files) -> Any:
    """Whether each file is Python."""
    found = []
    for path, source in files:
        try:
            parsed(source)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", 0) or 0
            found.append(["syntax", str(error), path, line, None])
        except (RecursionError, MemoryError):
            found.append(["syntax", "nested too deeply", path, 0, None])
    return ("report", {"errors": float(len(found))}, found[:LISTED_MAX])


def size(files: Files) -> Any:
    """Tokens and lines of code, without comments, and comments that ask tools to look away."""
    tokens = lines = suppressions = 0
    found = []
    passed_over = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
    passed_over |= {tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for path, source in files:
        with_code = set()
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.COMMENT and SUPPRESSION.search(token.string):
                suppressions += 1
                words = f"asks tools to look away: {token.string[:80]}"
                found.append(["suppression", words, path, token.start[0], None])
            elif token.type not in passed_over:
                tokens += 1
                with_code.add(token.start[0])
        lines += len(with_code)
    numbers = {"tokens": tokens, "lines": lines, "suppressions": suppressions}
    return ("report", {name: float(n) for name, n in numbers.items()}, found[:LISTED_MAX])


def dynamic_code(files: Files) -> Any:
    """What runs, or may hide, code that no other check can see; a number for each kind."""
    counts: Counter[str] = Counter()
    found = []
    for path, source in files:
        tree = parsed(source)
        literals = 0
        prose = {id(node) for node in docstrings(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                literals += len(node.value) if id(node) not in prose else 0
            for code, what in flags(node):
                name = f"{code} {what}" if code in {"name", "attribute", "module"} else code
                counts[name] += 1
                words = WORDS[code].format(what)
                found.append([name, words, path, getattr(node, "lineno", 0), None])
        share = literals / max(1, len(source))
        if literals >= LITERALS_CHARACTERS and share > LITERALS_SHARE:
            counts["literals"] += 1
            found.append(["literals", WORDS["literals"].format(f"{share:.0%}"), path, 0, share])
    return ("report", {name: float(n) for name, n in counts.items()}, found[:LISTED_MAX])


def docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and node.body and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value


def flags(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Kind and object of what is suspicious about one node."""
    match node:
        case ast.Name(id=name) if name in NAMES:
            yield "name", name
        case ast.Attribute(attr=name) if name in ATTRIBUTES:
            yield "attribute", name
        case ast.Import(names=names):
            for alias in names:
                if alias.name.partition(".")[0] in MODULES:
                    yield "module", alias.name.partition(".")[0]
        case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
            yield "module", module.partition(".")[0]
        case ast.Call(func=ast.Name(id="getattr"), args=[_, wanted, *_]):
            if not isinstance(wanted, ast.Constant | ast.Name | ast.Attribute):
                yield "computed", ""
        case _:
            yield from hidden_in(node)


def hidden_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Literals that may hide code or answers."""
    match node:
        case ast.Constant(value=str() as text) if text in TEXTS:
            yield "name", text
        case ast.Constant(value=str() | bytes() as value) if len(value) >= BLOB_CHARACTERS:
            longest = max(map(len, value.split()), default=0)
            if longest >= BLOB_CHARACTERS:
                yield "blob", str(longest)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            constants = sum(isinstance(each, ast.Constant) for each in items)
            if constants >= TABLE_ITEMS:
                yield "table", str(constants)


def complexity(files: Files) -> Any:
    """Cyclomatic complexity, summed over all scopes, and that of the most complex one.

    radon counts; scopes are cut here, because its own totals leave out what is inside another
    function: there any solution would look simple.
    """
    total = 0
    scopes = []
    for path, source in files:
        for name, line, own in scopes_of(parsed(source)):
            visitor = ComplexityVisitor()
            visitor.visit(ast.Module(body=own, type_ignores=[]))
            # A module and a class are no function of their own, but may hold branches.
            total += visitor.complexity - (name in {"module", "class"})
            scopes.append((visitor.complexity, name, path, line))
    scopes.sort(key=lambda each: -each[0])
    found = [
        ["complexity", f"{name} has {value}", path, line, float(value)]
        for value, name, path, line in scopes[:COMPLEX_LISTED_MAX]
    ]
    numbers = {"sum": float(total), "max": float(scopes[0][0] if scopes else 0)}
    return ("report", numbers, found)


def scopes_of(tree: ast.Module) -> Iterator[tuple[str, int, list[ast.stmt]]]:
    """Every scope with its statements, in which scopes inside it are empty."""
    waiting: list[tuple[str, int, list[ast.stmt]]] = [("module", 0, tree.body)]
    while waiting:
        name, line, body = waiting.pop()
        cut = _Cut()
        own = [cut.visit(statement) for statement in body]
        yield name, line, own
        waiting += cut.inner


class _Cut(ast.NodeTransformer):
    """Replaces definitions by what the scope around them evaluates for them."""

    def __init__(self) -> None:
        self.inner: list[tuple[str, int, list[ast.stmt]]] = []

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        self.inner.append((node.name, node.lineno, node.body))
        defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each]
        return _evaluated([*node.decorator_list, *defaults])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.inner.append(("class", node.lineno, node.body))
        return _evaluated([*node.decorator_list, *node.bases])


def _evaluated(expressions: list[ast.expr]) -> ast.AST:
    return ast.Expr(value=ast.Tuple(elts=expressions, ctx=ast.Load()))
