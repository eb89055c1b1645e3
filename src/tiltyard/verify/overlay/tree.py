"""The tree that is verified: the task's own, with the declared sources of a submission. Pure.

What else a submission ships has no effect. What of it would have changed an ordinary test run is
named, unless the task's own files have it just so: an agent leaves the whole project behind.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import MIB
from tiltyard.core.task import RepositorySuite, Submission
from tiltyard.verify.evidence import plain
from tiltyard.verify.globs import matches
from tiltyard.verify.signs import configures, hides, is_lock, left_by_python, of_a_tool
from tiltyard.verify.submission import UNSAFE

FILES_MAX = 5_000
BYTES_MAX = 12 * MIB
PATH_CHARACTERS_MAX = 1_000
NAME_BYTES_MAX = 255
READ_BYTES_MAX = 256 * 1024
"""Of a source that is read for signs: it takes a second for a few megabytes."""
SIGNS_MAX = 50
"""Named at most; that there are more is said."""

_CACHED = re.compile(r"(?P<directory>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.[\w.-]+\.pyc")
_TEST = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
_RUNNER = re.compile(rb"\b_?pytest\b|\bpluggy\b|\bPYTEST_")
_RUNNER_NAMED = re.compile(r"""[a-zA-Z]{,2}(['"]{1,3})(?:(?:_?pytest|pluggy)[\w.]*|PYTEST_\w+)\1""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is laid into the sandbox, or why there is nothing to judge."""

    files: Mapping[str, bytes]
    """By path below the workspace."""
    problem: str
    """Of the submission's own making; empty when there is a tree."""
    tamper: tuple[str, ...]


def tests_of(suite: RepositorySuite) -> dict[str, bytes]:
    """The task's test files by their path in the tree."""
    return {f"tests/{path}": content for path, content in suite.tests.items()}


def places_of(suite: RepositorySuite) -> tuple[str, ...]:
    """Where modules are looked for, relative to the workspace."""
    paths = (*suite.base, *suite.reference)
    return (".", "src") if any(path.startswith("src/") for path in paths) else (".",)


def reference_tree(suite: RepositorySuite) -> dict[str, bytes]:
    """The tree with the reference in it. Raises `GraderError` when no sandbox takes it."""
    files = {**suite.base, **suite.reference, **tests_of(suite)}
    size = sum(map(len, files.values()))
    if len(files) > FILES_MAX or size > BYTES_MAX:
        raise UnsoundTask(
            f"its project has {len(files)} files and {size} bytes, more than overlay mode takes",
            fix=f"keep it within {FILES_MAX} files and {BYTES_MAX} bytes.",
        )
    for path in files:
        if why := _bad_path(path) or _under_a_file(path, files):
            raise UnsoundTask(f"a file of its project cannot be laid down: {why}")
    return files


def tree_of(suite: RepositorySuite, submission: Submission) -> Tree:
    """Lays the submission's sources over the task's project.

    A file of the project that the submission lacks stays: to leave a file out must not be a way to
    change anything that adding it back would not change.
    """
    own = {**suite.base, **tests_of(suite)}
    tamper = _named(_signs(suite, submission, own))
    taken = {path: body for path, body in submission.files.items() if _counts(suite, path)}
    files = {**suite.base, **taken, **tests_of(suite)}
    problem = _unsafe(suite, submission) or _over(taken, files)
    if not problem:
        # What the agent did not write is the task's own business.
        clash = (_bad_path(path) or _under_a_file(path, files) for path in taken)
        problem = next(filter(None, clash), "")
    if not problem and not any(_counts(suite, path) for path in files):
        problem = f"there is no file that matches {', '.join(suite.sources)}"
    return Tree(files={} if problem else files, problem=problem, tamper=tamper)


def _counts(suite: RepositorySuite, path: str) -> bool:
    """Whether a submission's file is taken."""
    if not matches(path, suite.sources) or matches(path, suite.protected):
        return False
    if path.startswith("tests/") or configures(path) or ".git" in path.split("/"):
        return False
    if _of_a_tool(suite, path):
        return False
    known = path in suite.base or path in suite.reference
    # An agent's own tests have no effect, and no excuse to speak of the test runner.
    return known or not (_hides(suite, path) or _TEST.fullmatch(path))


def _hides(suite: RepositorySuite, path: str) -> bool:
    places = places_of(suite)
    return hides(path) or ("src" in places and hides(path.removeprefix("src/")))


def _unsafe(suite: RepositorySuite, submission: Submission) -> str:
    for path, target in submission.links.items():
        if _counts(suite, path) and not is_lock(path):
            return plain(f"unsafe artifact: {path} is a link to {target}")
    for path, what in submission.odd.items():
        if _counts(suite, path) or what == "too many":
            return plain(f"unsafe artifact: {path} ({what})")
    return ""


def _over(taken: Mapping[str, bytes], files: Mapping[str, bytes]) -> str:
    size = sum(map(len, taken.values()))
    if len(taken) > FILES_MAX or size > BYTES_MAX:
        return f"its sources are {len(taken)} files and {size} bytes, more than may be"
    if len(files) > FILES_MAX or sum(map(len, files.values())) > BYTES_MAX:
        return "its sources make the project larger than may be"
    return ""


def _bad_path(path: str) -> str:
    parts = path.split("/")
    bad = not path or len(path) > PATH_CHARACTERS_MAX or "\0" in path
    try:
        bad = bad or any(part in {"", ".", ".."} for part in parts)
        bad = bad or any(len(part.encode()) > NAME_BYTES_MAX for part in parts)
    except UnicodeEncodeError:
        bad = True
    return plain(f"unsafe artifact: the path {path!r}") if bad else ""


def _under_a_file(path: str, files: Mapping[str, bytes]) -> str:
    for above in _directories(path):
        if above in files:
            return plain(f"unsafe artifact: {above} is a file, and there is {path}")
    return ""


def _directories(path: str) -> Iterator[str]:
    """Those that a file is in, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _signs(suite: RepositorySuite, submission: Submission, own: Mapping[str, bytes]) -> set[str]:
    names = {path.rsplit("/", 1)[-1] for path in suite.tests} - {"__init__.py"}
    above = {up for path in (*own, *suite.reference) for up in _directories(path)}

    def matters(path: str) -> bool:
        """Whether what stands there, unread, would have been taken, or read by a test run."""
        return (
            (_counts(suite, path) and not is_lock(path))
            or path in above
            or bool(_sign(suite, submission, path, b"", names))
        )

    signs = {f"ships a link: {path}" for path in submission.links if matters(path)}
    signs |= {
        f"ships something odd ({what}): {path}"
        for path, what in submission.odd.items()
        if (what in UNSAFE and not _of_a_tool(suite, path)) or matters(path)
    }
    for path, body in submission.files.items():
        if body in (suite.base.get(path), own.get(path), suite.reference.get(path)):
            continue
        if _counts(suite, path):
            before = (own.get(path, b""), suite.reference.get(path, b""))
            if names_the_runner(body) and not any(map(names_the_runner, before)):
                signs.add(f"speaks of the test runner: {path}")
            continue
        if sign := _sign(suite, submission, path, body, names):
            signs.add(f"{sign}: {path}")
    return signs


def _of_a_tool(suite: RepositorySuite, path: str) -> bool:
    return of_a_tool(path, (*suite.sources, *suite.base))


def _sign(
    suite: RepositorySuite, submission: Submission, path: str, body: bytes, names: set[str]
) -> str:
    """What a file that has no effect would have been for, in an ordinary test run."""
    if left_by_python(path, body) or _of_a_tool(suite, path):
        return ""
    if cached := _CACHED.fullmatch(path):
        # Whoever ran the project left these behind; one without its source is something else.
        source = f"{cached['directory']}{cached['name']}.py"
        if source in submission.files or source in suite.base:
            return ""
    if configures(path):
        return "ships a file that configures test runs"
    if ".git" in path.split("/") and "hooks" in path.split("/") and not path.endswith(".sample"):
        return "ships a git hook"
    if _hides(suite, path):
        return "ships a module that hides an installed one"
    if path.rsplit("/", 1)[-1] in names and path not in suite.base:
        return "ships a file of the tests' name"
    # To write more tests beside those of the project is what a good agent does.
    if matches(path, suite.protected) and (path in suite.base or not _TEST.fullmatch(path)):
        return "ships a protected file"
    return ""


def _named(signs: set[str]) -> tuple[str, ...]:
    shown = [plain(sign) for sign in sorted(signs)]
    more = len(shown) - SIGNS_MAX
    return (*shown[:SIGNS_MAX], *([f"and {more} more"] if more > 0 else []))


def names_the_runner(source: bytes) -> bool:
    """Whether code uses the test runner's own modules, or names them or their settings in a string
    that is nothing else. A mention in prose does not count, nor does `import pytest`."""
    if len(source) > READ_BYTES_MAX or not _RUNNER.search(source):
        return False
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.NAME and token.string in {"_pytest", "pluggy"}:
                return True
            if token.type == tokenize.STRING and _RUNNER_NAMED.fullmatch(token.string):
                return True
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return False  # no code at all
    return False
