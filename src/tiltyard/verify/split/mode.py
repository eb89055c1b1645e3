"""Split mode: values cross, verdicts do not. Which tests there are is fixed with the reference.

A submission is judged by `SplitMode.judge`; what is a fault of ours is raised, and the front
(`verify/verifier.py`) decides what becomes of it.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from types import MappingProxyType

from tiltyard.core.checks import Inputs
from tiltyard.core.errors import GraderError, SandboxDied, UnscoredAnswer, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import (
    CallSuite,
    Compare,
    ProgramCase,
    ProgramSuite,
    PytestSuite,
    Submission,
    Task,
)
from tiltyard.core.verdict import Assurance, Check, CheckStatus
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.expected import Remembered, digest_of
from tiltyard.verify.found import Found
from tiltyard.verify.inside import codec
from tiltyard.verify.provenance import suite_digest
from tiltyard.verify.room import Room
from tiltyard.verify.shipping import shared, shipped
from tiltyard.verify.split.calls import EncodedSuites, judge_calls, requests_of
from tiltyard.verify.split.candidate import Candidate
from tiltyard.verify.split.fresh import FRESH_CASES_MAX, expected_by, generated, generated_cases
from tiltyard.verify.split.programs import Programs
from tiltyard.verify.split.pytests import FileReport, Fixed, checks_of, run_file, test_files
from tiltyard.verify.submission import take

TESTER_EXTRA_S = 3.0
PROXIES = ("wire.py", "errors.py", "proxies.py")
"""What a tester is made of beside its own file and the recorder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is fixed with the reference, which passes everything."""

    ids: tuple[str, ...]
    fixed: Fixed = field(default_factory=Fixed)
    text_only: bool = False
    """Of a program's checker: it can read nothing but text."""


def _key(task: Task) -> str:
    """Of all that decides how a task's reference does."""
    texts = (task.module, task.reference, repr(task.time_limit_s), suite_digest(task.hidden))
    return digest_of(*(text.encode() for text in texts))


def program(main: str) -> ZygoteProgram:
    """What runs inside: `candidate.py` with a solution or `tester.py` with its tests."""
    tester = main == "tester.py"
    files = shared(*(("channel.py", "recorder.py") if tester else ()))
    files |= shipped(__name__, *(PROXIES if tester else ()), main)
    return ZygoteProgram(files=files, main=main)


