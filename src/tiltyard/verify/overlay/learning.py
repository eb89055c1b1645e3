"""What is found out about a suite with its reference: which tests there are, which copies fail."""

import ast
import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import Task
from tiltyard.verify.overlay.alike import alike
from tiltyard.verify.overlay.canaries import VALUE, Canary, Kind, canaries_of
from tiltyard.verify.overlay.draw import Suite
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.owners import owners_of
from tiltyard.verify.overlay.plan import Forms, Plan, Tried, parts_of, plan_of
from tiltyard.verify.overlay.session import Report
from tiltyard.verify.overlay.source import SourceFile, TestFunction, read, renameable

CANDIDATES_MAX = 400
"""Copies that are tried; with more tests than that not every one has one."""
TRIES_MAX = 3

_GOOD = {Kind.EXCEPTION: {"wrong", "exception"}, Kind.WRITTEN: {"passed"}}
"""What a copy must come to with the reference, where it is not "wrong"."""

Trial = Callable[[Plan, int], Awaitable[Report]]
"""Runs the reference with a plan for so many tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Of one suite."""

    ids: tuple[str, ...]
    """Of the tests that count: the reference passes each, every time."""
    all_ids: frozenset[str]
    """Also of those that the reference skips."""
    functions: frozenset[str]
    """Names of the suite's own test functions."""
    suite: Suite
    tried: tuple[Tried, ...]
    notes: tuple[str, ...]
    unsound: set[Tried] = field(default_factory=set)
    """Canaries that passed with the reference after all."""

    @property
    def names(self) -> str:
        """Which names its tests have in a run, in a word."""
        if not self.suite.renamed:
            return "their own"
        return "random" if self.functions <= self.suite.renamed else "mostly random"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """The suite as it is, with the reference."""

    ids: tuple[str, ...]
    skipped: tuple[str, ...]


async def learn(task: Task, tests: Mapping[str, bytes], trial: Trial) -> Known:
    """Runs the suite with the reference, as it is and with copies. Raises `GraderError`."""
    rng = random.Random(f"{task.id} {task.revision}")  # noqa: S311 - the secret is what is drawn
    files = read(tests)
    plain = _plain(task, await trial(plan_of(files, (), frozenset(), rng), 0))
    modules = frozenset(path.removesuffix(".py").rsplit("/", 1)[-1] for path in tests)
    owners = owners_of(files, plain.ids)
    canaries = await _candidates(files, modules, trial, rng)
    owned = set(owners.values())
    canaries = [each for each in canaries if each.function in owned]
    renamed = renameable(files, tests)
    kept = frozenset(
        each for file in files.values() for each in file.functions if each.name not in renamed
    )
    for _ in range(TRIES_MAX):
        plan = plan_of(files, canaries, renamed, rng)
        report = await trial(plan, len(plain.ids))
        broken = _broken(plain, plan, report)
        if not broken:
            break
        # Where a copy disturbs the tests beside it there is none; then perhaps it is the names.
        fewer = [each for each in canaries if each.function.file not in broken]
        if not canaries or not fewer or len(fewer) == len(canaries):
            renamed -= {each.name for path in broken for each in _functions(files, path)}
        if fewer:
            canaries = fewer
    else:
        raise _disturbed(task, broken)
    groups = tuple(
        tuple(one for one in each if one in owned)
        for each in await asyncio.to_thread(alike, files, modules)
    )
    ids = tuple(each for each in plain.ids if report.passed(plan.in_run(each)))
    suite = Suite(
        files=files,
        renamed=renamed,
        owners={test_id: owners[test_id] for test_id in ids},
        groups=tuple(filter(None, groups)),
        kept=kept,
    )
    tried = _tried(plan, report)
    for _ in range(TRIES_MAX):
        broken = await _apart(suite, tried, trial, rng)
        if not broken:
            return _known(task, plain, suite, tried)
        fewer_groups = _without(suite.groups, broken, kept)
        if fewer_groups == suite.groups:
            break
        suite = replace(suite, groups=fewer_groups)
        movable = {one for each in suite.groups for one in each}
        tried = tuple(each for each in tried if each.canary.function in movable)
    raise _disturbed(task, broken)


