"""The house rules that a machine can check, read from the source itself.

Each test collects every offence and shows them all, as `file:line: what`, because fixing one at a
time wastes the reader's runs. What ruff, mypy and import-linter already check is not repeated.
"""

import ast
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 400
STATEMENTS_MAX = 50
GENERATED = {".venv", "build", "dist", "runs", "__pycache__", ".git"}
CACHES = {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"}
AT_ROOT = {
    ".ci",
    ".gitignore",
    ".importlinter",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench",
    "docs",
    "examples",
    "native",
    "pyproject.toml",
    "scripts",
    "src",
    "tests",
}
BANNED_WORDS = {"manager", "helper", "utils", "common", "misc", "handler", "data", "info"}
NAMES_OF_OTHERS = {"data_received", "pipe_data_received"}
"""Methods whose names an interface of the standard library dictates."""

Rule = Callable[[ast.AST], str | None]


@cache
def tracked_files() -> list[Path]:
    """Every file under version control; without .git, every file that is not generated."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
        return [path for path in paths if path.is_file()]
    skipped = GENERATED | CACHES
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and not skipped.intersection(path.relative_to(ROOT).parts)
        and not path.parent.name.endswith(".egg-info")
        and path != ROOT / "bench" / "results.json"
    ]


def below(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix in suffixes and path.relative_to(ROOT).parts[0] in folders
    ]


def parsed(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for path in paths:
        yield path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, line: int, what: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {what}"


def offences(paths: list[Path], rule: Rule) -> list[str]:
    """What `rule` says of each node of each file, with its place."""
    return [
        place(path, getattr(node, "lineno", 1), what)
        for path, tree in parsed(paths)
        for node in ast.walk(tree)
        if (what := rule(node)) is not None
    ]


def dotted(node: ast.AST) -> str:
    """`a.b().c` of a chain of attributes and calls; an unnamed part becomes `?`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case ast.Call(func=func):
            return f"{dotted(func)}()"
        case _:
            return "?"


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names):
            return [f"{module or ''}.{alias.name}" for alias in names]
        case _:
            return []


def test_files_are_short() -> None:
    paths = below(
        "src", "tests", "bench", "native", "scripts", ".ci", suffixes=(".py", ".c", ".h", "")
    )
    long = []
    for path in paths:
        lines = path.read_bytes().count(b"\n")
        if lines >= LINES_MAX:
            long.append(place(path, lines, f"{lines} lines, fewer than {LINES_MAX} are allowed"))
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    def rule(node: ast.AST) -> str | None:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
        return f"{node.name} has {statements} statements" if statements >= STATEMENTS_MAX else None

    found = offences(below("src", "bench", "scripts"), rule)
    assert not found, "\n".join(found)


def test_every_module_says_why_it_is_there() -> None:
    found = [
        place(path, 1, "no module docstring")
        for path, tree in parsed(below("src", "tests", "bench"))
        if not (ast.get_docstring(tree) or "").strip()
    ]
    found += [
        place(path, 1, "does not begin with a comment that says what it is for")
        for path in below("native", suffixes=(".c", ".h"))
        if not path.read_text(encoding="utf-8").lstrip().startswith(("/*", "//"))
    ]
    assert not found, "\n".join(found)


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run_utils", {"run", "utils"}),
        ("HTTPHandler", {"http", "handler"}),
        ("metadata", {"metadata"}),
    ],
)
def test_words_of_a_name(name: str, expected: set[str]) -> None:
    assert words(name) == expected


def test_names_say_something() -> None:
    def rule(node: ast.AST) -> str | None:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
        bad = words(node.name) & BANNED_WORDS
        return f"{node.name} uses {bad}" if bad and node.name not in NAMES_OF_OTHERS else None

    paths = below("src", "tests", "bench", "scripts")
    found = offences(paths, rule)
    for path in paths + below("native", suffixes=(".c", ".h")):
        bad = words("_".join(path.relative_to(ROOT).with_suffix("").parts)) & BANNED_WORDS
        if bad:
            found.append(place(path, 1, f"the path uses {bad}"))
    assert not found, "\n".join(found)


def test_nothing_strays_at_the_root() -> None:
    stray = {path.relative_to(ROOT).parts[0] for path in tracked_files()} - AT_ROOT
    assert not stray, f"not expected in the repository's root: {sorted(stray)}"


def test_architecture_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.relative_to(ROOT / "src/tiltyard").parts[0] for path in below("src")}
    missing = {room.removesuffix(".py") for room in rooms} - {"__init__"}
    missing -= set(re.findall(r"`(?:tiltyard[./])?(\w+)[\w./]*`", text))
    assert not missing, f"ARCHITECTURE.md does not name the rooms {sorted(missing)} in backquotes"
    assert text.count("\n") <= 300


