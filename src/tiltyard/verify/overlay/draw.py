"""Which form each test has in each run of one verification. Pure.

No run has two forms of one test, nor of two tests that ask the same: what a run's text says of a
test is true or false, and only who knows the answer can tell. Every test has a true form in some
run; in the others it is false or not there.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiltyard.verify.overlay.canaries import Kind
from tiltyard.verify.overlay.plan import Forms, Plan, Tried, plan_of, together
from tiltyard.verify.overlay.source import SourceFile, TestFunction

SHARE = 0.15
"""False forms of all tests in the first run, where there are many; in the second they are half."""
MIXED_MAX = 32
"""Groups of tests, all of which have a false form in each verification."""
RUNS_MAX = 4
FORMS_MIN = 8
"""False forms in a verification, where so many can be made."""
WEIGHT = {Kind.LITERAL: 8, Kind.EXCEPTION: 8, Kind.TRIVIAL: 1, Kind.NEGATED: 1}
"""How often a kind is drawn: one that says by its looks that it is false is worth less."""
_TESTS_MAX = 2
"""Of all tests, how many false ones may run: one function may have thousands of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suite:
    """What is needed of one to draw."""

    files: Mapping[str, SourceFile]
    renamed: frozenset[str]
    """Functions that may go by other names in a run."""
    owners: Mapping[str, TestFunction | None]
    """By id, the function that it runs; None where that is not certain."""
    groups: tuple[tuple[TestFunction, ...], ...]
    """Functions that may be false or absent; those of a group ask the same."""
    kept: frozenset[TestFunction]
    """Functions that others may call: they are in every run."""

    def plan(self, forms: Forms, rng: random.Random, *, first: bool = True) -> Plan:
        """A run; `first` has everything, another only what may move."""
        movable = {each for group in self.groups for each in group}
        if not first:
            every = {each for file in self.files.values() for each in file.functions}
            absent = forms.absent | (every - movable - self.kept)
            forms = Forms(false=forms.false, written=forms.written, absent=absent)
        moves = {
            test_id
            for test_id, owner in self.owners.items()
            if owner in movable and owner not in forms.absent
        }
        paths = {test_id.partition("::")[0] for test_id in (self.owners if first else moves)}
        ids = frozenset(
            test_id
            for test_id, owner in self.owners.items()
            if test_id.partition("::")[0] in paths
            and (first if owner is None else forms.true(owner))
        )
        plan = plan_of(self.files, (), self.renamed, rng, forms=forms)
        return Plan(
            files=plan.files,
            canaries=plan.canaries,
            names=plan.names,
            by_name=plan.by_name,
            lines=plan.lines,
            forms=forms,
            ids=ids,
            against=frozenset(each for each in moves if self.owners[each] in forms.false),
            chosen=None if first else tuple(sorted(paths)),
        )


def draw(suite: Suite, tried: Iterable[Tried], rng: random.Random) -> tuple[Plan, ...]:
    """The runs of one verification."""
    false: dict[TestFunction, list[Tried]] = defaultdict(list)
    written: dict[TestFunction, list[Tried]] = defaultdict(list)
    for each in tried:
        kind = each.canary.kind
        (written if kind is Kind.WRITTEN else false)[each.canary.function].append(each)
    room = _TESTS_MAX * max(len(suite.owners), FORMS_MIN)
    units: list[tuple[TestFunction, ...]] = []
    for group in rng.sample(suite.groups, len(suite.groups)):
        size = max((one.tests for each in group for one in false.get(each, ())), default=0)
        if size and (not units or size <= room):
            units.append(group)
            room -= size
    states = _states(len(units), rng)
    runs: list[Forms] = []
    for state in states:
        forms: dict[TestFunction, Tried] = {}
        absent: set[TestFunction] = set()
        # Always, or what is written out would be false more often than true.
        out = {function: rng.choice(some) for function, some in written.items()}
        for group, true in zip(units, state, strict=True):
            if not true:
                absent |= set(group)
            if true is False:
                one = rng.choice([each for each in group if each in false])
                forms[one] = _one(false[one], out.get(one), rng)
                absent.discard(one)
        runs.append(Forms(false=forms, written=out, absent=frozenset(absent)))
    return tuple(
        suite.plan(_rest(suite, units, forms, first=not index), rng, first=not index)
        for index, forms in enumerate(runs)
    )


def _rest(
    suite: Suite, units: list[tuple[TestFunction, ...]], forms: Forms, *, first: bool
) -> Forms:
    """Functions of no unit are in the first run only."""
    if first:
        return forms
    drawn = {each for group in units for each in group}
    others = {each for group in suite.groups for each in group} - drawn
    return Forms(false=forms.false, written=forms.written, absent=forms.absent | others)


def _one(some: list[Tried], written: Tried | None, rng: random.Random) -> Tried:
    if written is not None:
        # The others would show what is computed, which true forms do not.
        edits = written.canary.edits
        some = [each for each in some if together(each.canary, edits) is not None] or some
    kinds = sorted({each.canary.kind for each in some})
    (kind,) = rng.choices(kinds, [WEIGHT[each] for each in kinds])
    return rng.choice([each for each in some if each.canary.kind is kind])


def _states(units: int, rng: random.Random) -> list[list[bool | None]]:
    """For each run, whether each unit is true in it, false, or None: not there."""
    if units <= MIXED_MAX:
        runs = min(RUNS_MAX, max(2, 1 + math.ceil(FORMS_MIN / max(units, 1))))
        columns: list[list[bool | None]] = []
        for _ in range(units):
            column: list[bool | None] = [True, False]
            column += [rng.random() < 0.5 for _ in range(runs - 2)]
            columns.append(rng.sample(column, runs))
        return [list(row) for row in zip(*columns, strict=True)]
    count = max(MIXED_MAX // 2, math.ceil(units * SHARE))
    order = rng.sample(range(units), units)
    moved, padding = set(order[:count]), set(order[count : 2 * count])
    one: list[bool | None] = [unit not in moved for unit in range(units)]
    two: list[bool | None] = [
        True if unit in moved else False if unit in padding else None for unit in range(units)
    ]
    return [one, two]
