"""Overlay mode: a repository's tests in one process with a submission, and watched.

What shares a process with its tests can make them say anything. So a verification is several runs,
each with some of the tests in a form that must fail: whoever has all tests pass has these pass too,
and is found out. Which they are is drawn for every run and known only on this side. What remains is
told in docs/decisions/0020.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from tiltyard.core.errors import GraderError, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import RepositorySuite, Submission, Task
from tiltyard.core.verdict import (
    Assurance,
    Check,
    CheckStatus,
    Component,
    Evidence,
    Gap,
)
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.expected import Remembered, digest_of
from tiltyard.verify.found import Found
from tiltyard.verify.overlay.canaries import Canary
from tiltyard.verify.overlay.draw import draw
from tiltyard.verify.overlay.learning import Known, learn
from tiltyard.verify.overlay.outcomes import Trial
from tiltyard.verify.overlay.plan import Plan, Tried, parts_of
from tiltyard.verify.overlay.recall import Recall
from tiltyard.verify.overlay.session import Report, request_of, run_tests
from tiltyard.verify.overlay.tree import places_of, reference_tree, tests_of, tree_of
from tiltyard.verify.provenance import suite_digest, value_digest
from tiltyard.verify.room import Room
from tiltyard.verify.shipping import shared, shipped

SIDE_BY_SIDE_MAX = 2
"""Runs at once. Sandboxes share the locks of the files that they share, and the machine's cores, so
runs that live together can tell each other what their tests expect. Of two forms of a test that
leaves open which is true; of three or four the one that is there twice is."""
EXTRA_S = 2.0
"""Beside the tests themselves: laying the tree down and pytest's own start on a busy machine."""
DRAWS_MAX = 3
TRIALS_MAX = 3
"""With the reference, of what points to tampering: by chance a false form may fail again."""
_STATUS = {
    "wrong": CheckStatus.WRONG_ANSWER,
    "skipped": CheckStatus.NOT_RUN,
    "not_passed": CheckStatus.NOT_RUN,
}
_STARVED = frozenset({CheckStatus.TIMEOUT, CheckStatus.OOM})
"""Ends that a busy machine, or tests that want too much, can bring about too."""


def _program() -> ZygoteProgram:
    files = shared("channel.py", "recorder.py") | shipped(__name__, "runner.py")
    return ZygoteProgram(files=files, main="runner.py")


