"""A policy that reads its answers from a file: for tests, demonstrations and baselines.

The file is JSON, an object from a task's id, or `*` for every other task, to its answers by turn:

    {"repair/17": ["first answer", "second answer"], "*": ["the answer to every other task"]}

or, when its name ends in `.jsonl`, one such object a line with the keys `task` and `answers`. After
the last answer the last one is given again.
"""

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiltyard.agents.fenced import clipped
from tiltyard.core.errors import PolicyError, UsageError
from tiltyard.core.ids import TaskId
from tiltyard.core.trajectory import PolicyReply, Prompt

ANY_TASK = "*"
FILE_BYTES_MAX = 256 * 1024 * 1024
"""Room for an answer of 100 MB, which is then recorded as too long like any model's."""

_EXPECTED = 'an object from task id (or "*") to a list of answers, each a text'


class ScriptedPolicy:
    """Gives the file's answers. The same file always gives the same ones."""

    def __init__(self, path: Path) -> None:
        """Raises `UsageError`, naming file and line, when it is not a script."""
        self.name = f"scripted:{path}"
        self._path = path
        content = _content(path)
        self._version = f"script {hashlib.sha256(content).hexdigest()[:12]}"
        self._answers = _answers(path, content)

    def lacking(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        """Those of the tasks that the script has no answer for."""
        if ANY_TASK in self._answers:
            return []
        return [task for task in tasks if task not in self._answers]

    async def respond(self, prompt: Prompt) -> PolicyReply:
        """The answer for this task and turn; `PolicyError` when the script has none."""
        answers = self._answers.get(prompt.task_id) or self._answers.get(ANY_TASK)
        if answers is None:
            raise PolicyError(
                f"{self._path} has no answer for task {prompt.task_id}.",
                fix=f'Add one under that id, or under "{ANY_TASK}" for every other task.',
            )
        text, truncated = clipped(answers[min(len(prompt.earlier), len(answers) - 1)])
        return PolicyReply(text=text, policy_version=self._version, truncated=truncated)

    async def aclose(self) -> None:
        """Nothing is held."""


def _content(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe that nobody writes to has no end
            raise UsageError(f"{path} is not a file.", fix="Name a file of answers.")
        if status.st_size > FILE_BYTES_MAX:
            raise UsageError(
                f"{path} has {status.st_size} bytes; a script may have {FILE_BYTES_MAX}.",
                fix="Name a smaller file.",
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The script {path} cannot be read: {error.strerror}.",
            fix="Name a file after scripted:, as in scripted:examples/answers.jsonl.",
        ) from error


def _answers(path: Path, content: bytes) -> Mapping[str, tuple[str, ...]]:
    if path.suffix == ".jsonl":
        answers: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                where = f"{path}, line {number}"
                task, given = _line(path, where, _json(path, line, first_line=number))
                if task in answers:
                    raise _malformed(path, f"{where}: task {task!r} comes twice")
                answers[task] = given
    else:
        tree = _json(path, content, first_line=1)
        if not isinstance(tree, dict):
            raise _malformed(path, f"{path}: expected {_EXPECTED}")
        answers = {
            task: _given(path, f"{path}, task {task!r}", given) for task, given in tree.items()
        }
    if not answers:
        raise _malformed(path, f"{path}: it has no answers")
    return MappingProxyType(answers)


def _json(path: Path, content: bytes, *, first_line: int) -> Any:
    try:
        return json.loads(content.decode(), object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise _malformed(path, f"{path}, line {line}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise _malformed(path, f"{path}, line {line}: not UTF-8 text ({error.reason})") from None
    except RecursionError:
        raise _malformed(path, f"{path}, line {first_line}: nested too deeply") from None
    except ValueError as error:
        raise _malformed(path, f"{path}, line {first_line}: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{max(names, key=names.count)!r} comes twice")
    return made


def _line(path: Path, where: str, tree: Any) -> tuple[str, tuple[str, ...]]:
    match tree:
        case {"task": str(task), "answers": given, **rest} if not rest:
            return task, _given(path, where, given)
        case _:
            raise _malformed(path, f'{where}: expected {{"task": ..., "answers": [...]}}')


def _given(path: Path, where: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise _malformed(path, f"{where}: expected a list of answers, each a text")
    return tuple(given)


def _malformed(path: Path, what: str) -> UsageError:
    lines = 'has lines like {"task": "id or *", "answers": ["answer of turn 1", ...]}'
    whole = 'looks like {"task id or *": ["answer of turn 1", ...]}'
    form = lines if path.suffix == ".jsonl" else whole
    return UsageError(f"{what}.", fix=f"A script with this name {form}; see docs/tasks.md.")
