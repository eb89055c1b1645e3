"""Which paths would change an ordinary test run, whatever is in them. Pure."""

import fnmatch
import re
import sys
from functools import cache

_PROTECTED = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"),
    *("pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", ".coveragerc"),
)
_RUNNERS = frozenset({"pytest", "_pytest", "pluggy", "hypothesis"})
_HARMLESS = frozenset({"test", "this", "antigravity", "idlelib", "turtledemo"})
"""Of the standard library, but nothing in a test run imports them: an agent's scratch `test.py`
reaches for nothing."""
_HIDING = (_RUNNERS | sys.stdlib_module_names) - _HARMLESS


def configures(path: str) -> bool:
    """Whether a file of this name configures test runs or interpreters, wherever it lies."""
    name = path.rsplit("/", 1)[-1]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _PROTECTED)


def hides(path: str) -> bool:
    """Whether this path, relative to where modules are looked for, hides a module that the
    interpreter or the test runner has. What lies deeper hides nothing."""
    return path.split("/", 1)[0].removesuffix(".py") in _HIDING


def matches(path: str, globs: tuple[str, ...]) -> bool:
    """Whether a relative path matches one of the globs: `*` and `?` stay within one name, `**`
    crosses directories, and a glob that ends in `/` means all below it."""
    return any(_compiled(glob).fullmatch(path) for glob in globs)


@cache
def _compiled(glob: str) -> re.Pattern[str]:
    pattern = ""
    rest = glob.removeprefix("./")
    rest = f"{rest}**" if rest.endswith("/") else rest
    while rest:
        if rest.startswith("**/"):
            pattern, rest = pattern + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            pattern, rest = pattern + ".*", rest[2:]
        elif rest[0] in "*?":
            pattern, rest = pattern + ("[^/]*" if rest[0] == "*" else "[^/]"), rest[1:]
        elif rest[0] == "[" and (closing := rest.find("]", 2)) > 0:
            inner = rest[1:closing].replace("\\", "\\\\")
            inner = f"^{inner[1:]}" if inner.startswith("!") else inner
            pattern, rest = f"{pattern}(?!/)[{inner}]", rest[closing + 1 :]
        else:
            pattern, rest = pattern + re.escape(rest[0]), rest[1:]
    return re.compile(pattern, re.DOTALL)
