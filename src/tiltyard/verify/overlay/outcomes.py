"""What a run of a suite with its reference says of tests and copies. Pure.

And in which words a suite is refused where that is not what it must be.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import RepositorySuite, Task
from tiltyard.verify.overlay.canaries import Kind
from tiltyard.verify.overlay.plan import Plan, Tried, parts_of
from tiltyard.verify.overlay.session import Report

_GOOD = {Kind.EXCEPTION: {"wrong", "exception"}, Kind.WRITTEN: {"passed"}}
"""What a copy must come to with the reference, where it is not "wrong"."""
_UNCOUNTED = {("skipped",), ("not_passed", "passed")}
"""What is said of tests that do not count: skipped, also by an expected failure, or one that was
expected to fail and passed, where that is no failure."""
_CONFIGURES = {"pyproject.toml", "pytest.toml", "pytest.ini", "tox.ini", "setup.cfg"}
_SETTINGS = re.compile(rb"^\s*\[(tool[.:])?pytest\b", re.MULTILINE)

Trial = Callable[[Plan, int], Coroutine[Any, Any, Report]]
"""Runs the reference with a plan for so many tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The suite as it is, with the reference."""

    ids: tuple[str, ...]
    skipped: tuple[str, ...]
    collected: tuple[str, ...]


def plain_of(task: Task, report: Report) -> Plain:
    """Which tests there are. Raises `UnsoundTask` where the reference does not pass them."""
    fix = _of_settings(task)
    if report.errors:
        raise UnsoundTask(
            f"task {task.id}: its tests cannot be collected: {report.errors}.", fix=fix
        )
    if report.ended is not None:
        raise UnsoundTask(f"task {task.id}: its reference: {report.ended.evidence}")
    if not report.collected:
        named = "add files named test_*.py with functions named test_*."
        also = f" And {fix}" if fix else ""
        raise UnsoundTask(f"task {task.id} has no tests.", fix=f"{named}{also}")
    by_id = {test_id: report.results.get(test_id, []) for test_id in report.collected}
    skipped = tuple(test_id for test_id, said in by_id.items() if said and _uncounted(*said[0]))
    ids = tuple(test_id for test_id in by_id if test_id not in set(skipped))
    failed = [test_id for test_id in ids if [each for each, _ in by_id[test_id]] != ["passed"]]
    if failed:
        _, words = by_id[failed[0]][0] if by_id[failed[0]] else ("", "it never reported")
        raise UnsoundTask(
            f"task {task.id}: its reference fails {len(failed)} of {len(ids)} tests; "
            f"first {failed[0]}: {words}.",
            fix=fix,
        )
    if not ids:
        raise UnsoundTask(
            f"task {task.id}: its reference skips every test.",
            fix="add tests that run everywhere.",
        )
    return Plain(ids=ids, skipped=skipped, collected=report.collected)


def _of_settings(task: Task) -> str | None:
    """What to do about settings of the project's own for pytest; None where there are none."""
    if not isinstance(task.hidden, RepositorySuite):
        return None
    files = {**task.hidden.base, **{f"tests/{at}": text for at, text in task.hidden.tests.items()}}
    found = sorted(path for path, text in files.items() if _SETTINGS.search(_read(path, text)))
    if not found:
        return None
    return (
        f"the settings for pytest in {', '.join(found[:3])} are not read, nor are plugins loaded: "
        "put what the tests need of them into tests/conftest.py."
    )


def _read(path: str, text: bytes) -> bytes:
    return text if path.rsplit("/", 1)[-1] in _CONFIGURES else b""


def _uncounted(status: str, words: str) -> bool:
    return (status,) in _UNCOUNTED or (status, words) in _UNCOUNTED


def broken_in(plain: Plain, plan: Plan, report: Report) -> dict[str, str]:
    """Tests that the reference passes and does not pass in this company, and what was said."""
    if report.errors or report.ended is not None:
        words = report.errors or (report.ended.evidence if report.ended else "")
        paths = {test_id.partition("::")[0] for test_id in plain.ids}
        named = {path for path in paths if path in words} or paths
        return {each: words for each in plain.ids if each.partition("::")[0] in named}
    return {
        test_id: words_in(test_id, plan, report)
        for test_id in plain.ids
        if not report.passed(plan.in_run(test_id)) and not _unstable(test_id, plan, report)
    }


def words_in(test_id: str, plan: Plan, report: Report) -> str:
    """What was said of a test that did not pass."""
    said = report.results.get(plan.in_run(test_id), [])
    bad = next((words for status, words in said if status != "passed"), "")
    ended = report.ended.evidence if report.ended else ""
    return plan.words(test_id, bad) or ended or "it never reported"


def _unstable(test_id: str, plan: Plan, report: Report) -> bool:
    """Whether a test has another id in every run, such as one with the time in it."""
    place, name, suffix = parts_of(plan.in_run(test_id))
    return (
        bool(suffix)
        and plan.in_run(test_id) not in report.results
        and any(parts_of(run_id)[:2] == (place, name) for run_id in report.results)
    )


def told(broken: Mapping[str, str]) -> str:
    """The first test that does not pass, and how many more there are."""
    test_id = next(iter(broken))
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return f"{test_id}{more}: {broken[test_id]}"


def disturbed(task: Task, words: str) -> UnsoundTask:
    """Why a suite is refused of which nothing can be false; `words` as of `told`."""
    return UnsoundTask(
        f"task {task.id}: its tests depend on each other, so that none of them can be watched. Its "
        "reference fails one where others have another name, run twice, fail or are left out: "
        f"{words}.",
        fix="give each test what it needs, by a fixture or in itself, and the same result every "
        "time; or add tests that need no other.",
    )


def tried_of(plain: Plain, plan: Plan, report: Report) -> tuple[Tried, ...]:
    """Canaries of which at least one test came to what it must."""
    originals, rows = _rows(plain.collected), _rows(report.collected)
    found: list[Tried] = []
    for name, canary in plan.by_name.items():
        good = _GOOD.get(canary.kind, {"wrong"})
        own = canary.function.name
        beside: dict[tuple[str, str], frozenset[str]] = {}
        for place in sorted({place for place, other in rows if other == name}):
            copied, whole = rows[place, name], originals[place, own]
            alike = len(copied) == len(whole)
            for index, suffix in enumerate(copied):
                # A changed constant may be part of an id, but not of its place among the others.
                false_with = whole[index : index + 1] if alike else whole
                if whole and _only(report, f"{place}{name}{suffix}", good):
                    ids = frozenset(f"{place}{own}{each}" for each in false_with)
                    beside[place, suffix] = ids
        if beside:
            runs = sum(len(suffixes) for (_, other), suffixes in rows.items() if other == name)
            found.append(Tried(canary=canary, beside=beside, tests=runs))
    sound = {each.canary for each in found}
    return tuple(each for each in found if each.canary.true in sound | {None})


def _rows(ids: Iterable[str]) -> defaultdict[tuple[str, str], list[str]]:
    """By place and function, the parameters that it is run with, in their order."""
    rows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for run_id in ids:
        place, name, suffix = parts_of(run_id)
        rows[place, name].append(suffix)
    return rows


def _only(report: Report, run_id: str, statuses: set[str]) -> bool:
    said = report.results.get(run_id, [])
    return bool(said) and all(status in statuses for status, _ in said)