def _disturbed(task: Task, broken: set[str]) -> UnsoundTask:
    return UnsoundTask(
        f"task {task.id}: its reference fails when copies of its tests run beside them: "
        f"{', '.join(sorted(broken))}.",
        fix="make its tests independent of each other.",
    )


_Groups = tuple[tuple[TestFunction, ...], ...]


def _without(groups: _Groups, broken: set[str], kept: frozenset[TestFunction]) -> _Groups:
    """The groups without the functions that disturb others: those that are called, or else all."""
    own = {one for each in groups for one in each if one.file in broken}
    gone = own & kept or own
    return tuple(filter(None, (tuple(one for one in each if one not in gone) for each in groups)))


async def _apart(
    suite: Suite, tried: tuple[Tried, ...], trial: Trial, rng: random.Random
) -> set[str]:
    """Files of which a test fails where others have a false form or are not there.

    By the digits of its place, every test of a file is there once where any other is not.
    """
    false = {each.canary.function: each for each in tried if each.canary.kind is not Kind.WRITTEN}
    written = {each.canary.function: each for each in tried if each.canary.kind is Kind.WRITTEN}
    places = {each: at for file in suite.files.values() for at, each in enumerate(file.functions)}
    movable = [each for group in suite.groups for each in group]
    plans = [suite.plan(Forms(written=written), rng, first=False)]
    for digit in range(max(1, max(places.values(), default=0).bit_length())):
        for value in (0, 1):
            out = [each for each in movable if places[each] >> digit & 1 == value]
            some = {each: false[each] for each in out if each in false and rng.random() < 0.5}
            absent = frozenset(each for each in out if each not in some)
            plans.append(suite.plan(Forms(false=some, written=written, absent=absent), rng))
    broken: set[str] = set()
    for plan in plans:
        report = await trial(plan, len(suite.owners))
        bad = {each for each in plan.ids if not report.passed(plan.in_run(each))}
        broken |= {test_id.partition("::")[0] for test_id in bad}
    return broken


def _functions(files: Mapping[str, SourceFile], path: str) -> tuple[TestFunction, ...]:
    return files[path].functions if path in files else ()


async def _candidates(
    files: Mapping[str, SourceFile], modules: frozenset[str], trial: Trial, rng: random.Random
) -> list[Canary]:
    found = await asyncio.to_thread(_copies, files, modules, rng)
    if len(found) > CANDIDATES_MAX:
        found = rng.sample(found, CANDIDATES_MAX)
    probes = [each for each in found if each.kind is Kind.WRITTEN]
    written: list[Canary] = []
    if probes:
        plan = plan_of(files, probes, frozenset(), rng)
        report = await trial(plan, len(probes))
        said = [(probe, _written(name, report)) for name, probe in plan.by_name.items()]
        written = [
            copy for probe, value in said if value is not None for copy in probe.written(value, rng)
        ]
    return [each for each in found if each.kind is not Kind.WRITTEN] + written


def _copies(
    files: Mapping[str, SourceFile], modules: frozenset[str], rng: random.Random
) -> list[Canary]:
    return [
        canary
        for file in files.values()
        for canary in canaries_of(file, Module(file.tree, modules), rng)
    ]


