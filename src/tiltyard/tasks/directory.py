"""Task directories in Harbor's layout: `task.toml`, `instruction.md`, and what lies beside them.

A directory is read once, whole and within bounds, and nothing in it is executed here. A link in it
stands for the file of the same folder that it points at; one that leads elsewhere is refused.
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from tiltyard.core.errors import TaskError
from tiltyard.core.files import MIB
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, Odd, Split, Task
from tiltyard.tasks.files import refuse
from tiltyard.tasks.manifest import TIME_LIMIT_S_MAX, ChecksTable, Manifest, VerifyTable
from tiltyard.tasks.suites import Folders, answer_path, suite_of
from tiltyard.tasks.trees import Caps, Tree, open_directory, read_file, read_tree

MANIFEST = "task.toml"
INSTRUCTION = "instruction.md"
DIRECTORIES_MAX = 10_000
TREE_CAPS = Caps(entries_max=50_000, file_bytes_max=64 * MIB)
TEXT_CAPS = Caps(file_bytes_max=MIB)
LINKS_MAX = 8
"""Links that point at one another, one after the other."""
TIME_LIMIT_S = 5.0
PROJECT_TIME_LIMIT_S = 600.0
"""What Harbor gives a verifier that names no time."""

_FORMAT = "docs/tasks.md describes the layout, with an example."
_LEFT_OVER = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", ".DS_Store"}
)
"""What tools leave in any directory; never part of a task."""


def is_task_directory(path: Path) -> bool:
    """Whether a directory holds a task."""
    return (path / MANIFEST).is_file()


def read_directories(path: Path) -> tuple[Task, ...]:
    """The task that a directory holds, or the tasks of the directories in it, by name.

    Raises TaskError as `read_directory` does, when there is no task, and when two have one id.
    """
    if is_task_directory(path):
        return (read_directory(path),)
    with _told(path):
        below = sorted(each for each in path.iterdir() if is_task_directory(each))
    if not below:
        raise TaskError(f"{path} is no task: it has no {MANIFEST}.", fix=_FORMAT)
    if len(below) > DIRECTORIES_MAX:
        raise TaskError(f"{path} holds more than {DIRECTORIES_MAX} tasks.")
    tasks: dict[TaskId, Task] = {}
    for each in below:
        task = read_directory(each)
        if task.id in tasks:
            raise TaskError(
                f"{each}: the id {task.id!r} is that of another task.",
                fix=f"Give it one of its own: id in [tiltyard] of {MANIFEST}.",
            )
        tasks[task.id] = task
    return tuple(tasks.values())


def read_directory(path: Path) -> Task:
    """The task that a directory holds.

    Raises TaskError, naming file and field, for whatever is missing, unknown, unreadable, too
    large, or contradicts itself.
    """
    with _told(path):
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _Reader(path=path, root=root).task()
        finally:
            os.close(root)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TaskError(
            f"{path} cannot be read: {error.strerror}.", fix="Give the path of a task directory."
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    path: Path
    root: int

    def task(self) -> Task:
        raw = self._text(MANIFEST)
        manifest = self._manifest(raw)
        # Judging needs none; a rollout refuses a task without one.
        instruction = self._text(INSTRUCTION, needed=False)
        tests = self._folder("tests")
        verify = manifest.tiltyard.verify or self._default(tests)
        folders = Folders(
            where=str(self.path),
            tests=tests,
            solution=self._folder("solution"),
            base=self._base(verify),
        )
        suite = suite_of(manifest, verify, folders)
        answer = answer_path(verify)
        table = manifest.tiltyard
        problem = table.checks.unmeasurable(
            program=verify.kind == "program", one_file=answer is not None
        )
        if problem:
            where = f"{self.path / MANIFEST}: field tiltyard.checks"
            raise TaskError(f"{where}: {problem}.", fix=_FORMAT)
        return Task(
            id=TaskId(table.id or _id_of(manifest.task.name or self.path.resolve().name)),
            family=table.family,
            split=Split(table.split),
            revision=table.revision or _revision(raw, instruction, folders),
            instruction=instruction,
            module=verify.module,
            starter=folders.text("environment", answer) or "" if answer else "",
            reference=folders.text("solution", answer, needed=True) or "" if answer else "",
            visible=CallSuite(cases=()),
            hidden=suite,
            time_limit_s=self._time_limit_s(manifest, verify),
            provenance=_provenance(manifest),
            checks=table.checks.checks(self._inputs(table.checks, folders)),
            weights=table.reward.weights() if table.reward else None,
            baseline=verify.baseline,
        )

    def _manifest(self, raw: str) -> Manifest:
        where = str(self.path / MANIFEST)
        try:
            tree = tomllib.loads(raw)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            said = str(error)[:300] or "nested too deeply"
            raise TaskError(f"{where}: not TOML: {said}.", fix=_FORMAT) from None
        try:
            return Manifest.model_validate(tree)
        except ValidationError as error:
            refuse(where, error)

    def _default(self, tests: Mapping[str, bytes]) -> VerifyTable:
        """A plain task of Harbor's is judged by its script."""
        if "test.sh" not in tests:
            raise TaskError(
                f"{self.path / MANIFEST}: field tiltyard.verify: is missing, and there is no "
                "tests/test.sh.",
                fix=_FORMAT,
            )
        return VerifyTable(mode="script")

    def _base(self, verify: VerifyTable) -> Mapping[str, bytes]:
        """What the agent starts from: of the environment, not what builds its image."""
        answer = answer_path(verify)
        if answer is not None:
            # The rest may be large, and judging a function needs none of it.
            return self._folder("environment", only=answer)
        return self._folder(verify.base or "environment", needed=verify.base is not None)

    def _inputs(self, checks: ChecksTable, folders: Folders) -> str | None:
        if checks.inputs is None or checks.inputs.file is None:
            return None
        name = checks.inputs.file.removeprefix("tests/")
        return folders.text("tests", name, needed=True)

    def _time_limit_s(self, manifest: Manifest, verify: VerifyTable) -> float:
        limit_s = verify.time_limit_s or manifest.verifier.timeout_sec
        if limit_s is None:
            limit_s = TIME_LIMIT_S if verify.mode == "split" else PROJECT_TIME_LIMIT_S
        if limit_s > TIME_LIMIT_S_MAX:
            raise TaskError(
                f"{self.path / MANIFEST}: field verifier.timeout_sec: {limit_s:.0f} s is more than "
                "an hour.",
                fix="Give time_limit_s in [tiltyard.verify].",
            )
        return limit_s

    def _text(self, name: str, *, needed: bool = True) -> str:
        where = f"{self.path / name}"
        try:
            content = read_file(self.root, name, TEXT_CAPS, hard_links=True)
        except FileNotFoundError:
            if not needed:
                return ""
            raise TaskError(f"{where} is missing.", fix=_FORMAT) from None
        if isinstance(content, Odd):
            why = "a link or no file" if content is Odd.CHANGED else content
            raise TaskError(f"{where} cannot be read: {why}.", fix=_FORMAT)
        try:
            return content.decode().replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise TaskError(f"{where}: byte {error.start + 1} is not UTF-8.") from None

    def _folder(
        self, name: str, *, only: str | None = None, needed: bool = False
    ) -> Mapping[str, bytes]:
        """The files below a directory of the task's; none when it is not there."""

        def wanted(path: str) -> bool:
            last = path.rsplit("/", 1)[-1]
            if last in _LEFT_OVER or last.endswith(".pyc"):
                return False
            return only is None or only == path or only.startswith(f"{path}/")

        descriptor = os.dup(self.root)
        try:
            for part in name.split("/"):
                below = open_directory(part, below=descriptor)
                os.close(descriptor)
                descriptor = below
            tree = read_tree(descriptor, TREE_CAPS, wanted=wanted, hard_links=True)
        except FileNotFoundError:
            if needed:
                raise TaskError(f"{self.path / name} is missing.", fix=_FORMAT) from None
            return {}
        except NotADirectoryError:
            raise TaskError(
                f"{self.path / name} is a link or no directory.", fix="Make it a directory."
            ) from None
        finally:
            os.close(descriptor)
        return _plain(tree, f"{self.path / name}")


