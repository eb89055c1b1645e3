"""Split mode: values cross, verdicts do not. Which tests there are is fixed with the reference.

A submission is judged by `SplitMode.judge`; what is a fault of ours is raised, and the front
(`verify/verifier.py`) decides what becomes of it.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import resources
from types import TracebackType
from typing import Self

from tiltyard.core.errors import GraderError, UnsoundTask
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import CallSuite, PytestSuite, Submission, Task
from tiltyard.core.verdict import Assurance, Check, CheckStatus
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.found import Found
from tiltyard.verify.split.calls import EncodedSuites, judge_calls
from tiltyard.verify.split.candidate import Candidate
from tiltyard.verify.split.inside import codec
from tiltyard.verify.split.pytests import FileReport, checks_of, run_file, test_files
from tiltyard.verify.submission import take

TESTER_EXTRA_S = 3.0
SUITES_KEPT_MAX = 1_000
"""Test ids are kept for the suites seen last; those of an older one are found again."""

CheckReference = Callable[[], Awaitable[tuple[str, ...]]]
"""Returns the ids of a task's tests when its reference passes all; raises `GraderError`."""


def _program(main: str) -> ZygoteProgram:
    inside = resources.files(__package__) / "inside"
    files = {name: (inside / name).read_text() for name in ("codec.py", main)}
    return ZygoteProgram(files=files, main=main)


class SplitMode:
    """Judges function tasks. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int = 4
    ) -> None:
        """`spec` is what candidates and testers run under; `cells_max` bounds each kind."""
        self._candidates = ZygoteCells(
            provider,
            interpreter=interpreter,
            program=_program("candidate.py"),
            spec=spec,
            cells_max=cells_max,
        )
        self._testers = ZygoteCells(
            provider,
            interpreter=interpreter,
            program=_program("tester.py"),
            spec=spec,
            cells_max=cells_max,
        )
        self._expected: dict[str, tuple[str, ...]] = {}
        self._expecting: dict[str, asyncio.Lock] = {}
        self._encoded = EncodedSuites()
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._candidates)
        await self._opened.enter_async_context(self._testers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return self._candidates.cells + self._testers.cells

    async def judge(self, task: Task, submission: Submission) -> Found:
        """Runs the hidden suite. Raises `GraderError` or `SandboxError` when the fault is ours."""
        taken = take(task, submission)
        if taken.problem:
            return Found(problem=taken.problem, tamper=taken.tamper)
        try:
            if isinstance(task.hidden, CallSuite):
                checks, cpu_s = await self._by_calls(task, taken.source, task.hidden)
            elif isinstance(task.hidden, PytestSuite):
                checks, cpu_s = await self._by_pytest(task, taken.source, task.hidden)
            else:
                raise GraderError(f"task {task.id} has no suite for split mode")
        except (codec.BadValueError, UnicodeError) as error:
            raise UnsoundTask(
                f"task {task.id}: a value of its tests cannot cross: {error}"
            ) from None
        return Found(checks=checks, tamper=taken.tamper, cpu_s=cpu_s, assurance=Assurance.SEPARATE)

    async def _by_calls(
        self, task: Task, source: bytes, suite: CallSuite
    ) -> tuple[tuple[Check, ...], float]:
        if not suite.cases:
            raise UnsoundTask(f"task {task.id} has no tests.", fix="give it at least one case.")
        requests = self._encoded.requests_of(suite)
        if not task.reference_checked:
            key = _calls_key(task, suite, requests)
            await self._expected_ids(key, partial(self._checked_calls, task, suite, requests))
        return await self._run_calls(task, source, suite, requests)

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
        expected = await self._expected_ids(_suite_key(task, suite), check)
        reports, cpu_s = await self._pytest_reports(task, source, suite)
        if any(report.cut for report in reports):
            # Was it the values, or the tests? With the reference's values they must get through.
            await check()
        return checks_of(expected, reports), cpu_s

    async def _expected_ids(self, key: str, check: CheckReference) -> tuple[str, ...]:
        """The tests there are, fixed with the reference, which must pass every one of them.

        That it passes is remembered; that it fails is not, because on a machine that is starved of
        CPU a right reference may run out of time.
        """
        async with self._expecting.setdefault(key, asyncio.Lock()):
            if key not in self._expected:
                self._expected[key] = await check()
                while len(self._expected) > SUITES_KEPT_MAX:
                    oldest = next(iter(self._expected))
                    self._expected.pop(oldest)
                    self._expecting.pop(oldest, None)
            return self._expected[key]

    async def _checked_calls(
        self, task: Task, suite: CallSuite, requests: tuple[bytes, ...]
    ) -> tuple[str, ...]:
        """Makes the calls of the reference; returns the cases' ids. Raises `GraderError`."""
        checks, _ = await self._run_calls(task, task.reference.encode(), suite, requests)
        return _passed_ids(task, checks)

    async def _checked_tests(self, task: Task, suite: PytestSuite) -> tuple[str, ...]:
        """Runs the tests on the reference; returns their ids. Raises `GraderError`."""
        reports, _ = await self._pytest_reports(task, task.reference.encode(), suite)
        return _checked_ids(task, reports)

    async def _pytest_reports(
        self, task: Task, source: bytes, suite: PytestSuite
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
                    deadline_s=tester_s,
                )
                reports.append(report)
                await run.end()
                cpu_s += run.cpu_s
        return tuple(reports), cpu_s


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


def _calls_key(task: Task, suite: CallSuite, requests: tuple[bytes, ...]) -> str:
    """Of all that decides how the reference does."""
    expected = (
        codec.encode((case.expected, case.raises, case.arguments_kept)) for case in suite.cases
    )
    limits = f"{suite.float_tolerance!r} {task.time_limit_s!r}".encode()
    return _digest(task.module.encode(), task.reference.encode(), limits, *requests, *expected)


def _suite_key(task: Task, suite: PytestSuite) -> str:
    texts = (text for item in sorted(suite.files.items()) for text in item)
    return _digest(*(text.encode() for text in (task.module, task.reference, *texts)))


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
