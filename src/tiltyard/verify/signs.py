"""Which paths would change an ordinary test run, whatever is in them. Pure."""

import fnmatch
import sys

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
