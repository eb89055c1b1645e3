"""Which tests need which others: found by leaving some out, and by having them fail.

Those are not watched. They are true in the first run of a verification, and in no other.
"""

import math
import random
from asyncio import TaskGroup
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from tiltyard.core.task import Task
from tiltyard.verify.overlay.canaries import Kind
from tiltyard.verify.overlay.draw import Suite
from tiltyard.verify.overlay.outcomes import Trial, disturbed, told, words_in
from tiltyard.verify.overlay.plan import Forms, Plan, Tried
from tiltyard.verify.overlay.session import Report
from tiltyard.verify.overlay.source import TestFunction

_ROUNDS_MAX = 4
_FINE_ROUNDS = 2
"""In those after them all tests of a file go where any still needs another."""

Heard = Sequence[tuple[Plan, Report]]
"""The runs, of which the first has nothing but what may move."""


async def set_apart(
    task: Task, suite: Suite, tried: tuple[Tried, ...], trial: Trial, rng: random.Random
) -> tuple[Suite, tuple[Tried, ...], str]:
    """The suite and its canaries without tests that need others, and what was said of the first
    that does. Raises `UnsoundTask` where it goes wrong without any of them too."""
    first = ""
    for number in range(_ROUNDS_MAX):
        movable = [one for each in suite.groups for one in each]
        heard = await _heard(suite, tried, trial, rng, some_out(movable))
        broken = _broken(heard)
        if not broken:
            return suite, tried, first
        first = first or told(broken)
        fine = number < _FINE_ROUNDS
        if fine:
            heard = await _heard(suite, tried, trial, rng, digits_out(movable))
        gone = needing(suite, heard, fine=fine)
        groups = tuple(
            filter(None, (tuple(one for one in each if one not in gone) for each in suite.groups))
        )
        if groups == suite.groups and not fine:
            break
        suite = replace(suite, groups=groups)
        left = {one for each in groups for one in each}
        tried = tuple(each for each in tried if each.canary.function in left)
    raise disturbed(task, first)


def some_out(functions: Sequence[TestFunction]) -> list[list[TestFunction]]:
    """As few sets as may be, so that each function is in one that any other is not in: each is in
    half of them, and no two in the same half. Of two sets at least, or half of them were none."""
    count = 2
    while math.comb(count, count // 2) < len(functions):
        count += 1
    halves = zip(functions, combinations(range(count), count // 2), strict=False)
    own = dict(halves)
    return [[each for each in functions if number in own[each]] for number in range(count)]


def digits_out(functions: Sequence[TestFunction]) -> list[list[TestFunction]]:
    """Sets by the digits of a place: where something fails for want of one function, which."""
    return [
        [each for place, each in enumerate(functions) if place >> digit & 1 == value]
        for digit in range(max(1, (len(functions) - 1).bit_length()))
        for value in (0, 1)
    ]


async def _heard(
    suite: Suite,
    tried: tuple[Tried, ...],
    trial: Trial,
    rng: random.Random,
    sets: Sequence[Sequence[TestFunction]],
) -> Heard:
    """The runs in which one set each is left out, or has its false forms."""
    false = {each.canary.function: each for each in tried if each.canary.kind is not Kind.WRITTEN}
    written = {each.canary.function: each for each in tried if each.canary.kind is Kind.WRITTEN}
    plans = [suite.plan(Forms(written=written), rng, first=False)]
    for out in filter(None, sets):
        some = {each: false[each] for each in out if each in false}
        plans.append(suite.plan(Forms(written=written, absent=frozenset(out)), rng))
        plans.append(suite.plan(Forms(written=written, false=some), rng))
    try:
        async with TaskGroup() as group:
            runs = [group.create_task(trial(plan, len(suite.owners))) for plan in plans]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [(plan, run.result()) for plan, run in zip(plans, runs, strict=True)]


def _broken(heard: Heard) -> dict[str, str]:
    return {
        test_id: words_in(test_id, plan, report)
        for plan, report in heard
        for test_id in sorted(plan.ids)
        if not report.passed(plan.in_run(test_id))
    }


def needing(suite: Suite, heard: Heard, *, fine: bool) -> set[TestFunction]:
    """The functions that fail without others, and those that they need: where these are called by
    them, only these. All of a file, where not `fine` or where no one function explains it."""
    movable = {one for each in suite.groups for one in each}
    gone: set[TestFunction] = set()
    whole: set[str] = set()
    for test_id in _broken(heard):
        owner = suite.owners[test_id]
        own = {owner} & movable if owner else set()
        missed = _missed(test_id, heard)
        if not fine or missed == set():
            whole.add(test_id.partition("::")[0])
        elif missed is None:
            gone |= own
        else:
            gone |= (missed & suite.kept) or own | missed
    files = {each for each in movable if each.file in whole}
    return gone | ((files & suite.kept) or files)


def _missed(test_id: str, heard: Heard) -> set[TestFunction] | None:
    """Functions that were out, in a form in which it never passed without them, wherever it failed;
    None where it failed in the first run alone, so that it needs what may not move."""
    failed: list[dict[TestFunction, bool]] = []
    passed: set[tuple[TestFunction, bool]] = set()
    for plan, report in heard[1:]:
        if test_id in plan.ids:
            forms = plan.forms
            out = dict.fromkeys(forms.absent, False) | dict.fromkeys(forms.false, True)
            if report.passed(plan.in_run(test_id)):
                passed |= set(out.items())
            else:
                failed.append(out)
    if not failed:
        return None
    common = set(failed[0]).intersection(*failed[1:])
    return {each for each in common if all((each, out[each]) not in passed for out in failed)}
