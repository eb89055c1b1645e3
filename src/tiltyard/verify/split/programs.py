"""Judging a program by what it prints: built once, then run in a fresh sandbox for each case.

What is expected never enters a sandbox that runs it; it is compared here, or by the task's checker
in a sandbox that no solution enters.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import MIB, ExecResult, Reason, SandboxSpec
from tiltyard.core.task import CompareOutput, ProgramCase, ProgramSuite, Task
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.sandbox.pool import Provider
from tiltyard.verify.crossing import STATUS_OF
from tiltyard.verify.evidence import plain, plain_lines
from tiltyard.verify.room import Room
from tiltyard.verify.split.comparison import Comparison
from tiltyard.verify.split.fresh import STDIN_BYTES_MAX
from tiltyard.verify.split.program_runs import (
    CAPTURED_BYTES_MAX,
    NotBuilt,
    Printed,
    ProgramRuns,
)

TIMEOUTS_MAX = 3
"""After so many cases that ran out of time the others are not tried: each costs its whole time."""
NAME_BYTES_MAX = 255
COMMAND_BYTES_MAX = MIB
"""With an input it fits into one request to a sandbox."""
Compare = Callable[[Task, ProgramSuite, ProgramCase, bytes], Awaitable[str | None]]
"""What is wrong with an output of a case; None for nothing."""


class Programs(Room):
    """Judges programs. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, spec: SandboxSpec, python: str, sandboxes_max: int
    ) -> None:
        """`spec` is what programs and checkers run under; `python` runs the checkers."""
        self._runs = ProgramRuns(provider, spec=spec, references_max=sandboxes_max)
        self._comparison = Comparison(self._runs, python=python)
        self._places = asyncio.Semaphore(sandboxes_max)
        super().__init__(self._runs)

    async def judge(
        self,
        task: Task,
        source: bytes,
        suite: ProgramSuite,
        *,
        fresh: tuple[ProgramCase, ...] = (),
        text_only: bool = False,
    ) -> tuple[tuple[Check, ...], float]:
        """One check for each case of the suite and each fresh one, and the CPU time of building and
        running.

        With `text_only` the checker is asked about UTF-8 only, and all else is a wrong answer.
        Raises `GraderError`, or `SandboxError` when the fault is ours.
        """
        _refuse_unsound(task, suite, fresh)
        checks: list[Check] = []
        timeouts = 0
        async with self._places, self._runs.built(task, source, suite) as built:
            if isinstance(built, NotBuilt):
                cases = (*suite.cases, *fresh)
                return _not_built(suite, cases, built.result), built.result.cpu_s
            cpu_s = built.cpu_s
            for number, case in enumerate((*suite.cases, *fresh)):
                if timeouts == TIMEOUTS_MAX:
                    why = f"{TIMEOUTS_MAX} cases before it ran out of time"
                    checks.append(_check(case, CheckStatus.NOT_RUN, why))
                    continue
                large = len(case.expected) > CAPTURED_BYTES_MAX
                printed = await self._runs.ask(
                    built, suite, case, timeout_s=task.time_limit_s, large=large
                )
                cpu_s += printed.result.cpu_s
                compare: Compare = partial(self._comparison.wrong, text_only=text_only)
                if number >= len(suite.cases):
                    compare = self._comparison.wrong_beside
                checks.append(await judged(task, suite, case, printed, compare))
                timeouts += checks[-1].status is CheckStatus.TIMEOUT
        return tuple(checks), cpu_s

    async def answers(
        self, task: Task, suite: ProgramSuite, cases: Sequence[ProgramCase]
    ) -> tuple[ProgramCase, ...]:
        """The cases with what the reference prints for them.

        Raises `UnsoundTask` where it does not exit with 0, and `SandboxError`.
        """
        _refuse_unsound(task, suite, cases)
        answered: list[ProgramCase] = []
        async with self._places, self._runs.reference(task, suite) as built:
            for case in cases:
                printed = await self._runs.ask(
                    built, suite, case, timeout_s=task.time_limit_s, large=True
                )
                if not printed.went_well:
                    raise UnsoundTask(
                        f"task {task.id}: its reference gives no answer to {case.id}: "
                        f"{printed.words}"
                    )
                answered.append(replace(case, expected=printed.output or b""))
        return tuple(answered)

    async def try_checker(self, task: Task, suite: ProgramSuite) -> bool:
        """As `Comparison.try_checker`."""
        async with self._places:
            return await self._comparison.try_checker(task, suite)


