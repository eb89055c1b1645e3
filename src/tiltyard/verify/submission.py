"""What is taken of a submission, and what in it looks like reaching for the verifier. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import (
    Odd,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Submission,
    Task,
)
from tiltyard.verify.evidence import plain
from tiltyard.verify.signs import configures, hides, left_by_python, of_a_tool

SOURCE_BYTES_MAX = 1024 * 1024
WHOLE = "."
"""The path that stands for a submission as a whole."""
SIGNS_MAX = 50
UNSAFE = frozenset({Odd.FIFO, Odd.DEVICE, Odd.CHANGED})
"""What would have hung or led astray a verifier that opens whatever there is. The others are what
work leaves behind: a server's socket, a large data file, a directory without permissions."""
_TESTS = frozenset({"tests", "test"})
"""Where tests are laid: a link there would lead them, or whoever reads them, elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The one file that counts, or why there is none."""

    source: bytes
    problem: str
    """Empty when there is a source."""
    tamper: tuple[str, ...]


def wanted_file(task: Task) -> str:
    """The one file that the answer to a function or program task consists of."""
    suite = task.hidden
    return suite.source if isinstance(suite, ProgramSuite) else f"{task.module}.py"


def reference_of(task: Task) -> Submission:
    """A task's reference as somebody would submit it. Raises `UnsoundTask` for what is no text."""
    match task.hidden:
        case RepositorySuite(base=base, reference=reference):
            return Submission(files={**base, **reference})
        case ScriptSuite(base=base, reference=reference):
            return Submission(files={**base, **reference})
        case _:
            try:
                return Submission(files={wanted_file(task): task.reference.encode()})
            except UnicodeEncodeError:
                raise UnsoundTask(
                    f"task {task.id}: its reference is no text that can be stored."
                ) from None


def whole_problem(submission: Submission) -> str:
    """Why nothing of a submission may be taken, whatever the task; empty when something may."""
    if WHOLE in submission.links:
        return "unsafe artifact: the submission is a link"
    if Odd.TOO_MANY in submission.odd.values():
        return "unsafe artifact: the submission has too many files"
    if WHOLE in submission.odd:
        return f"unsafe artifact: the submission as a whole ({submission.odd[WHOLE]})"
    return ""


def take(task: Task, submission: Submission) -> Taken:
    """Takes the declared file and nothing else.

    Anything else that a submission ships has no effect; what of it would have changed an ordinary
    test run is reported as tampering.
    """
    wanted = wanted_file(task)
    tamper = tuple(sorted(set(_signs(task, submission))))
    if len(tamper) > SIGNS_MAX:
        tamper = (*tamper[:SIGNS_MAX], f"and {len(tamper) - SIGNS_MAX} more such files")
    source = submission.files.get(wanted, b"")
    if wanted in submission.links:
        problem = f"unsafe artifact: {wanted} is a link, not a file"
    elif wanted in submission.odd:
        problem = (
            f"unsafe artifact: {wanted} is no file that can be read ({submission.odd[wanted]})"
        )
    elif any(path.startswith(f"{wanted}/") for path in submission.files):
        problem = f"unsafe artifact: {wanted} is a directory"
    elif wanted not in submission.files:
        problem = f"there is no {wanted}"
    elif len(source) > SOURCE_BYTES_MAX:
        problem = f"{wanted} has {len(source)} bytes, more than {SOURCE_BYTES_MAX}"
    else:
        return Taken(source=source, problem="", tamper=tamper)
    return Taken(source=b"", problem=problem, tamper=tamper)


def _signs(task: Task, submission: Submission) -> Iterator[str]:
    wanted = wanted_file(task)
    files = task.hidden.files if isinstance(task.hidden, PytestSuite) else ()
    tests = frozenset(each.rsplit("/", 1)[-1] for each in files)
    for path in submission.links:
        if path == wanted or path in _TESTS or _reach(tests, path, b""):
            yield f"ships a link: {plain(path)}"
    for path, content in submission.files.items():
        if path != wanted and (reach := _reach(tests, path, content)):
            yield f"{reach}: {plain(path)}"
    for path, what in submission.odd.items():
        if path == wanted or (what in UNSAFE and not of_a_tool(path)):
            yield f"ships what is no plain file ({what}): {plain(path)}"
        elif reach := _reach(tests, path, b""):
            yield f"{reach}: {plain(path)}"


def _reach(tests: frozenset[str], path: str, content: bytes) -> str:
    """What a file of this path would do to an ordinary test run; empty when nothing."""
    name = path.rsplit("/", 1)[-1]
    if left_by_python(path, content) or of_a_tool(path):
        return ""
    if configures(path):
        return "ships a file that configures test runs"
    if name in tests:
        return "ships a file of the tests' name"
    if hides(path):
        return "ships a module that hides an installed one"
    return ""