class OverlayMode(Room):
    """Judges repository tasks. Use with `async with`; safe to call concurrently."""

    def __init__(
        self,
        provider: Provider,
        *,
        interpreter: Interpreter,
        spec: SandboxSpec,
        cells_max: int = 4,
        rng: random.Random | None = None,
        cache_dir: Path | None = None,
        image: str = "",
    ) -> None:
        """`spec` is what tests and solutions run under together; `cells_max` bounds the cells.

        `rng` draws names and canaries; by default one that nobody can foresee. What is learned of
        suites is kept in `cache_dir` for other processes, under `image`, a digest of what
        sandboxes start from; None keeps nothing.
        """
        program = _program()
        self._cells = ZygoteCells(
            provider, interpreter=interpreter, program=program, spec=spec, cells_max=cells_max
        )
        self._rng = rng or secrets.SystemRandom()
        self._known = Remembered[Known]()
        self._recall = Recall(cache_dir)
        self._runs_by = (image, value_digest(spec), *program.files.values())
        """What all suites' runs depend on."""
        super().__init__(self._cells)

    async def judge(self, task: Task, submission: Submission) -> Found:
        """Runs the hidden suite. Raises `GraderError` or `SandboxError` when the fault is ours."""
        if not isinstance(task.hidden, RepositorySuite):
            raise GraderError(f"task {task.id} has no suite for overlay mode")
        suite = task.hidden
        try:
            reference = reference_tree(suite)
        except GraderError as error:
            raise UnsoundTask(f"task {task.id}: {error}") from None
        tree = await asyncio.to_thread(tree_of, suite, submission)
        if tree.problem:
            return Found(problem=tree.problem, tamper=tree.tamper)
        trial = partial(self._run, task, suite, reference, patient=True)
        # In a thread, since the first digest of megabytes takes longer than tests.
        key = f"{await asyncio.to_thread(suite_digest, suite)} {task.time_limit_s!r}"
        known = await self._known.get(key, partial(self._learned, task, suite, trial, key))
        for _ in range(DRAWS_MAX):
            heard = await self._heard(task, suite, tree.files, known)
            passed = _tampered(heard)
            unsound = passed and await self._unsound(heard, trial)
            if not unsound:
                break
            known.unsound.update(unsound)
        else:
            raise UnsoundTask(
                f"task {task.id}: tests that must fail pass with its reference again and again.",
                fix="make its tests give the same result every time.",
            )
        if (starved := _starved(heard)) is not None:
            # Was it the submission, or the tests and the machine? The reference gets through.
            again = await trial(starved, len(known.ids))
            if again.ended is not None:
                raise UnsoundTask(f"task {task.id}: its reference: {again.ended.evidence}")
        return _found(known, heard, passed, tree.tamper)

    async def _learned(self, task: Task, suite: RepositorySuite, trial: Trial, key: str) -> Known:
        texts = (key, str(task.id), task.revision, *self._runs_by)
        whole = digest_of(*(text.encode() for text in texts))
        return await self._recall.learn(whole, trial, partial(learn, task, tests_of(suite)))

    async def _heard(
        self, task: Task, suite: RepositorySuite, tree: Mapping[str, bytes], known: Known
    ) -> "_Heard":
        """The runs of one verification: two side by side, more of them one after another.

        Where one of two starves both are made again in turn: they share the machine's cores, and a
        time limit is of a run that has them to itself.
        """
        # A copy, because others may add to it while the thread reads.
        plans = await asyncio.to_thread(self._drawn, known, frozenset(known.unsound))
        run = partial(self._run, task, suite, tree, tests=len(known.ids))
        at_once = len(plans) if len(plans) <= SIDE_BY_SIDE_MAX else 1
        heard = await _listened(plans, run, at_once=at_once)
        if at_once > 1 and _starved(heard) is not None:
            heard = await _listened(plans, run, at_once=1)
        return heard

    def _drawn(self, known: Known, unsound: frozenset[Tried]) -> tuple[Plan, ...]:
        # What a test lets through once it lets through in other forms too.
        lax = {each.canary.function for each in unsound}
        sound = [each for each in known.tried if each.canary.function not in lax]
        plans = draw(known.suite, sound, self._rng)
        if not any(plan.forms.false for plan in plans):
            raise UnsoundTask(
                "no copy of its tests fails with its reference every time.",
                fix="make its tests give the same result every time.",
            )
        return plans

    async def _unsound(self, heard: "_Heard", trial: Trial) -> set[Tried]:
        """Of the plans' canaries, those that do with the reference what they must not."""
        for _ in range(TRIALS_MAX):
            again = [(plan, await trial(plan, len(plan.ids))) for plan, _ in heard]
            if found := _tampered(tuple(again)):
                return set(found)
        return set()

    async def _run(
        self,
        task: Task,
        suite: RepositorySuite,
        tree: Mapping[str, bytes],
        plan: Plan,
        tests: int,
        *,
        patient: bool = False,
    ) -> Report:
        chosen = test_files(suite)
        if plan.chosen is not None:
            chosen = tuple(path for path in chosen if path in plan.chosen)
        files = {**tree, **plan.files}
        # Copies beside tests are only for the reference; a verification's run has a test once.
        copies = len(plan.canaries) / max(tests, 1) if patient else 0.0
        wall_s = task.time_limit_s * (1 + copies) + EXTRA_S
        async with self._cells.run(wall_s=wall_s) as run:
            request = request_of(files, chosen, places_of(suite))
            return await run_tests(run, request, tests=tests, deadline_s=wall_s)


_Heard = tuple[tuple[Plan, Report], ...]
"""The runs of a verification that there were, with what was heard of each."""


async def _listened(
    plans: tuple[Plan, ...], run: Callable[[Plan], Coroutine[Any, Any, Report]], *, at_once: int
) -> _Heard:
    """Makes the runs. What comes after one that died or lied, in the order of the plans, is not
    waited for."""
    places = asyncio.Semaphore(at_once)

    async def made(plan: Plan) -> Report:
        async with places:
            return await run(plan)

    heard: list[tuple[Plan, Report]] = []
    try:
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(made(plan)) for plan in plans]
            for plan, each in zip(plans, runs, strict=True):
                report = await each
                heard.append((plan, report))
                if report.ended is not None or report.forged:
                    # What it has not shown in the others it has not passed.
                    rest = replace(report, results={}, collected=(), errors="", cpu_s=0.0)
                    heard += [(other, rest) for other in plans[len(heard) :]]
                    break
            for each in runs:
                each.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return tuple(heard)


def test_files(suite: RepositorySuite) -> tuple[str, ...]:
    """The files that hold tests, by path in the tree; the others are their helpers."""
    names = {path: path.rsplit("/", 1)[-1] for path in sorted(tests_of(suite))}
    return tuple(
        path
        for path, name in names.items()
        if fnmatchcase(name, "test_*.py") or fnmatchcase(name, "*_test.py")
    )


def _starved(heard: _Heard) -> Plan | None:
    """What the run was that ran out of something; those after it only share its end."""
    for plan, report in heard:
        if report.ended is not None:
            return plan if report.ended.status in _STARVED else None
    return None


