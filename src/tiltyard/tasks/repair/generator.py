"""From a seed to a repair task.

A seed fixes family, text, fault and test inputs through a hash, never through Python's own
`hash`, so that every process and machine makes the same task. Which split a faulty text belongs
to is itself a hash of the text: the same text can never be drawn for both splits, whatever the
seeds are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from random import Random
from types import MappingProxyType

from tiltyard.core.errors import TaskError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import Split, Task
from tiltyard.tasks.repair.cases import draw_suites
from tiltyard.tasks.repair.edits import FaultKind
from tiltyard.tasks.repair.families import TEMPLATES, TRAINED_FAMILIES, UNSEEN_FAMILIES
from tiltyard.tasks.repair.faults import Fault, faults_of
from tiltyard.tasks.repair.template import Template

REVISION = "1"
"""Raised whenever a seed may give another task than before."""

HELDOUT_SHARE = 0.25
"""The part of a trained family's faulty texts that is kept for the held-out split."""

_DRAWS_MAX = 400
"""Faults tried for one task. One in four is held out and about two in three are usable, so that
this many failing means a broken family, not bad luck."""


_NAMED_MAX = 5
"""Of unknown families, in a message."""


def make_task(seed: int, *, split: Split, families: Sequence[str] | None = None) -> Task:
    """The task of a seed: a faulty source, its reference and its tests.

    `families` None means `TRAINED_FAMILIES` in both splits: held-out tasks are then unseen faults
    of known families. The unseen families exist in the held-out split only.

    Raises TaskError for an unknown family, one that the split does not have, or a family that
    gives no usable fault.
    """
    names = TRAINED_FAMILIES if families is None else tuple(families)
    refuse_unknown_families(names, split)
    family = _rng("family", split, seed).choice(names)
    template = TEMPLATES[family]
    rng = _rng("task", split, family, seed)
    for _ in range(_DRAWS_MAX):
        picked = template.pick(rng)
        reference = template.render(picked)
        fault = _draw_fault(reference, rng)
        faulty = fault.apply(reference)
        if split_of(family, faulty) is not split:
            continue
        suites = draw_suites(
            template, picked, reference=reference, faulty=faulty, kind=fault.kind, rng=rng
        )
        if suites is None:
            continue
        return Task(
            id=TaskId(f"repair-{split}-{family}-{seed}"),
            family=family,
            split=split,
            revision=REVISION,
            instruction=f"Repair `{template.target}`. {template.describe(picked)}",
            starter=faulty,
            reference=reference,
            visible=suites.visible,
            hidden=suites.hidden,
            provenance=_provenance(seed, template, fault=fault),
            reference_checked=True,
        )
    raise TaskError(
        f"repair family {family!r} gave no usable {split} task for seed {seed}"
        f" in {_DRAWS_MAX} draws.",
        fix="Use another seed, and report the family.",
    )


def refuse_unknown_families(names: Sequence[str], split: Split) -> None:
    """Raises TaskError, with the nearest names, unless `split` has every one of `names`."""
    known = [*TRAINED_FAMILIES, *(UNSEEN_FAMILIES if split is Split.HELDOUT else ())]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        named = unknown[:_NAMED_MAX]
        what = ", ".join(repr(name[:60]) for name in named) or "an empty list"
        near = dict.fromkeys(
            near for name in named for near in get_close_matches(name[:60], known, n=2)
        )
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise TaskError(
            f"the {split} split of the repair pack has no family {what}.",
            fix=f"{meant}docs/tasks.md lists all {len(known)}, such as {known[0]}.",
        )


def split_of(family: str, faulty: str) -> Split:
    """The one split that a faulty text may appear in."""
    if family in UNSEEN_FAMILIES:
        return Split.HELDOUT
    digest = hashlib.sha256(f"{family}\n{faulty}".encode()).digest()
    part = int.from_bytes(digest[:8], "big") / 2**64
    return Split.HELDOUT if part < HELDOUT_SHARE else Split.TRAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRepair:
    """The replacement of one line that restores the reference."""

    line_number: int
    """1-based, in the starter."""
    line: str
    """The right line with its indentation, without a line end."""


def repair_of(task: Task) -> LineRepair:
    """The one line that differs between a repair task's starter and its reference.

    Raises TaskError when the two do not differ in exactly one line.
    """
    faulty, right = task.starter.split("\n"), task.reference.split("\n")
    rows = [row for row, (old, new) in enumerate(zip(faulty, right, strict=False)) if old != new]
    if len(faulty) != len(right) or len(rows) != 1:
        raise TaskError(f"task {task.id!r} is not repaired by replacing one line.")
    return LineRepair(line_number=rows[0] + 1, line=right[rows[0]])


def _provenance(seed: int, template: Template, *, fault: Fault) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "generator": "repair",
            "seed": str(seed),
            "topic": template.topic.value,
            "fault": fault.kind.value,
            "line": str(fault.line_number),
        }
    )


def _draw_fault(reference: str, rng: Random) -> Fault:
    """First a kind, then a fault of it, so that kinds with few places are not drowned."""
    kinds: dict[FaultKind, list[Fault]] = {}
    for fault in faults_of(reference):
        kinds.setdefault(fault.kind, []).append(fault)
    return rng.choice(kinds[rng.choice(list(kinds))])


def _rng(*parts: object) -> Random:
    text = "|".join(["repair", REVISION, *map(str, parts)])
    return Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))  # noqa: S311
