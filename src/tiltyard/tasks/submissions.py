"""Reads what an agent left: a file or a directory, links and all, none of them followed.

Whatever it is, it becomes a `Submission`, for the verifier to judge. Only what the caller did
wrong, such as a path where nothing is, is an error here.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.files import kind_of
from tiltyard.core.task import Odd, RepositorySuite, ScriptSuite, Submission, Task
from tiltyard.tasks.trees import (
    ODD_KINDS,
    Caps,
    open_directory,
    read_file,
    read_tree,
)
from tiltyard.verify.globs import matches
from tiltyard.verify.signs import of_a_tool
from tiltyard.verify.submission import WHOLE, wanted_file

FILE_CAPS = Caps()
"""Of a function's or a program's task, whose answer is one file."""
PROJECT_CAPS = Caps(entries_max=50_000)
"""Of a task that has a project: with its packages and its history it is large without any guile."""
_MAGIC = "*?["
_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


def read_submission(path: Path, task: Task) -> Submission:
    """Reads what lies at `path`; of the path's own last part no link is followed either.

    A single file stands for the one file that the task wants. Raises `UsageError` when nothing is
    there, or a file where the task takes a directory, and `StoreError` when the host fails.
    """
    try:
        return _read(path, task)
    except OSError as error:
        if error.errno in _NOWHERE:
            raise UsageError(
                f"there is no submission at {path}.", fix="Give the file or directory to judge."
            ) from None
        raise StoreError(
            f"the submission at {path} cannot be read: {error.strerror}.",
            fix="Try again, or correct what keeps this user out.",
        ) from None


def _read(path: Path, task: Task) -> Submission:
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        try:
            root = open_directory(path)
        except PermissionError:
            # Left like that by the agent: its own doing, and no fault of the host.
            return Submission(files={}, odd={WHOLE: Odd.UNREADABLE})
        try:
            wanted = _wanted(task)
            tree = read_tree(root, _caps(task), wanted=wanted, needed=_needed(task), into=wanted)
        finally:
            os.close(root)
        return Submission(files=tree.files, links=tree.links, odd=tree.odd)
    name = _one_file(task)
    if stat.S_ISLNK(mode):
        target = os.fsencode(path.readlink()).decode("utf-8", "backslashreplace")
        return Submission(files={}, links={name or WHOLE: target})
    if not stat.S_ISREG(mode):
        return Submission(files={}, odd={name or WHOLE: ODD_KINDS[kind_of(mode)]})
    if name is None:
        raise UsageError(
            f"{path} is a file, and task {task.id} takes more than one.",
            fix="Give the directory that the agent worked in.",
        )
    # The directory above is the caller's, so links in its path are followed.
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        content = read_file(above, path.name, FILE_CAPS, hard_links=False)
    finally:
        os.close(above)
    if isinstance(content, Odd):
        return Submission(files={}, odd={name: content})
    return Submission(files={name: content})


def _caps(task: Task) -> Caps:
    project = isinstance(task.hidden, RepositorySuite | ScriptSuite)
    return PROJECT_CAPS if project else FILE_CAPS


def _wanted(task: Task) -> "_Wanted":
    """Not what tools keep for themselves, which is often more than all else and never judged. A
    script may want its packages."""
    if isinstance(task.hidden, ScriptSuite):
        return _everything
    declared = _declared(task)

    def wanted(path: str, names: Sequence[str] = ()) -> bool:
        # A directory is asked for as a file in it would be; of `.git` only some are wanted.
        of_git = path.rsplit("/", 1)[-1] == ".git"
        return of_git or not of_a_tool(f"{path}/", declared, beside=names)

    return wanted


class _Wanted(Protocol):
    """Whether an entry is looked at; of a directory asked again with the names in it."""

    def __call__(self, path: str, names: Sequence[str] = (), /) -> bool: ...


def _everything(_path: str, _names: Sequence[str] = ()) -> bool:
    return True


def _declared(task: Task) -> frozenset[str]:
    """The names in the paths and globs of a project's sources."""
    suite = task.hidden
    declared = (*suite.sources, *suite.base) if isinstance(suite, RepositorySuite) else ()
    return frozenset(name for each in declared for name in each.split("/"))


def _needed(task: Task) -> Callable[[str], bool]:
    match task.hidden:
        case ScriptSuite(artifacts=globs):
            return lambda path: matches(path, globs)
        case RepositorySuite(sources=globs):
            return lambda path: matches(path, globs)
        case _:
            name = wanted_file(task)
            return lambda path: path == name


def _one_file(task: Task) -> str | None:
    """The path that a single file stands for; None when the task takes several."""
    match task.hidden:
        case RepositorySuite(sources=globs) | ScriptSuite(artifacts=globs):
            plain = len(globs) == 1 and not any(char in globs[0] for char in _MAGIC)
            return globs[0] if plain else None
        case _:
            return wanted_file(task)
