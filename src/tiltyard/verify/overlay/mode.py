"""Overlay mode: a repository's tests in one process with a submission, and watched.

What shares a process with its tests can make them say anything. So tests that must fail are mixed
in: whoever has all tests pass has these pass too, and is found out. Which they are is drawn for
every run and known only on this side. What remains is told in docs/decisions/0020.
"""

import asyncio
import random
import secrets
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import Self

from tiltyard.core.errors import GraderError, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import RepositorySuite, Submission, Task
from tiltyard.core.verdict import (
    Assurance,
    Check,
    CheckStatus,
    Component,
    Evidence,
)
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.expected import Remembered
from tiltyard.verify.found import Found
from tiltyard.verify.overlay.canaries import Canary, Kind
from tiltyard.verify.overlay.learning import Known, Trial, learn
from tiltyard.verify.overlay.plan import Plan, Tried, draw, parts_of, plan_of
from tiltyard.verify.overlay.session import Report, request_of, run_tests
from tiltyard.verify.overlay.tree import places_of, reference_tree, tests_of, tree_of
from tiltyard.verify.provenance import suite_digest
from tiltyard.verify.shipping import shared, shipped

EXTRA_S = 2.0
"""Beside the tests themselves: laying the tree down and pytest's own start on a busy machine."""
COPIES_SHARE_MAX = 1.0
"""Of a task's time limit, what copies of its tests may take beside it: a small suite has more
copies than tests, and a submission that hangs would hang for all of theirs."""
DRAWS_MAX = 3
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


class OverlayMode:
    """Judges repository tasks. Use with `async with`; safe to call concurrently."""

    def __init__(
        self,
        provider: Provider,
        *,
        interpreter: Interpreter,
        spec: SandboxSpec,
        cells_max: int = 4,
        rng: random.Random | None = None,
    ) -> None:
        """`spec` is what tests and solutions run under together; `cells_max` bounds the cells.

        `rng` draws names and canaries; by default one that nobody can foresee.
        """
        self._cells = ZygoteCells(
            provider, interpreter=interpreter, program=_program(), spec=spec, cells_max=cells_max
        )
        self._rng = rng or secrets.SystemRandom()
        self._known = Remembered[Known]()

    async def __aenter__(self) -> Self:
        await self._cells.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._cells.__aexit__(kind, error, trace)

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return self._cells.cells

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
        known = await self._known.get(key, partial(learn, task, tests_of(suite), trial))
        for _ in range(DRAWS_MAX):
            plan = await asyncio.to_thread(self._drawn, known)
            report = await self._run(task, suite, tree.files, plan, len(known.ids))
            passed = _tampered(plan, report)
            unsound = passed and await self._unsound(known, plan, trial)
            if not unsound:
                break
            known.unsound.update(unsound)
        else:
            raise UnsoundTask(
                f"task {task.id}: tests that must fail pass with its reference again and again.",
                fix="make its tests give the same result every time.",
            )
        if report.ended is not None and report.ended.status in _STARVED:
            # Was it the submission, or the tests and the machine? The reference must get through.
            again = await trial(plan, len(known.ids))
            if again.ended is not None:
                raise UnsoundTask(f"task {task.id}: its reference: {again.ended.evidence}")
        return _found(known, plan, report, passed, tree.tamper)

    def _drawn(self, known: Known) -> Plan:
        sound = [each for each in known.tried if each not in known.unsound]
        if not sound:
            raise UnsoundTask(
                "no copy of its tests fails with its reference every time.",
                fix="make its tests give the same result every time.",
            )
        chosen = draw(sound, len(known.ids), self._rng)
        return plan_of(known.files, chosen, known.renamed, self._rng)

    async def _unsound(self, known: Known, plan: Plan, trial: Trial) -> set[Tried]:
        """Of a plan's canaries, those that do with the reference what they must not."""
        report = await trial(plan, len(known.ids))
        return set(_tampered(plan, report))

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
        files = {**tree, **plan.files}
        # Copies take as long as tests do, and their time is not the submission's.
        copies = len(plan.canaries) / max(tests, 1)
        copies = copies if patient else min(copies, COPIES_SHARE_MAX)
        wall_s = task.time_limit_s * (1 + copies) + EXTRA_S
        async with self._cells.run(wall_s=wall_s) as run:
            request = request_of(files, chosen, places_of(suite))
            return await run_tests(run, request, tests=tests, deadline_s=wall_s)


