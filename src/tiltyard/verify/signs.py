"""Which paths would change an ordinary test run, whatever is in them. Pure."""

import fnmatch
import sys
from collections.abc import Collection

_PROTECTED = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"),
    *("pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", ".coveragerc"),
)
RUNNERS = frozenset({"pytest", "_pytest", "pluggy", "hypothesis"})
"""What test runs are made of: a module of this name where they look first is run in its place."""
_HARMLESS = frozenset({"test", "this", "antigravity", "idlelib", "turtledemo"})
"""Of the standard library, but nothing in a test run imports them: an agent's scratch `test.py`
reaches for nothing."""
_HIDING = (RUNNERS | sys.stdlib_module_names) - _HARMLESS
_TOOLS = frozenset(
    {
        *(".venv", "venv", ".tox", ".nox", "node_modules", ".git", ".hg", ".svn"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
    }
)
"""Directories of tools. Test runs collect nothing from them and import nothing from them, and what
is in them is full of links and of other people's configuration."""
_HOOKS = "hooks"
_ENVIRONMENT = "pyvenv.cfg"
"""What every virtual environment has, whatever its own name and whoever made it."""


def configures(path: str) -> bool:
    """Whether a file of this name configures test runs or interpreters, wherever it lies."""
    name = path.rsplit("/", 1)[-1]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _PROTECTED)


def hides(path: str) -> bool:
    """Whether this path, relative to where modules are looked for, hides a module that the
    interpreter or the test runner has. What lies deeper hides nothing."""
    return path.split("/", 1)[0].removesuffix(".py") in _HIDING


def of_a_tool(path: str, declared: Collection[str] = (), *, beside: Collection[str] = ()) -> bool:
    """Whether a path is inside a directory that a tool made for itself, such as `.venv`, and so can
    change no test run, whatever it is. Git's hooks can. `declared` are paths or globs; a directory
    that one of them names is none of a tool's own. `beside` are all names in the path's directory,
    as far as they are known: among them may be what shows a virtual environment of any name."""
    parts = path.split("/")
    above = parts[:-1]
    if _ENVIRONMENT in beside and not any(_names(each, declared) for each in above):
        return True
    for at, name in enumerate(above):
        if name in _TOOLS:
            return not _names(name, declared) and not (name == ".git" and parts[at + 1] == _HOOKS)
    return False


def _names(name: str, declared: Collection[str]) -> bool:
    return any(name in each.split("/") for each in declared)


def is_lock(path: str) -> bool:
    """Whether a link is the one that Emacs makes beside a file it has open: `.#NAME`, to nowhere.
    Nothing imports such a name."""
    return path.rsplit("/", 1)[-1].startswith(".#")


def left_by_python(path: str, content: bytes) -> bool:
    """Whether it is a cache as Python writes it for any program that an agent runs.

    Such a file counts only beside its source and by its source's time and size. Outside a
    `__pycache__` directory, or made to be believed without a source, it is no cache.
    """
    if not (path.endswith(".pyc") and f"/{path}".rsplit("/", 2)[-2] == "__pycache__"):
        return False
    made_by_time = content[4:8] == bytes(4)
    return len(content) > 16 and made_by_time
