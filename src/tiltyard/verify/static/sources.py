"""Which files static checks look at: those that the task declares, and nothing else. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from tiltyard.core.task import ProgramSuite, RepositorySuite, ScriptSuite, Submission, Task
from tiltyard.verify.globs import matches

PYTHON = ".py"
OTHERS = frozenset(
    {
        ".c",
        ".cc",
        ".cpp",
        ".go",
        ".java",
        ".js",
        ".lua",
        ".php",
        ".rb",
        ".rs",
        ".sh",
        ".swift",
        ".ts",
    }
)
"""Suffixes of other languages that some tool can read."""
FILES_MAX = 200
BYTES_MAX = 3 * 1024 * 1024
"""Of all files together: they go into a run in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of one language, by path."""

    suffix: str
    files: Mapping[str, bytes]

    @property
    def too_large(self) -> str:
        """Why they cannot be looked at; empty when they can."""
        size = sum(map(len, self.files.values()))
        if len(self.files) > FILES_MAX or size > BYTES_MAX:
            return f"{len(self.files)} sources of {size} bytes are too much to look at"
        return ""


def sources_of(task: Task, submission: Submission) -> tuple[Sources, Sources] | None:
    """A submission's sources and the reference's, to be compared; None when there are none.

    Of a project, the files that either of them changed: both as they then are.
    """
    hidden = task.hidden
    match hidden:
        case RepositorySuite():
            own = {
                path: content
                for path, content in submission.files.items()
                if matches(path, hidden.sources) and not matches(path, hidden.protected)
            }
            return _changed(hidden.base, own, hidden.reference)
        case ScriptSuite():
            own = {
                path: content
                for path, content in submission.files.items()
                if matches(path, hidden.artifacts)
            }
            return _changed(hidden.base, own, hidden.reference)
        case ProgramSuite():
            name = hidden.source
        case _:
            name = f"{task.module}{PYTHON}"
    suffix = PurePosixPath(name).suffix
    if name not in submission.files or suffix not in {PYTHON, *OTHERS}:
        return None
    reference = task.reference.encode("utf-8", "surrogatepass")
    return (
        Sources(suffix=suffix, files=MappingProxyType({name: submission.files[name]})),
        Sources(suffix=suffix, files=MappingProxyType({name: reference})),
    )


def _changed(
    base: Mapping[str, bytes], own: Mapping[str, bytes], reference: Mapping[str, bytes]
) -> tuple[Sources, Sources] | None:
    paths = sorted(
        path
        for path in {*own, *reference}
        if own.get(path, base.get(path)) != base.get(path)
        or reference.get(path, base.get(path)) != base.get(path)
    )
    suffix = _suffix(paths)
    if suffix is None:
        return None
    chosen = [path for path in paths if PurePosixPath(path).suffix == suffix]
    sides = [{path: side.get(path, base.get(path)) for path in chosen} for side in (own, reference)]
    first, second = (
        Sources(
            suffix=suffix,
            files=MappingProxyType({path: text for path, text in side.items() if text is not None}),
        )
        for side in sides
    )
    return first, second


def _suffix(paths: Iterable[str]) -> str | None:
    """Python where there is any, else the language with the most files."""
    suffixes = [PurePosixPath(path).suffix for path in paths]
    if PYTHON in suffixes:
        return PYTHON
    others = sorted(each for each in suffixes if each in OTHERS)
    return max(others, key=others.count, default=None)
