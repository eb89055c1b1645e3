"""The hidden suite of a task directory, made of what was read of it. Pure."""

import fnmatch
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tiltyard.core.errors import TaskError
from tiltyard.core.task import (
    CompareOutput,
    ProgramCase,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Suite,
)
from tiltyard.tasks.manifest import HarborArtifact, Manifest, VerifyTable, relative_path

FILES_MAX = 1_000
CASES_MAX = 10_000
WORKDIR = "/app"

_IMAGE_FILES = ("Dockerfile*", "docker-compose*", "compose.y*ml", ".dockerignore")
_SCRIPT = "test.sh"
_SOLVE = "solve.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The files of a task directory, each folder's by path below it."""

    where: str
    """The directory's path, for messages."""
    tests: Mapping[str, bytes]
    solution: Mapping[str, bytes]
    base: Mapping[str, bytes]
    """What the agent starts from."""

    def text(self, folder: str, path: str, *, needed: bool = False) -> str | None:
        """A file as text; None when it is not there. Raises TaskError when it is `needed`."""
        files = {"tests": self.tests, "solution": self.solution, "environment": self.base}[folder]
        if path in files:
            return text_of(files[path], f"{self.where}/{folder}/{path}")
        if needed:
            raise TaskError(f"{self.where}/{folder}/{path} is missing.", fix="Write it.")
        return None


def answer_path(verify: VerifyTable) -> str | None:
    """The one file that an answer consists of; None when it is a project."""
    if verify.mode != "split":
        return None
    return verify.source if verify.kind == "program" and verify.source else f"{verify.module}.py"


def suite_of(manifest: Manifest, verify: VerifyTable, folders: Folders) -> Suite:
    """Raises TaskError for files that are missing or make no suite."""
    match verify.mode, verify.kind:
        case "split", "program":
            return _programs(verify, folders)
        case "split", _:
            return _pytests(verify, folders)
        case "overlay", _:
            return _repository(verify, folders)
        case _:
            return _script(manifest, verify, folders)


