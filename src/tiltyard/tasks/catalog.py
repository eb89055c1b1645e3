"""Resolves what a user types as TASKS: a pack with options, or the path of a file or directory.

repair                                     50 held-out tasks of the trained families
repair:heldout?count=200&seed=3            others, as many as asked for
repair:heldout?families=unseen             families that training never uses
repair:train?families=sum_above,clamp      only these families
mine.jsonl                                 a file; see `files`
mine/                                      a task directory, or one that holds some; see `directory`
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import overload
from urllib.parse import parse_qsl

from tiltyard.core.errors import TaskError
from tiltyard.core.task import CallSuite, ProgramSuite, PytestSuite, Split, Task
from tiltyard.tasks.directory import read_directories
from tiltyard.tasks.files import read_tasks
from tiltyard.tasks.repair import (
    TRAINED_FAMILIES,
    UNSEEN_FAMILIES,
    make_task,
    refuse_unknown_families,
)

COUNT_DEFAULT = 50
COUNT_MAX = 100_000
SEED_MAX = 1_000_000_000

EXISTING = "repair, repair:train, repair:heldout, a task directory, or a .jsonl file"
"""What there is to choose from, for messages and help texts."""

_OPTIONS = ("count", "seed", "families")
_OPTIONS_MAX = 16


def load_tasks(text: str) -> Sequence[Task]:
    """The tasks that `text` names. Generated ones are made when they are looked at.

    Raises TaskError for an unknown name, split, option or family, and for a faulty file.
    """
    try:
        return _loaded(text)
    except OSError as error:
        # Also of looking whether there is something: in a directory that is closed to its user.
        raise TaskError(
            f"{text[:200]} cannot be read: {error.strerror}.",
            fix="Correct its name or its permissions.",
        ) from error


def load_task(text: str, id_: str | None = None) -> Task:
    """The one task that `text` names; of several, the one with the id `id_`.

    Raises TaskError as `load_tasks` does, and when that leaves no task or more than one.
    """
    tasks = load_tasks(text)
    if id_ is None:
        if len(tasks) == 1:
            return tasks[0]
        raise TaskError(
            f"{text[:200]} has {len(tasks)} tasks, and one is wanted.",
            fix=f"Say which by its id, for example --id {tasks[0].id}.",
        )
    for task in tasks:
        if task.id == id_:
            return task
    raise TaskError(
        f"{text[:200]} has no task with the id {id_[:200]!r}.",
        fix=f"Its first is {tasks[0].id}.",
    )


def _loaded(text: str) -> Sequence[Task]:
    if text.endswith(".jsonl") or "/" in text:
        return read_directories(Path(text)) if Path(text).is_dir() else read_tasks(Path(text))
    name, mark, query = text.partition("?")
    pack, colon, split_text = name.partition(":")
    if pack not in _PACKS:
        if text and Path(text).is_dir():
            return read_directories(Path(text))
        raise _unknown(text, pack)
    options = _options(query, text) if mark else {}
    return _PACKS[pack](_split(split_text, text) if colon else Split.HELDOUT, options)


def load_function_tasks(text: str) -> Sequence[Task]:
    """The tasks that `text` names, for rollouts, which answer with one Python module.

    Raises TaskError as `load_tasks` does, and for a task that has another kind of answer.
    """
    tasks = load_tasks(text)
    for task in tasks if isinstance(tasks, tuple) else ():
        suite = task.hidden
        if not task.instruction.strip():
            raise TaskError(f"task {task.id} asks for nothing.", fix="Write its instruction.md.")
        if isinstance(suite, ProgramSuite) and suite.source == f"{task.module}.py":
            continue
        if not isinstance(suite, CallSuite | PytestSuite):
            raise TaskError(
                f"task {task.id} has an answer that is not one Python module, and rollouts cannot "
                "give such answers yet.",
                fix="Judge what an agent left with `tiltyard verify TASK SUBMISSION`.",
            )
    return tasks


class RepairTasks(Sequence[Task]):
    """A stretch of the repair pack's seeds. Each look makes the task anew, about 1 ms."""

    __slots__ = ("_count", "_families", "_seed_first", "_split")

    def __init__(self, *, split: Split, count: int, seed: int, families: Sequence[str]) -> None:
        """Two different `seed` never share a task seed. Raises TaskError for an unknown family."""
        refuse_unknown_families(families, split)
        self._split = split
        self._count = count
        self._seed_first = seed * COUNT_MAX
        self._families = tuple(families)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        places = range(self._count)[index]
        if isinstance(places, range):
            return tuple(self._make(place) for place in places)
        return self._make(places)

    def _make(self, place: int) -> Task:
        return make_task(self._seed_first + place, split=self._split, families=self._families)


def _repair(split: Split, options: Mapping[str, str]) -> Sequence[Task]:
    families = options.get("families", "trained")
    if families == "unseen" and split is Split.TRAIN:
        raise TaskError(
            "the unseen families are never trained on, so they have no train split.",
            fix="Use repair:heldout?families=unseen.",
        )
    return RepairTasks(
        split=split,
        count=_whole(options, "count", default=COUNT_DEFAULT, low=1, high=COUNT_MAX),
        seed=_whole(options, "seed", default=0, low=0, high=SEED_MAX),
        families=_FAMILY_SETS.get(families) or tuple(families.split(",")),
    )


_PACKS: Mapping[str, Callable[[Split, Mapping[str, str]], Sequence[Task]]] = MappingProxyType(
    {"repair": _repair}
)
_FAMILY_SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"trained": TRAINED_FAMILIES, "unseen": UNSEEN_FAMILIES}
)


def _unknown(text: str, pack: str) -> TaskError:
    if Path(text).is_file():
        return TaskError(
            f"{text[:200]!r} is a file, but not named as one of tasks.",
            fix="End its name in .jsonl, with one JSON object a line; see docs/tasks.md.",
        )
    near = get_close_matches(pack.lower(), _PACKS, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return TaskError(
        f"there are no tasks named {text[:200]!r}.", fix=f"{meant}There are: {EXISTING}."
    )


def _split(split_text: str, text: str) -> Split:
    if split_text not in list(Split):
        raise TaskError(
            f"{text[:200]!r} names the split {split_text[:60]!r}.",
            fix=f"The splits are {', '.join(Split)}.",
        )
    return Split(split_text)


def _options(query: str, text: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=True, max_num_fields=_OPTIONS_MAX
        )
    except ValueError:
        pairs = []
    names = [name for name, _ in pairs]
    if not pairs or len(set(names)) < len(names) or not set(names) <= set(_OPTIONS):
        raise TaskError(
            f"the options of {text[:200]!r} cannot be read.",
            fix=f"Write them as ?count=50&seed=3, each of {', '.join(_OPTIONS)} at most once.",
        )
    return dict(pairs)


def _whole(options: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    # Twelve digits hold every bound; longer text must not reach int().
    if text.isascii() and text.isdigit() and len(text) <= 12 and low <= int(text) <= high:
        return int(text)
    raise TaskError(
        f"{name}={text[:60]!r} is not a whole number from {low} to {high}.",
        fix=f"Write for example {name}={default}, or leave it out.",
    )
