"""What is found out about a suite with its reference: which tests there are, which copies fail."""

import ast
import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import Task
from tiltyard.verify.overlay.alike import alike
from tiltyard.verify.overlay.apart import set_apart
from tiltyard.verify.overlay.canaries import VALUE, Canary, Kind, canaries_of
from tiltyard.verify.overlay.draw import WEIGHT, Suite
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.outcomes import (
    Plain,
    Trial,
    broken_in,
    disturbed,
    plain_of,
    told,
    tried_of,
)
from tiltyard.verify.overlay.owners import owners_of
from tiltyard.verify.overlay.plan import Forms, Tried, parts_of, plan_of
from tiltyard.verify.overlay.session import Report
from tiltyard.verify.overlay.source import SourceFile, TestFunction, read, renameable

CANDIDATES_MAX = 400
"""Copies that are tried; with more tests than that not every one has one."""
IN_PLACE_MAX = 2
"""Copies of one function that are tried in its place, where they disturb what is beside them."""
TRIES_MAX = 6


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


async def learn(task: Task, tests: Mapping[str, bytes], trial: Trial) -> Known:
    """Runs the suite with the reference, as it is and with copies. Raises `GraderError`."""
    rng = random.Random(f"{task.id} {task.revision}")  # noqa: S311 - the secret is what is drawn
    files = read(tests)
    plain = plain_of(task, await trial(plan_of(files, (), frozenset(), rng), 0))
    modules = frozenset(path.removesuffix(".py").rsplit("/", 1)[-1] for path in tests)
    owners = owners_of(files, plain.ids)
    canaries = await _candidates(files, modules, trial, rng)
    owned = set(owners.values())
    canaries = [each for each in canaries if each.function in owned]
    beside = await _beside(task, plain, owners, files, canaries, tests, trial, rng)
    groups = tuple(
        tuple(one for one in each if one in owned)
        for each in await asyncio.to_thread(alike, files, modules)
    )
    suite = Suite(
        files=files,
        renamed=beside.renamed,
        owners={test_id: owners[test_id] for test_id in beside.ids},
        groups=tuple(filter(None, groups)),
        kept=frozenset(
            each
            for file in files.values()
            for each in file.functions
            if each.name not in beside.renamed
        ),
    )
    suite, tried, words = await set_apart(task, suite, beside.tried, trial, rng)
    return _known(task, plain, suite, tried, beside.words or words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What came of running copies beside the tests."""

    ids: tuple[str, ...]
    """Of the tests that have the same id in every run."""
    renamed: frozenset[str]
    tried: tuple[Tried, ...]
    words: str
    """Which test a copy disturbed first, and how; empty where none did."""


async def _beside(
    task: Task,
    plain: Plain,
    owners: Mapping[str, TestFunction | None],
    files: Mapping[str, SourceFile],
    candidates: list[Canary],
    tests: Mapping[str, bytes],
    trial: Trial,
    rng: random.Random,
) -> _Beside:
    """Tries the copies beside their tests, and those that disturb any in their tests' place."""
    everywhere = renamed = renameable(files, tests)
    canaries = candidates
    words = ""
    for _ in range(TRIES_MAX):
        plan = plan_of(files, canaries, renamed, rng)
        report = await trial(plan, len(plain.ids))
        broken = broken_in(plain, plan, report)
        if not broken:
            break
        words = words or told(broken)
        paths = {test_id.partition("::")[0] for test_id in broken}
        own = [each for each in canaries if each.function not in {owners[one] for one in broken}]
        other = [each for each in canaries if each.function.file not in paths]
        names = renamed - {each.name for path in paths for each in _functions(files, path)}
        # First those of a test that fails beside them, then all of its file; then perhaps it is
        # the names, or it is copies of other files.
        if 0 < len(own) < len(canaries):
            canaries = own
        elif 0 < len(other) < len(canaries):
            canaries = other
        elif names != renamed:
            renamed = names
        elif canaries:
            canaries, renamed = [], everywhere
        else:
            raise disturbed(task, words)
    else:
        raise disturbed(task, words)
    ids = tuple(each for each in plain.ids if report.passed(plan.in_run(each)))
    tried = tried_of(plain, plan, report)
    had = {each.function for each in canaries}
    alone = [each for each in candidates if each.function not in had]
    return _Beside(
        ids=ids,
        renamed=renamed,
        tried=(*tried, *await _in_place(plain, files, alone, renamed, trial, rng)),
        words=words,
    )


async def _in_place(
    plain: Plain,
    files: Mapping[str, SourceFile],
    candidates: list[Canary],
    renamed: frozenset[str],
    trial: Trial,
    rng: random.Random,
) -> list[Tried]:
    """Tries two of a function's copies in the place of its test: half of the functions at once."""
    some: dict[TestFunction, list[Canary]] = defaultdict(list)
    for each in sorted(candidates, key=lambda each: -WEIGHT.get(each.kind, 0)):
        if each.kind is not Kind.WRITTEN and each.true is None:
            some[each.function].append(each)
    found: list[Tried] = []
    for number in range(2 * IN_PLACE_MAX if some else 0):
        half = list(some)[number % 2 :: 2]
        false = {
            each: Tried(canary=some[each][number // 2], beside={})
            for each in half
            if number // 2 < len(some[each])
        }
        plan = plan_of(files, (), renamed, rng, forms=Forms(false=false))
        found += tried_of(plain, plan, await trial(plan, len(plain.ids)))
    return found


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


def _known(task: Task, plain: Plain, suite: Suite, tried: tuple[Tried, ...], words: str) -> Known:
    ids = tuple(suite.owners)
    if all(each.canary.kind is Kind.WRITTEN for each in tried):
        if words:
            raise disturbed(task, words)
        raise UnsoundTask(
            f"task {task.id}: none of its tests can be made into one that must fail, so nothing "
            "would show whether they were tampered with.",
            fix="have its test functions assert what they expect, themselves and not in functions "
            "that they call, or use split mode.",
        )
    notes = []
    if plain.skipped:
        notes.append(
            f"{len(plain.skipped)} tests do not count: the reference skips them, "
            "or is expected to fail them"
        )
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