class SplitMode(Room):
    """Judges function tasks. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int = 4
    ) -> None:
        """`spec` is what candidates and testers run under; `cells_max` bounds each kind."""

        def cells(main: str) -> ZygoteCells:
            return ZygoteCells(
                provider,
                interpreter=interpreter,
                program=program(main),
                spec=spec,
                cells_max=cells_max,
            )

        self._candidates = cells("candidate.py")
        self._testers = cells("tester.py")
        # The candidate's program, in sandboxes that no solution enters.
        self._generators = cells("candidate.py")
        self._programs = Programs(
            provider, spec=spec, python=interpreter.python, sandboxes_max=cells_max
        )
        self._expected = Remembered[Checked]()
        self._encoded = EncodedSuites()
        super().__init__(self._candidates, self._testers, self._generators, self._programs)

    async def judge(self, task: Task, submission: Submission, *, seed: int | None = None) -> Found:
        """Runs the hidden suite, and what the task's generator makes of `seed`: None draws one.

        Raises `GraderError` or `SandboxError` when the fault is ours.
        """
        taken = take(task, submission)
        if taken.problem:
            return Found(problem=taken.problem, tamper=taken.tamper)
        drawn: int | None = None
        if task.checks.inputs is not None and task.checks.inputs.fresh_cases > 0:
            drawn = secrets.randbits(48) if seed is None else seed
        try:
            if isinstance(task.hidden, ProgramSuite):
                checks, cpu_s = await self._by_programs(task, taken.source, task.hidden, drawn)
            elif isinstance(task.hidden, CallSuite):
                checks, cpu_s = await self._by_calls(task, taken.source, task.hidden)
            elif isinstance(task.hidden, PytestSuite):
                checks, cpu_s = await self._by_pytest(task, taken.source, task.hidden)
            else:
                raise GraderError(f"task {task.id} has no suite for split mode")
            if drawn is not None and not isinstance(task.hidden, ProgramSuite):
                more, more_s = await self._by_fresh(task, taken.source, seed=drawn)
                checks, cpu_s = (*checks, *more), cpu_s + more_s
        except (codec.BadValueError, UnicodeError) as error:
            raise UnsoundTask(
                f"task {task.id}: a value of its tests cannot cross: {error}"
            ) from None
        return Found(
            checks=checks,
            tamper=taken.tamper,
            cpu_s=cpu_s,
            assurance=Assurance.SEPARATE,
            provenance=MappingProxyType({} if drawn is None else {"seed": str(drawn)}),
        )

    async def _by_calls(
        self, task: Task, source: bytes, suite: CallSuite
    ) -> tuple[tuple[Check, ...], float]:
        if not suite.cases:
            raise UnsoundTask(f"task {task.id} has no tests.", fix="give it at least one case.")
        for case in suite.cases:
            if case.compare is Compare.ANY_OF and not isinstance(case.expected, (list, tuple)):
                raise UnsoundTask(f"task {task.id}: case {case.id} needs a list to be any of")
        requests = self._encoded.of(suite)
        if not task.reference_checked:
            check = partial(self._checked_calls, task, suite, requests)
            await self._expected.get(_key(task), check)
        return await self._run_calls(task, source, suite, requests)

    async def _by_fresh(
        self, task: Task, source: bytes, *, seed: int
    ) -> tuple[tuple[Check, ...], float]:
        """Three runs that know nothing of each other: generator, reference, solution."""
        inputs = _fresh_inputs(task)
        async with self._generator(task) as generator:
            arguments = await generated(generator, task, inputs, seed=seed)
        async with self._candidates.run(wall_s=task.time_limit_s) as run:
            reference = Candidate(run, deadline_s=task.time_limit_s)
            suite = await expected_by(reference, task, inputs, arguments, seed=seed)
        checks, cpu_s = await self._run_calls(task, source, suite, requests_of(suite))
        return _with_seed(checks, seed=seed), cpu_s

    @asynccontextmanager
    async def _generator(self, task: Task) -> AsyncIterator[Candidate]:
        """A run that no solution enters."""
        wall_s = task.time_limit_s + TESTER_EXTRA_S
        async with self._generators.run(wall_s=wall_s) as run:
            yield Candidate(run, deadline_s=wall_s)

    async def _run_calls(
        self, task: Task, source: bytes, suite: CallSuite, requests: tuple[bytes, ...]
    ) -> tuple[tuple[Check, ...], float]:
        async with self._candidates.run(wall_s=task.time_limit_s) as run:
            candidate = Candidate(run, deadline_s=task.time_limit_s)
            checks = await judge_calls(
                candidate, module=task.module, source=source, suite=suite, requests=requests
            )
            await run.end()
            return checks, run.cpu_s

    async def _by_pytest(
        self, task: Task, source: bytes, suite: PytestSuite
    ) -> tuple[tuple[Check, ...], float]:
        check = partial(self._checked_tests, task, suite)
        expected = await self._expected.get(_key(task), check)
        reports, cpu_s = await self._pytest_reports(task, source, suite, expected.fixed)
        if any(report.cut for report in reports):
            # Was it the values, or the tests? With the reference's values they must get through.
            await check()
        if any(report.cut and report.cut.idle for report in reports):
            # The machine may have had no time just then. It has had some since.
            reports, cpu_s = await self._pytest_reports(task, source, suite, expected.fixed)
        return checks_of(expected.ids, reports), cpu_s

    async def _by_programs(
        self, task: Task, source: bytes, suite: ProgramSuite, seed: int | None
    ) -> tuple[tuple[Check, ...], float]:
        """Runs the suite, and new cases of `seed`; None: there are to be none."""
        text_only = False
        # A checker is always tried: no generator of tasks does that.
        if not task.reference_checked or suite.checker is not None:
            check = partial(self._checked_programs, task, suite)
            text_only = (await self._expected.get(_key(task), check)).text_only
        fresh: tuple[ProgramCase, ...] = ()
        if seed is not None:
            async with self._generator(task) as generator:
                fresh = await generated_cases(generator, task, _fresh_inputs(task), seed=seed)
            fresh = await self._programs.answers(task, suite, fresh)
        checks, cpu_s = await self._programs.judge(
            task, source, suite, fresh=fresh, text_only=text_only
        )
        count = len(suite.cases)
        told = checks[count:] if seed is None else _with_seed(checks[count:], seed=seed)
        return (*checks[:count], *told), cpu_s

    async def _checked_programs(self, task: Task, suite: ProgramSuite) -> Checked:
        """Builds and runs the reference, and tries the checker. Raises `GraderError`."""
        try:
            checks, _ = await self._programs.judge(task, task.reference.encode(), suite)
        except UnscoredAnswer as error:
            raise UnsoundTask(str(error)) from None  # the answer is the task's own
        ids = _passed_ids(task, checks)
        return Checked(ids=ids, text_only=await self._programs.try_checker(task, suite))

    async def _checked_calls(
        self, task: Task, suite: CallSuite, requests: tuple[bytes, ...]
    ) -> Checked:
        """Makes the calls of the reference. Raises `GraderError`."""
        checks, _ = await self._run_calls(task, task.reference.encode(), suite, requests)
        return Checked(ids=_passed_ids(task, checks))

    async def _checked_tests(self, task: Task, suite: PytestSuite) -> Checked:
        """Runs the tests on the reference. Raises `GraderError`."""
        reports, _ = await self._pytest_reports(task, task.reference.encode(), suite, None)
        for report in reports:
            if report.cut and report.cut.idle:
                raise SandboxDied(f"a tester's run was lost: {report.cut.evidence}")
        fixed = reduce(Fixed.joined, (report.fixed for report in reports), Fixed())
        return Checked(ids=_checked_ids(task, reports), fixed=fixed)

    async def _pytest_reports(
        self, task: Task, source: bytes, suite: PytestSuite, fixed: Fixed | None
    ) -> tuple[tuple[FileReport, ...], float]:
        reports: list[FileReport] = []
        cpu_s = 0.0
        # While the solution answers, its tests wait; what is left must be enough on a busy machine.
        tester_s = task.time_limit_s * 2 + TESTER_EXTRA_S
        for file in test_files(suite):
            async with (
                self._testers.run(wall_s=tester_s) as tester,
                self._candidates.run(wall_s=task.time_limit_s) as run,
            ):
                report = await run_file(
                    tester=tester,
                    candidate=Candidate(run, deadline_s=task.time_limit_s),
                    module=task.module,
                    source=source,
                    file=file,
                    suite=suite,
                    fixed=fixed,
                    deadline_s=tester_s,
                )
                reports.append(report)
                await run.end()
                cpu_s += run.cpu_s
        return tuple(reports), cpu_s


def _fresh_inputs(task: Task) -> Inputs:
    """What makes its new inputs. Raises `UnsoundTask` for too many."""
    inputs = task.checks.inputs
    if inputs is None or inputs.fresh_cases > FRESH_CASES_MAX:
        raise UnsoundTask(
            f"task {task.id} cannot have so many fresh inputs.", fix=f"at most {FRESH_CASES_MAX}."
        )
    return inputs


def _with_seed(checks: tuple[Check, ...], *, seed: int) -> tuple[Check, ...]:
    return tuple(
        replace(check, evidence=f"seed {seed}: {check.evidence}".removesuffix(": "))
        for check in checks
    )


def _checked_ids(task: Task, reports: tuple[FileReport, ...]) -> tuple[str, ...]:
    ids = tuple(test_id for report in reports for test_id in report.collected)
    for report in reports:
        if report.errors:
            raise UnsoundTask(f"task {task.id}: its tests cannot be collected: {report.errors}")
        if report.cut:
            raise UnsoundTask(f"task {task.id}: {report.file}: {report.cut.evidence}")
    if not ids:
        raise UnsoundTask(f"task {task.id} has no tests.", fix="add files named test_*.py.")
    return _passed_ids(task, checks_of(ids, reports))


def _passed_ids(task: Task, checks: tuple[Check, ...]) -> tuple[str, ...]:
    failed = [check for check in checks if check.status is not CheckStatus.PASSED]
    if failed:
        first = failed[0]
        raise UnsoundTask(
            f"task {task.id}: its reference fails {len(failed)} of {len(checks)} tests; "
            f"first {first.id} ({first.status}): {first.evidence}"
        )
    return tuple(check.id for check in checks)
