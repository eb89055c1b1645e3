"""Task files: JSON Lines, one task a line, written by users and read at the edge.

A file is hostile until it is read: its size, lines, nesting and fields are bounded, and whatever
is wrong with it is a `TaskError` that names file, line and field. Nothing in it is executed here.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NoReturn

from pydantic import ValidationError

from tiltyard.core.errors import TaskError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import Task
from tiltyard.tasks.literals import LiteralError
from tiltyard.tasks.records import TaskRecord

FILE_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 4 * 1024 * 1024
TASKS_MAX = 100_000

_MESSAGE_CHARS_MAX = 300


_SMALLER = "Spread the tasks over several files, each within the bounds of docs/tasks.md."
_FORMAT = "docs/tasks.md describes the format, with an example."


def read_tasks(path: Path) -> tuple[Task, ...]:
    """All tasks of a file, in order.

    Raises TaskError when the file cannot be read, is too large, holds no task or the same id
    twice, or when a line is not a task.
    """
    try:
        if not path.is_file():
            raise TaskError(
                f"{path} is not a file.", fix="Give the path of a .jsonl file or of a task."
            )
        with path.open("rb") as stream:
            return _read(stream, str(path))
    except OSError as error:
        raise TaskError(
            f"{path} cannot be read: {error.strerror}.", fix="Correct its permissions."
        ) from error


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Writes tasks to a file, replacing it, and returns how many.

    Raises TaskError when a task has no place in the format or the file cannot be written. Nothing
    is written before every task has been found to fit.
    """
    lines: list[str] = []
    for task in tasks:
        if len(lines) == TASKS_MAX:
            raise TaskError(f"{path} would hold more than {TASKS_MAX} tasks.")
        lines.append(task_line(task))
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path} cannot be written: {error.strerror}.") from error
    return len(lines)


def task_line(task: Task) -> str:
    """One task as one line of a file, without a line end; defaults are left out.

    Raises TaskError when the task has no place in the format.
    """
    where = f"task {str(task.id)[:200]!r}"
    try:
        record = TaskRecord.of(task)
    except LiteralError as error:
        raise TaskError(f"{where} cannot be written: a value {error}.") from None
    except ValidationError as error:
        refuse(where, error)
    return json.dumps(record.model_dump(exclude_defaults=True), ensure_ascii=False)


def _read(stream: BinaryIO, name: str) -> tuple[Task, ...]:
    tasks: dict[TaskId, Task] = {}
    read_bytes = 0
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        where = f"{name}:{number}"
        read_bytes += len(line)
        if len(line) > LINE_BYTES_MAX:
            raise TaskError(
                f"{where}: the line is longer than {LINE_BYTES_MAX} bytes.", fix=_SMALLER
            )
        if read_bytes > FILE_BYTES_MAX:
            raise TaskError(
                f"{where}: the file is larger than {FILE_BYTES_MAX} bytes.", fix=_SMALLER
            )
        if not line.strip():
            continue
        task = _task(line, where)
        if task.id in tasks:
            raise TaskError(
                f"{where}: field id: {task.id!r} was used by an earlier line.",
                fix="Give each task an id of its own.",
            )
        if len(tasks) == TASKS_MAX:
            raise TaskError(f"{where}: the file holds more than {TASKS_MAX} tasks.", fix=_SMALLER)
        tasks[task.id] = task
    if not tasks:
        raise TaskError(f"{name} holds no task.", fix="Write one JSON object a line.")
    return tuple(tasks.values())


def _task(line: bytes, where: str) -> Task:
    try:
        raw: object = json.loads(
            line.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: byte {error.start + 1} is not UTF-8.", fix=_FORMAT) from None
    except RecursionError:
        raise TaskError(f"{where}: the JSON is nested too deeply.", fix=_FORMAT) from None
    except ValueError as error:
        # The decoder's own line number is that of this line alone, so always 1.
        said = str(error)
        if isinstance(error, json.JSONDecodeError):
            said = f"{error.msg} at column {error.colno}"
        raise TaskError(
            f"{where}: not JSON: {said[:_MESSAGE_CHARS_MAX]}.", fix="Write one object a line."
        ) from None
    if not isinstance(raw, dict):
        raise TaskError(f"{where}: not a JSON object.", fix="Write one object a line.")
    try:
        return TaskRecord.model_validate(raw).task()
    except ValidationError as error:
        refuse(where, error)


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is no field of the format",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_unicode": "must be valid Unicode",
    "too_short": "must not be empty",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
"""In a task file's terms, where pydantic's are Python's."""


def refuse(where: str, error: ValidationError) -> NoReturn:
    """The first of pydantic's findings as a `TaskError`."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    # Parts in angle brackets only say which shape of a suite was tried.
    path = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
    message = _WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "must be")[:_MESSAGE_CHARS_MAX]
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    field = f"field {path[:_MESSAGE_CHARS_MAX]}: " if path else "the task "
    raise TaskError(f"{where}: {field}{message}{more}.", fix=_FORMAT) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise ValueError(f"the key {twice[:60]!r} is given twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