def test_every_setting_is_documented() -> None:
    from tiltyard.config import environment_names

    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    missing = [name for name in environment_names() if f"`{name}`" not in text]
    assert not missing, f"docs/settings.md does not document {missing}"


BANNED_IMPORTS = re.compile(r"(unittest\.mock|mock|pickle|marshal|shelve|dill|cloudpickle)(\.|$)")
BANNED_CALLS = {
    "asyncio.gather": "use asyncio.TaskGroup: gather leaves the others running when one fails",
    "asyncio.create_task": "use asyncio.TaskGroup: a bare task has no owner",
    "time.sleep": "wait for what you are waiting for",
}


def banned_call(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = dotted(node.func)
    if name in BANNED_CALLS:
        return f"{name}: {BANNED_CALLS[name]}"
    if name == "create_task" or re.search(r"loop(\(\))?\.create_task$", name):
        return f"{name}: {BANNED_CALLS['asyncio.create_task']}"
    return None


def banned_import(node: ast.AST) -> str | None:
    bad = [
        name
        for name in imported(node)
        if BANNED_IMPORTS.match(name) or name in {"time.sleep", "asyncio.gather"}
    ]
    return f"imports {bad[0]}" if bad else None


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.gather(a, b)",
        "asyncio.create_task(a)",
        "create_task(a)",
        "asyncio.get_running_loop().create_task(a)",
        "self.loop.create_task(a)",
        "time.sleep(1)",
        "import pickle",
        "from unittest import mock",
        "from time import sleep",
    ],
)
def test_what_is_banned_is_seen(source: str) -> None:
    assert any(banned_call(node) or banned_import(node) for node in ast.walk(ast.parse(source)))


@pytest.mark.parametrize("source", ["group.create_task(a)", "import pickletools", "self.mock()"])
def test_what_is_allowed_passes(source: str) -> None:
    assert not any(banned_call(node) or banned_import(node) for node in ast.walk(ast.parse(source)))


def test_nothing_unowned_unsafe_or_asleep() -> None:
    def rule(node: ast.AST) -> str | None:
        if isinstance(node, ast.FunctionDef) and node.name == "__del__":
            return "__del__: use a context manager; when it runs is nobody's decision"
        return banned_call(node) or banned_import(node)

    found = offences(below("src", "bench"), rule)
    assert not found, "\n".join(found)


def test_tests_neither_sleep_nor_patch() -> None:
    def rule(node: ast.AST) -> str | None:
        match node:
            case ast.Call(func=func, args=[ast.Constant(value=int() | float() as delay)]):
                if dotted(func) == "asyncio.sleep" and delay > 0:
                    return "asyncio.sleep: wait for what you are waiting for"
            case ast.Attribute(value=ast.Name(id="monkeypatch"), attr=attr):
                if attr not in {"setenv", "delenv", "chdir"}:
                    return f"monkeypatch.{attr}: use a fake that passes the real thing's contract"
        return banned_call(node) or banned_import(node)

    found = offences(below("tests"), rule)
    assert not found, "\n".join(found)


def test_only_config_reads_the_environment() -> None:
    def rule(node: ast.AST) -> str | None:
        names = {dotted(node), *imported(node)} & {"os.environ", "os.environb", "os.getenv"}
        return f"{names.pop()}: only tiltyard.config reads the environment" if names else None

    # What is below `inside` runs in a sandbox, in a process and an environment of its own.
    elsewhere = [
        path
        for path in below("src")
        if path != ROOT / "src/tiltyard/config.py" and "inside" not in path.parts
    ]
    found = offences(elsewhere, rule)
    assert not found, "\n".join(found)


# Put together from parts, so that this file does not hold what it forbids.
FOREIGN = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            "npm" + r"js\.(org|com)",
            "crates" + r"\.io",
            "golang" + r"\.org",
            "docker" + r"\.(io|com)",
            "debian" + r"\.org",
            "ubuntu" + r"\.com",
            "download.py" + r"torch\.org",
            "index" + r"-url\s*=?\s*\S*://",
            r"(?<![\w}])/wo" + r"rk/(main|shared)",
            r"(?<![\w}])/Us" + r"ers/\w",
            r"(?<![\w}])/ho" + r"me/(?!agent\b|user\b|someone\b)\w",
            r"(?<![\w}])/ro" + r"ot/\.\w",
        ]
    )
)


def test_no_registry_and_no_developers_machine_is_named() -> None:
    found = []
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if hit := FOREIGN.search(line):
                found.append(place(path, number, f"names {hit.group()!r}"))
    assert not found, "\n".join(found)
