"""What is taken of a submission, and what in it looks like reaching for the verifier. Pure."""

from dataclasses import dataclass

from tiltyard.core.task import PytestSuite, Submission, Task
from tiltyard.verify.signs import configures, hides

SOURCE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The one file that counts, or why there is none."""

    source: bytes
    problem: str
    """Empty when there is a source."""
    tamper: tuple[str, ...]


def take(task: Task, submission: Submission) -> Taken:
    """Takes the declared file and nothing else.

    Anything else that a submission ships has no effect; what of it would have changed an ordinary
    test run is reported as tampering.
    """
    wanted = f"{task.module}.py"
    tamper = tuple(sorted(_signs(task, submission)))
    source = submission.files.get(wanted, b"")
    if wanted in submission.links:
        problem = f"{wanted} is a link, not a file"
    elif wanted not in submission.files:
        problem = f"there is no {wanted}"
    elif len(source) > SOURCE_BYTES_MAX:
        problem = f"{wanted} has {len(source)} bytes, more than {SOURCE_BYTES_MAX}"
    else:
        return Taken(source=source, problem="", tamper=tamper)
    return Taken(source=b"", problem=problem, tamper=tamper)


def _signs(task: Task, submission: Submission) -> set[str]:
    signs = {f"ships a link: {path}" for path in submission.links}
    tests = task.hidden.files.keys() if isinstance(task.hidden, PytestSuite) else frozenset[str]()
    for path in submission.files:
        name = path.rsplit("/", 1)[-1]
        if configures(path):
            signs.add(f"ships a file that configures test runs: {path}")
        elif name in tests:
            signs.add(f"ships a file of the tests' name: {path}")
        elif path != f"{task.module}.py" and hides(path):
            signs.add(f"ships a module that hides an installed one: {path}")
    return signs
