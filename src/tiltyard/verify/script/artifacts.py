"""What is taken of a submission for a script, and laid into a fresh sandbox. Pure but for bytes."""

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiltyard.core.task import ScriptSuite, Submission
from tiltyard.verify.globs import matches
from tiltyard.verify.signs import RUNNERS, configures, is_lock, left_by_python, of_a_tool

FILES_MAX = 20_000
BYTES_MAX = 64 * 1024 * 1024
SIGNS_MAX = 50
RESERVED = ("/tests", "/logs", "/solution", "/dev", "/proc", "/sys", "/run", "/etc", "/usr")
"""Where a work directory cannot be: the verifier's own places, and the system's."""
MODE = 0o755
"""A submission keeps no permissions, so whatever a script may want to run can be run."""


PROJECT = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
"""These configure test runs too, but an answer that is a project is none without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """Regular files by path below the work directory, or why there is nothing to judge."""

    files: Mapping[str, bytes]
    problem: str = ""
    """Empty when the files can be judged, even if there are none."""
    tamper: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """What matches `artifacts`, but would change a test run, and no glob names."""


def artifacts_of(suite: ScriptSuite, submission: Submission) -> Artifacts:
    """Takes the regular files that `artifacts` names.

    A link or a special file among them is refused, because what it stands for was never part of
    what was submitted; elsewhere it has no effect, and those of a tool's own directory, such as
    `.venv`, are left out. A path that leaves the work directory is reported as tampering. A file
    that pytest or Python load unasked is left out unless the task has it too or a glob names it:
    most scripts run pytest, and a `conftest.py` beside a wrong answer makes it a right one.
    """
    outside = [path for path in submission.files if not _inside(path)]
    tamper = [f"a path outside: {path[:200]!r}" for path in sorted(outside)[:SIGNS_MAX]]
    links = dict.fromkeys((path for path in submission.links if not is_lock(path)), "link")
    declared = (*suite.artifacts, *suite.base)
    for path, kind in sorted({**submission.odd, **links}.items()):
        if matches(path, suite.artifacts) and not of_a_tool(path, declared):
            return Artifacts(
                files={}, problem=f"unsafe artifact: {path[:200]!r} is a {kind}", tamper=(*tamper,)
            )
    files = {
        path: content
        for path, content in submission.files.items()
        if _inside(path) and matches(path, suite.artifacts)
    }
    unasked = {path: files.pop(path) for path in sorted(files) if _unasked(path, suite)}
    left_out = (path for path, content in unasked.items() if not left_by_python(path, content))
    problem = ""
    if len(files) > FILES_MAX:
        problem = f"{len(files)} artifacts, more than {FILES_MAX}"
    elif (size := sum(map(len, files.values()))) > BYTES_MAX:
        problem = f"artifacts of {size} bytes, more than {BYTES_MAX}"
    return Artifacts(
        files={} if problem else files,
        problem=problem,
        tamper=(*tamper,),
        left_out=tuple(left_out)[:SIGNS_MAX],
    )


def _unasked(path: str, suite: ScriptSuite) -> bool:
    first, _, _ = path.partition("/")
    name = path.rsplit("/", 1)[-1]
    if configures(path) and name not in PROJECT:
        loaded = name
    elif first.removesuffix(".py") in RUNNERS:
        loaded = first
    else:
        return False
    named = any(loaded in glob.split("/") for glob in suite.artifacts)
    return not (named or path in suite.base or path in suite.reference)


def _inside(path: str) -> bool:
    parts = path.split("/")
    return bool(path) and "\0" not in path and not {"", ".", ".."} & set(parts)


def archive(trees: Mapping[str, Mapping[str, bytes]]) -> io.BytesIO:
    """An uncompressed tar of several trees, by the directory that each is laid into."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for directory, files in trees.items():
            made: set[str] = set()
            for path in sorted(files):
                for parent in _parents(f"{directory}/{path}".strip("/")):
                    if parent not in made:
                        made.add(parent)
                        entry = tarfile.TarInfo(parent)
                        entry.type, entry.mode = tarfile.DIRTYPE, MODE
                        tar.addfile(entry)
                entry = tarfile.TarInfo(f"{directory}/{path}".strip("/"))
                entry.mode, entry.size = MODE, len(files[path])
                tar.addfile(entry, io.BytesIO(files[path]))
    stream.seek(0)
    return stream


def _parents(path: str) -> Iterator[str]:
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