def _tampered(heard: _Heard) -> tuple[Tried, ...]:
    """False forms that passed where all the true ones did in other runs.

    A wrong solution may well pass a false test, and fails the true one then; that is no tampering.
    """
    found: list[Tried] = []
    for plan, report in heard:
        tried = {each.canary: each for each in plan.forms.false.values()}
        for name, canary in plan.by_name.items():
            if any(
                "passed" in [said for said, _ in report.results.get(f"{place}{name}{suffix}", [])]
                and all(_check(test_id, heard).status is CheckStatus.PASSED for test_id in ids)
                for (place, suffix), ids in tried[canary].beside.items()
            ):
                found.append(tried[canary])
    return tuple(found)


def _found(
    known: Known, heard: _Heard, passed: tuple[Tried, ...], tamper: tuple[str, ...]
) -> Found:
    false = sum(len(plan.forms.false) for plan, _ in heard)
    answered = sum(_answered(plan, report) for plan, report in heard)
    signs = list(tamper)
    signs += [_contradiction(one.canary) for one in passed[:3]]
    if len(passed) > 3:
        signs.append(f"{len(passed)} of {false} canaries were contradicted")
    for plan, report in heard:
        if report.forged:
            signs.append(f"forged results: it {report.forged}")
        if unknown := _never_existed(known, plan, report):
            signs.append(f"{unknown} results of tests that do not exist")
    checks = tuple(_check(test_id, heard) for test_id in known.ids)
    mixed = f"{false} tests that must fail were mixed with {len(checks)} in {len(heard)} runs"
    reported = "" if answered == false else f"; {answered or 'none'} of them reported"
    canaries = Component(
        name="canaries",
        # Of silence nothing can be said: whoever kills the run has not shown that it is honest.
        raw=float(len(passed)) if answered else None,
        unit="passed",
        gap=None if answered else Gap.NOT_POSSIBLE,
        normalised=(0.0 if passed else 1.0) if answered else None,
        evidence=(
            Evidence(message=f"{mixed}, under {known.names} names{reported}", value=float(false)),
            *(Evidence(message=note) for note in known.notes),
        ),
    )
    return Found(
        checks=checks,
        tamper=tuple(signs),
        components=(canaries,),
        assurance=Assurance.WATCHED,
        cpu_s=sum(report.cpu_s for _, report in heard),
    )


def _answered(plan: Plan, report: Report) -> int:
    """How many of a run's false forms said anything."""
    tried = {each.canary: each for each in plan.forms.false.values()}
    return sum(
        any(f"{place}{name}{suffix}" in report.results for place, suffix in tried[canary].beside)
        for name, canary in plan.by_name.items()
    )


def _contradiction(canary: Canary) -> str:
    return f"a test that must fail passed: {canary.function.place}, {canary.kind}"


def _never_existed(known: Known, plan: Plan, report: Report) -> int:
    """How many passes were reported of tests that are not in the plan, by id or by function."""
    real = {plan.in_run(test_id) for test_id in known.all_ids}
    return sum(
        run_id not in real
        and not plan.has(parts_of(run_id)[1], known.functions)
        and any(status == "passed" for status, _ in said)
        for run_id, said in report.results.items()
    )


def _check(test_id: str, heard: _Heard) -> Check:
    """Passed where it passed in every run that had it in a true form, and in at least one."""
    checks: list[Check] = []
    for plan, report in heard:
        if test_id in plan.ids:
            checks.append(_check_in(test_id, plan, report))
        elif test_id in plan.against and (report.ended is not None or report.forged):
            checks.append(_unheard(test_id, report))
    unpassed = [each for each in checks if each.status is not CheckStatus.PASSED]
    return (unpassed or checks or [_unheard(test_id, heard[-1][1])])[0]


def _check_in(test_id: str, plan: Plan, report: Report) -> Check:
    """Of one run: passed for nothing but passes, and at least one."""
    said = report.results.get(plan.in_run(test_id), [])
    bad = [each for each in said if each[0] != "passed"]
    if bad:
        status, words = bad[0]
        return Check(
            id=test_id,
            status=_STATUS.get(status, CheckStatus.EXCEPTION),
            evidence=plan.words(test_id, words) or status,
        )
    if said and not report.forged:
        return Check(id=test_id, status=CheckStatus.PASSED)
    return _unheard(test_id, report)


def _unheard(test_id: str, report: Report) -> Check:
    if report.ended is not None:
        return Check(id=test_id, status=report.ended.status, evidence=report.ended.evidence)
    why = report.forged or report.errors or "it never reported"
    status = CheckStatus.EXCEPTION if report.errors else CheckStatus.NOT_RUN
    return Check(id=test_id, status=status, evidence=why)