async def judged(
    task: Task, suite: ProgramSuite, case: ProgramCase, printed: Printed, compare: Compare
) -> Check:
    result, got = printed.result, printed.output
    said = plain_lines(result.stderr.text.strip()[-300:])
    last = f"; last output: {said}" if said else ""
    if result.reason is Reason.START_FAILED:
        words = f"{suite.run[0]} cannot be started: {plain(result.detail)}"
        return _check(case, CheckStatus.NO_REPLY, words)
    if result.reason is not Reason.EXIT:
        return _check(case, STATUS_OF[result.reason], f"{_ended(task, result)}{last}")
    exited = f"exited with {result.exit_code}"
    if got is None:
        return _check(case, CheckStatus.OUTPUT_LIMIT, f"it printed too much; {exited}")
    wrong = await compare(task, suite, case, got)
    if case.exit_code is not None and result.exit_code != case.exit_code:
        right = "its output is wrong too" if wrong else "its output is right"
        words = f"{exited}, expected {case.exit_code}; {right}{last}"
        return _check(case, CheckStatus.CRASH, words)
    if wrong:
        return _check(case, CheckStatus.WRONG_ANSWER, f"{wrong}; {exited}")
    return _check(case, CheckStatus.PASSED, exited)


def _refuse_unsound(task: Task, suite: ProgramSuite, fresh: Sequence[ProgramCase]) -> None:
    """Raises `UnsoundTask` where nothing can be judged."""
    if problem := _problem(suite, fresh):
        raise UnsoundTask(f"task {task.id}: {problem}")


def _problem(suite: ProgramSuite, fresh: Sequence[ProgramCase]) -> str:
    """Why nothing can be judged by it; empty when something can."""
    if not suite.cases:
        return "it has no tests: give it at least one case"
    if not suite.run:
        return "it has no command to run"
    if "/" in suite.source or suite.source in {"", ".", ".."} or not _can_name(suite.source):
        return f"{suite.source[:NAME_BYTES_MAX]!r} is no plain file name"
    commands = (suite.build, *((*suite.run, *case.arguments) for case in suite.cases))
    if not all(map(_can_be_run, commands)):
        return f"a command or an argument has a NUL, is no text or over {COMMAND_BYTES_MAX} bytes"
    if not (math.isfinite(suite.float_tolerance) and suite.float_tolerance >= 0):
        return f"a float_tolerance of {suite.float_tolerance} is none"
    if (suite.checker is None) == (suite.compare is CompareOutput.CHECKER):
        return "it needs a checker to compare by one, and only then"
    ids = [case.id for case in (*suite.cases, *fresh)]
    if len(set(ids)) < len(ids):
        return "it has a case id twice"
    if any(len(case.stdin) > STDIN_BYTES_MAX for case in suite.cases):
        return f"a case has more than {STDIN_BYTES_MAX} bytes of input"
    return ""


def _can_name(name: str) -> bool:
    return _can_be_run((name,)) and len(name.encode()) <= NAME_BYTES_MAX


def _can_be_run(words: Sequence[str]) -> bool:
    """Whether a command can be asked for; whether the kernel takes it is seen when it is run."""
    try:
        text = "".join(words).encode()
    except UnicodeEncodeError:  # a half of a surrogate pair
        return False
    return b"\0" not in text and len(text) <= COMMAND_BYTES_MAX


def _check(case: ProgramCase, status: CheckStatus, evidence: str) -> Check:
    return Check(id=case.id, status=status, evidence=evidence, weight=case.weight)


def _ended(task: Task, result: ExecResult) -> str:
    """How a program ended that did not exit."""
    if result.reason is Reason.SIGNAL:
        return f"ended by signal {result.signal}"
    if result.reason is Reason.WALL_TIMEOUT:
        return f"did not end within {task.time_limit_s:g} s"
    return f"ended: {result.reason}"


def _not_built(
    suite: ProgramSuite, cases: tuple[ProgramCase, ...], built: ExecResult
) -> tuple[Check, ...]:
    """The first case fails by it, and the others were never run."""
    said = plain_lines(
        (built.stderr.text.strip() or built.stdout.text.strip())[:1000], characters_max=600
    )
    code = f"exited with {built.exit_code}" if built.reason is Reason.EXIT else str(built.reason)
    why = f"it cannot be built: {suite.build[0]} {code}:\n{said}"
    status = CheckStatus.EXCEPTION if built.reason is Reason.EXIT else STATUS_OF[built.reason]
    first, *rest = cases
    return (
        _check(first, status, why),
        *(_check(case, CheckStatus.NOT_RUN, why) for case in rest),
    )