def _written(name: str, report: Report) -> str | None:
    """The value that a probe said, if it always said the same."""
    values: set[str] = set()
    for run_id, said in report.results.items():
        if parts_of(run_id)[1] == name:
            matches = [VALUE.search(words) for _, words in said]
            values |= {match["value"] if match else "" for match in matches}
    if len(values) != 1:
        return None
    (value,) = values
    try:
        ast.literal_eval(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value


def _plain(task: Task, report: Report) -> _Plain:
    if report.errors:
        raise UnsoundTask(f"task {task.id}: its tests cannot be collected: {report.errors}")
    if report.ended is not None:
        raise UnsoundTask(f"task {task.id}: its reference: {report.ended.evidence}")
    if not report.collected:
        raise UnsoundTask(f"task {task.id} has no tests.", fix="add files named test_*.py.")
    by_id = {test_id: report.results.get(test_id, []) for test_id in report.collected}
    skipped = tuple(test_id for test_id, said in by_id.items() if said and said[0][0] == "skipped")
    ids = tuple(test_id for test_id in by_id if test_id not in skipped)
    failed = [test_id for test_id in ids if [each for each, _ in by_id[test_id]] != ["passed"]]
    if failed:
        _, words = by_id[failed[0]][0] if by_id[failed[0]] else ("", "it never reported")
        raise UnsoundTask(
            f"task {task.id}: its reference fails {len(failed)} of {len(ids)} tests; "
            f"first {failed[0]}: {words}"
        )
    if not ids:
        raise UnsoundTask(
            f"task {task.id}: its reference skips every test.",
            fix="add tests that run everywhere.",
        )
    return _Plain(ids=ids, skipped=skipped)


def _broken(plain: _Plain, plan: Plan, report: Report) -> set[str]:
    """Files of which a test that the reference passes does not pass in this company."""
    everything = {test_id.partition("::")[0] for test_id in plain.ids}
    if report.errors or report.ended is not None:
        named = {path for path in everything if path in report.errors}
        return named or everything
    return {
        test_id.partition("::")[0]
        for test_id in plain.ids
        if not report.passed(plan.in_run(test_id)) and not _unstable(test_id, plan, report)
    }


def _unstable(test_id: str, plan: Plan, report: Report) -> bool:
    """Whether a test has another id in every run, such as one with the time in it."""
    place, name, suffix = parts_of(plan.in_run(test_id))
    return (
        bool(suffix)
        and plan.in_run(test_id) not in report.results
        and any(parts_of(run_id)[:2] == (place, name) for run_id in report.results)
    )


def _known(task: Task, plain: _Plain, suite: Suite, tried: tuple[Tried, ...]) -> Known:
    ids = tuple(suite.owners)
    if all(each.canary.kind is Kind.WRITTEN for each in tried):
        raise UnsoundTask(
            f"task {task.id}: none of its tests can be made into one that must fail, so nothing "
            "would show whether they were tampered with.",
            fix="have its tests assert what they expect, or use split mode.",
        )
    notes = []
    if plain.skipped:
        notes.append(f"{len(plain.skipped)} tests do not count: the reference skips them")
    if len(ids) < len(plain.ids):
        notes.append(f"{len(plain.ids) - len(ids)} tests do not count: their ids change")
    names = frozenset(each.name for file in suite.files.values() for each in file.functions)
    return Known(
        ids=ids,
        all_ids=frozenset((*plain.ids, *plain.skipped)),
        functions=names,
        suite=suite,
        tried=tried,
        notes=tuple(notes),
    )


def _tried(plan: Plan, report: Report) -> tuple[Tried, ...]:
    """Canaries of which at least one test came to what it must."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run_id in report.collected:
        place, name, suffix = parts_of(run_id)
        rows[place, name].append(suffix)
    found: list[Tried] = []
    for name, canary in plan.by_name.items():
        good = _GOOD.get(canary.kind, {"wrong"})
        own = canary.function.name
        beside: dict[tuple[str, str], frozenset[str]] = {}
        for place in sorted({place for place, other in rows if other == name}):
            copied, originals = rows[place, name], rows[place, plan.names.get(own, own)]
            alike = len(copied) == len(originals)
            for index, suffix in enumerate(copied):
                # A changed constant may be part of an id, but not of its place among the others.
                false_with = originals[index : index + 1] if alike else originals
                if originals and _only(report, f"{place}{name}{suffix}", good):
                    ids = frozenset(f"{place}{own}{each}" for each in false_with)
                    beside[place, suffix] = ids
        if beside:
            runs = sum(len(suffixes) for (_, other), suffixes in rows.items() if other == name)
            found.append(Tried(canary=canary, beside=beside, tests=runs))
    sound = {each.canary for each in found}
    return tuple(each for each in found if each.canary.true in sound | {None})


def _only(report: Report, run_id: str, statuses: set[str]) -> bool:
    said = report.results.get(run_id, [])
    return bool(said) and all(status in statuses for status, _ in said)