def test_files(suite: RepositorySuite) -> tuple[str, ...]:
    """The files that hold tests, by path in the tree; the others are their helpers."""
    names = {path: path.rsplit("/", 1)[-1] for path in sorted(tests_of(suite))}
    return tuple(
        path
        for path, name in names.items()
        if fnmatchcase(name, "test_*.py") or fnmatchcase(name, "*_test.py")
    )


def _tampered(plan: Plan, report: Report) -> tuple[Tried, ...]:
    """Canaries that contradict the tests beside them, all of which passed.

    A wrong solution may well pass a false test, and fails the true one then; that is no tampering.
    """
    tried = {each.canary: each for each in plan.canaries if isinstance(each, Tried)}
    found: list[Tried] = []
    for name, canary in plan.by_name.items():
        beside = tried[canary].beside if canary in tried else {}
        for (place, suffix), ids in beside.items():
            run_id = f"{place}{name}{suffix}"
            said = [status for status, _ in report.results.get(run_id, [])]
            wrongly = (
                said and not report.passed(run_id)
                if canary.kind is Kind.WRITTEN
                else "passed" in said
            )
            if wrongly and all(report.passed(plan.in_run(test_id)) for test_id in ids):
                found.append(tried[canary])
                break
    return tuple(found)


def _found(
    known: Known, plan: Plan, report: Report, passed: tuple[Tried, ...], tamper: tuple[str, ...]
) -> Found:
    signs = list(tamper)
    signs += [_contradiction(one.canary) for one in passed[:3]]
    if len(passed) > 3:
        signs.append(f"{len(passed)} of {len(plan.canaries)} canaries were contradicted")
    if report.forged:
        signs.append(f"forged results: it {report.forged}")
    if unknown := _never_existed(known, plan, report):
        signs.append(f"{unknown} results of tests that do not exist")
    checks = tuple(_check(test_id, plan, report) for test_id in known.ids)
    canaries = Component(
        name="canaries",
        raw=float(len(passed)),
        unit="passed",
        normalised=0.0 if passed else 1.0,
        evidence=(
            Evidence(
                message=f"{len(plan.canaries)} tests that must fail were mixed with "
                f"{len(checks)}, under {known.names} names",
                value=float(len(plan.canaries)),
            ),
            *(Evidence(message=note) for note in known.notes),
        ),
    )
    return Found(
        checks=checks,
        tamper=tuple(signs),
        components=(canaries,),
        assurance=Assurance.WATCHED,
        cpu_s=report.cpu_s,
    )


def _contradiction(canary: Canary) -> str:
    place = canary.function.place
    if canary.kind is Kind.WRITTEN:
        return f"what a test computes came out false: {place}"
    return f"a test that must fail passed: {place}, {canary.kind}"


def _never_existed(known: Known, plan: Plan, report: Report) -> int:
    """How many passes were reported of tests that are not in the plan, by id or by function."""
    real = {plan.in_run(test_id) for test_id in known.all_ids}
    return sum(
        run_id not in real
        and not plan.has(parts_of(run_id)[1], known.functions)
        and any(status == "passed" for status, _ in said)
        for run_id, said in report.results.items()
    )


def _check(test_id: str, plan: Plan, report: Report) -> Check:
    """Passed for nothing but passes, and at least one."""
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
    if report.ended is not None:
        return Check(id=test_id, status=report.ended.status, evidence=report.ended.evidence)
    why = report.forged or report.errors or "it never reported"
    status = CheckStatus.EXCEPTION if report.errors else CheckStatus.NOT_RUN
    return Check(id=test_id, status=status, evidence=why)