def text_of(content: bytes, where: str) -> str:
    """A file as text. Raises TaskError when it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: byte {error.start + 1} is not UTF-8.") from None


def _pytests(verify: VerifyTable, folders: Folders) -> PytestSuite:
    where = f"{folders.where}/tests"
    files = {
        path: text_of(content, f"{where}/{path}")
        for path, content in folders.tests.items()
        if path != _SCRIPT and not _builds_an_image(path)
    }
    if f"{verify.module}.py" in files:
        raise TaskError(
            f"{where}/{verify.module}.py has the name of the solution's module.",
            fix="Give the file another name, or the module.",
        )
    if not any(_holds_tests(path) for path in files):
        raise TaskError(
            f"{where} holds no tests, so nothing could be rewarded.",
            fix="Add pytest files named test_*.py or *_test.py.",
        )
    if len(files) > FILES_MAX:
        raise TaskError(f"{where} holds more than {FILES_MAX} files.")
    return PytestSuite(files=MappingProxyType(files), inplace=verify.inplace)


def _holds_tests(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _programs(verify: VerifyTable, folders: Folders) -> ProgramSuite:
    source = answer_path(verify) or ""
    run = tuple(verify.run) or (("python3", source) if source.endswith(".py") else ())
    if not run:
        raise TaskError(
            f"{folders.where}/task.toml: field tiltyard.verify.run: is missing, and {source} is no "
            "Python program.",
            fix='Write how it is run, such as run = "./main".',
        )
    checker = None
    if verify.checker is not None:
        checker = folders.text("tests", verify.checker.removeprefix("tests/"), needed=True)
    compare = verify.compare or ("checker" if checker is not None else "lines")
    return ProgramSuite(
        source=source,
        build=tuple(verify.build),
        run=run,
        cases=_cases(folders),
        compare=CompareOutput(compare),
        float_tolerance=verify.float_tolerance,
        checker=checker,
    )


def _cases(folders: Folders) -> tuple[ProgramCase, ...]:
    """Each NAME.out is a case; NAME.in and NAME.args say what it is given."""
    tests, where = folders.tests, f"{folders.where}/tests"
    cases = []
    for path in sorted(tests):
        if path.endswith((".in", ".args")) and f"{path.rpartition('.')[0]}.out" not in tests:
            raise TaskError(
                f"{where}/{path} has no {path.rpartition('.')[0]}.out beside it.",
                fix="Write what the program has to print there.",
            )
        if path.endswith(".out"):
            name = path.removesuffix(".out")
            arguments = tests.get(f"{name}.args", b"")
            cases.append(
                ProgramCase(
                    id=name,
                    stdin=tests.get(f"{name}.in", b""),
                    arguments=_arguments(arguments, f"{where}/{name}.args"),
                    expected=tests[path],
                )
            )
    if not cases:
        raise TaskError(
            f"{where} holds no cases, so nothing could be rewarded.",
            fix="Add pairs of files NAME.in and NAME.out.",
        )
    if len(cases) > CASES_MAX:
        raise TaskError(f"{where} holds more than {CASES_MAX} cases.")
    return tuple(cases)


def _arguments(content: bytes, where: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text_of(content, where)))
    except ValueError as error:
        raise TaskError(
            f"{where}: not words as a shell splits them: {error}.", fix="Close its quotes."
        ) from None


def _repository(verify: VerifyTable, folders: Folders) -> RepositorySuite:
    tests = {path: content for path, content in folders.tests.items() if path != _SCRIPT}
    if not any(_holds_tests(path) for path in tests):
        raise TaskError(
            f"{folders.where}/tests holds no tests, so nothing could be rewarded.",
            fix="Add pytest files named test_*.py or *_test.py.",
        )
    reference = {path: each for path, each in folders.solution.items() if path != _SOLVE}
    if not reference:
        only = f" but {_SOLVE}" if _SOLVE in folders.solution else ""
        raise TaskError(
            f"{folders.where}/solution holds no files{only}, and mode 'overlay' lays the "
            "reference's files over the project.",
            fix="Put the files as the reference leaves them there, by their path in the project.",
        )
    return RepositorySuite(
        base=_without_image(folders.base),
        tests=MappingProxyType(tests),
        reference=MappingProxyType(reference),
        sources=tuple(verify.sources),
        protected=tuple(verify.protected),
    )


def _script(manifest: Manifest, verify: VerifyTable, folders: Folders) -> ScriptSuite:
    if _SCRIPT not in folders.tests:
        raise TaskError(
            f"{folders.where}/tests/{_SCRIPT} is missing, which mode 'script' runs.",
            fix="Write it.",
        )
    workdir = verify.workdir or manifest.environment.workdir or WORKDIR
    if verify.artifacts is not None:
        artifacts: tuple[str, ...] = tuple(verify.artifacts)
    elif manifest.artifacts:
        artifacts = _harbor_artifacts(manifest.artifacts, workdir, folders.where)
    else:
        artifacts = ("**",)
    reference = {path: each for path, each in folders.solution.items() if path != _SOLVE}
    return ScriptSuite(
        tests=MappingProxyType(dict(folders.tests)),
        reference=MappingProxyType(reference),
        solve=folders.solution.get(_SOLVE),
        base=_without_image(folders.base),
        artifacts=artifacts,
        workdir=workdir,
    )


def _harbor_artifacts(
    declared: Sequence[str | HarborArtifact], workdir: str, where: str
) -> tuple[str, ...]:
    """Globs below `workdir`; each may name a file or a directory."""
    globs: list[str] = []
    for each in declared:
        source = each.source if isinstance(each, HarborArtifact) else each
        below = source.rstrip("/").removeprefix(f"{workdir}/")
        try:
            path = relative_path(below)
        except ValueError:
            if source.rstrip("/") != workdir:
                raise TaskError(
                    f"{where}/task.toml: field artifacts: {source[:200]!r} is not below {workdir}.",
                    fix="Leave it out, or give artifacts in [tiltyard.verify].",
                ) from None
            globs.append("**")
        else:
            globs += [path, f"{path}/**"]
    return tuple(globs)


def _without_image(base: Mapping[str, bytes]) -> Mapping[str, bytes]:
    kept = {path: content for path, content in base.items() if not _builds_an_image(path)}
    return MappingProxyType(kept)


def _builds_an_image(path: str) -> bool:
    """Whether it is for whoever builds the image, at the top of its folder."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in _IMAGE_FILES)