def _plain(tree: Tree, where: str) -> Mapping[str, bytes]:
    """The files of a tree, links among them made files. Raises TaskError for anything odd."""
    for path, what in tree.odd.items():
        if what == Odd.TOO_MANY:
            raise TaskError(f"{where} holds more than {TREE_CAPS.entries_max} files.")
        raise TaskError(f"{where}/{path} cannot be part of a task: {what}.", fix="Remove it.")
    files = dict(tree.files)
    for path in tree.links:
        target = _target(tree, path)
        if target is None:
            raise TaskError(
                f"{where}/{path} is a link that leads to no file beside it.",
                fix="Put the file itself there.",
            )
        files[path] = tree.files[target]
    return files


def _target(tree: Tree, path: str) -> str | None:
    """The file that a link stands for in the end; None for one outside, absent, or none."""
    for _ in range(LINKS_MAX):
        pointed = tree.links[path]
        if pointed.startswith("/"):
            return None
        parts = path.split("/")[:-1]
        for part in pointed.split("/"):
            if part == "..":
                if not parts:
                    return None
                parts.pop()
            elif part not in {"", "."}:
                parts.append(part)
        path = "/".join(parts)
        if path not in tree.links:
            return path if path in tree.files else None
    return None


def _id_of(name: str) -> TaskId:
    """Of Harbor's `organisation/name`, or of a directory, what an id may hold."""
    text = re.sub(r"[^A-Za-z0-9._:+-]+", "-", name.replace("/", ":")).lstrip("._:+-")
    return TaskId(text[:200] or "task")


def _revision(manifest: str, instruction: str, folders: Folders) -> str:
    """A digest of everything in the task that was read: what changes is another revision."""
    digest = hashlib.sha256()
    parts: list[bytes] = [manifest.encode(), instruction.encode()]
    for folder in (folders.tests, folders.solution, folders.base):
        parts.append(str(len(folder)).encode())
        for path, content in sorted(folder.items()):
            parts += [path.encode(), content]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"sha256:{digest.hexdigest()[:16]}"


def _provenance(manifest: Manifest) -> Mapping[str, str]:
    told = {"format": "harbor"}
    if manifest.task.name:
        told["name"] = manifest.task.name[:1000]
    return MappingProxyType(told)
