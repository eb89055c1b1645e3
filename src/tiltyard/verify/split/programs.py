"""Judging a program by what it prints: built once, then run in a fresh sandbox for each case.

The sandbox that built it is frozen, with every process in it killed, and each case runs in a fork
of that: nothing of one case reaches the next. What is expected never enters any of them; it is
compared here, or by the task's checker in a sandbox that no solution enters.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tiltyard.core.errors import GraderError, SandboxDied, SandboxFileError, UnsoundTask
from tiltyard.core.execution import LOSSES, MIB, ExecResult, Reason, SandboxSpec
from tiltyard.core.task import CompareOutput, ProgramCase, ProgramSuite, Task
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.crossing import STATUS_OF
from tiltyard.verify.evidence import plain, plain_lines
from tiltyard.verify.split.outputs import difference

BUILD_S = 60.0
CHECKER_S = 20.0
OUTPUT_BYTES_MAX = 8 * MIB
STDIN_BYTES_MAX = MIB
DISK_BYTES_MAX = 64 * MIB
"""All snapshots together have a share of this machine's memory, and no build may use it up."""
TIMEOUTS_MAX = 3
"""After so many cases that ran out of time the others are not tried: each costs its whole time."""
CAPTURED_BYTES_MAX = 100 * 1024
"""Of a program that prints more than this, the output goes to a file in its sandbox."""
WORKSPACE = "/workspace"
OUTPUT = "/tmp/output"  # noqa: S108 - in the program's own sandbox
TO_FILE = ("/bin/sh", "-c", 'exec "$@" >"$0"', OUTPUT)
STARVED = frozenset({Reason.WALL_TIMEOUT, Reason.CPU_TIMEOUT, Reason.OOM})
"""Ends that an output can bring a checker to by its mere size, such as a number to count up to."""
CHECKER_FAULT = 70
RUN_CHECKER = f"""
import runpy, sys, traceback
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception:
    traceback.print_exc()
    sys.exit({CHECKER_FAULT})
"""
"""Python ends with 1, a checker's no, also for an exception that nobody caught."""


class Programs:
    """Runs programs and checkers."""

    def __init__(
        self, provider: Provider, *, spec: SandboxSpec, python: str, sandboxes_max: int
    ) -> None:
        """`spec` is what programs and checkers run under; `python` runs the checkers."""
        self._provider = provider
        disk_bytes = min(spec.limits.disk_bytes, DISK_BYTES_MAX)
        self._spec = replace(spec, limits=replace(spec.limits, disk_bytes=disk_bytes))
        self._python = python
        self._places = asyncio.Semaphore(sandboxes_max)
        self._open: set[Sandbox] = set()

    @property
    def sandboxes(self) -> int:
        """How many it has now."""
        return len(self._open)

    def destroy(self) -> None:
        """Destroys what runs, at once; whoever waits for it gets a `SandboxError`."""
        for sandbox in tuple(self._open):
            sandbox.destroy()

    async def judge(
        self, task: Task, source: bytes, suite: ProgramSuite, *, text_only: bool = False
    ) -> tuple[tuple[Check, ...], float]:
        """One check for each case, and the CPU time of building and running.

        With `text_only` the checker is asked about UTF-8 only, and all else is a wrong answer.
        Raises `GraderError`, or `SandboxError` when the fault is ours.
        """
        problem = _problem(suite)
        if problem:
            raise UnsoundTask(f"task {task.id}: {problem}")
        async with self._places:
            return await self._judge(task, source, suite, text_only=text_only)

    async def _judge(
        self, task: Task, source: bytes, suite: ProgramSuite, *, text_only: bool
    ) -> tuple[tuple[Check, ...], float]:
        checks: list[Check] = []
        cpu_s = 0.0
        timeouts = 0
        async with self._sandbox(self._spec) as sandbox:
            await sandbox.write(f"{WORKSPACE}/{suite.source}", source)
            if suite.build:
                built = await _run(sandbox, suite.build, timeout_s=BUILD_S)
                cpu_s += built.cpu_s
                if built.reason is Reason.START_FAILED:
                    raise UnsoundTask(f"task {task.id}: {suite.build[0]} cannot be started")
                if built.reason is not Reason.EXIT or built.exit_code != 0:
                    return _not_built(suite, built), cpu_s
            await sandbox.kill()
            async with await sandbox.snapshot() as snapshot:
                for case in suite.cases:
                    if timeouts == TIMEOUTS_MAX:
                        why = f"{TIMEOUTS_MAX} cases before it ran out of time"
                        checks.append(_check(case, CheckStatus.NOT_RUN, why))
                        continue
                    async with self._sandbox(snapshot.spec) as own:
                        result, got = await _ask(task, suite, case, own)
                    cpu_s += result.cpu_s
                    checks.append(
                        await self._judged(task, suite, case, result, got, text_only=text_only)
                    )
                    timeouts += checks[-1].status is CheckStatus.TIMEOUT
        return tuple(checks), cpu_s

    async def _judged(
        self,
        task: Task,
        suite: ProgramSuite,
        case: ProgramCase,
        result: ExecResult,
        got: bytes | None,
        *,
        text_only: bool,
    ) -> Check:
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
        wrong: str | None
        if suite.compare is CompareOutput.CHECKER and text_only and not _is_text(got):
            wrong = "its output is not UTF-8, and the checker reads text"
        elif suite.compare is CompareOutput.CHECKER:
            wrong = await self._refused(task, suite, case, got)
        else:
            wrong = await asyncio.to_thread(
                difference, suite.compare, case.expected, got, tolerance=suite.float_tolerance
            )
        if case.exit_code is not None and result.exit_code != case.exit_code:
            right = "its output is wrong too" if wrong else "its output is right"
            words = f"{exited}, expected {case.exit_code}; {right}{last}"
            return _check(case, CheckStatus.CRASH, words)
        if wrong:
            return _check(case, CheckStatus.WRONG_ANSWER, f"{wrong}; {exited}")
        return _check(case, CheckStatus.PASSED, exited)

    async def _refused(
        self, task: Task, suite: ProgramSuite, case: ProgramCase, got: bytes
    ) -> str | None:
        """Asks the checker; why it refuses, or None. Raises `GraderError` when it does neither."""
        async with self._sandbox(self._spec) as sandbox:
            texts = {"input": case.stdin, "expected": case.expected, "output": got}
            for name, text in texts.items():
                await sandbox.write(f"{WORKSPACE}/{name}", text)
            await sandbox.write(f"{WORKSPACE}/checker.py", suite.checker or "")
            paths = (f"{WORKSPACE}/{name}" for name in ("checker.py", *texts))
            command = (self._python, "-I", "-B", "-c", RUN_CHECKER, *paths)
            result = await _run(sandbox, command, timeout_s=CHECKER_S)
        if result.reason is Reason.EXIT and result.exit_code in {0, 1}:
            said = plain(result.stdout.text.strip()[:200])
            words = f"the checker refused it{f': {said}' if said else ''}"
            return words if result.exit_code else None
        if result.reason in STARVED and got != case.expected:
            # With the reference's output it did get through, so it is this one's doing.
            return f"the checker did not get through with it ({result.reason})"
        ended = f"exited with {result.exit_code}" if result.reason is Reason.EXIT else result.reason
        raise GraderError(
            f"task {task.id}: its checker {ended} on the output of case {case.id}: "
            f"{plain(result.stderr.text.strip()[-300:])}"
        )

    async def try_checker(self, task: Task, suite: ProgramSuite) -> bool:
        """Shows the checker outputs that a solution may come up with; whether it reads only text.

        It may break on what is not UTF-8, as a program that opens a file as text does, and is then
        never shown such a thing. All else it must stand. Raises `GraderError`: better for all
        submissions than for the one that prints such a thing.
        """
        if suite.compare is not CompareOutput.CHECKER:
            return False
        text_only = False
        case = suite.cases[0]
        half = case.expected[: len(case.expected) // 2]
        async with self._places:
            for got in (b"", b"\n", b"\xff\x00", b"no number\n", half, case.expected * 2):
                try:
                    await self._refused(task, suite, case, got)
                except GraderError:
                    if _is_text(got):
                        raise
                    text_only = True
        return text_only

    @asynccontextmanager
    async def _sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        sandbox = await self._provider.create(spec)
        self._open.add(sandbox)
        try:
            yield sandbox
        finally:
            self._open.discard(sandbox)
            await asyncio.shield(sandbox.close())


async def _ask(
    task: Task, suite: ProgramSuite, case: ProgramCase, sandbox: Sandbox
) -> tuple[ExecResult, bytes | None]:
    """Runs one case; how that went, and what it printed: None for more than is looked at."""
    large = len(case.expected) > CAPTURED_BYTES_MAX
    command = (*(TO_FILE if large else ()), *suite.run, *case.arguments)
    result = await _run(sandbox, command, timeout_s=task.time_limit_s, stdin=case.stdin)
    if not large:
        captured = result.stdout
        return result, None if captured.truncated else captured.head + captured.tail
    await sandbox.kill()
    try:
        return result, await sandbox.read(OUTPUT, bytes_max=OUTPUT_BYTES_MAX)
    except SandboxFileError:  # too large, or no file any more
        return result, None


async def _run(
    sandbox: Sandbox, command: tuple[str, ...], *, timeout_s: float, stdin: bytes = b""
) -> ExecResult:
    result = await sandbox.run(
        command, timeout_s=timeout_s, stdin=stdin, output_bytes_max=OUTPUT_BYTES_MAX
    )
    if result.reason in LOSSES or result.reason not in {*STATUS_OF, Reason.START_FAILED}:
        raise SandboxDied(f"a program's sandbox was lost: {result.reason} {result.detail}")
    return result


def _is_text(output: bytes) -> bool:
    """Whether a program that opens it as text can read it."""
    try:
        output.decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem(suite: ProgramSuite) -> str:
    """Why nothing can be judged by it; empty when something can."""
    if not suite.cases:
        return "it has no tests: give it at least one case"
    if not suite.run:
        return "it has no command to run"
    if "/" in suite.source or suite.source in {"", ".", ".."}:
        return f"{suite.source!r} is no plain file name"
    if (suite.checker is None) == (suite.compare is CompareOutput.CHECKER):
        return "it needs a checker to compare by one, and only then"
    if len({case.id for case in suite.cases}) < len(suite.cases):
        return "it has a case id twice"
    if any(len(case.stdin) > STDIN_BYTES_MAX for case in suite.cases):
        return f"a case has more than {STDIN_BYTES_MAX} bytes of input"
    return ""


def _check(case: ProgramCase, status: CheckStatus, evidence: str) -> Check:
    return Check(id=case.id, status=status, evidence=evidence, weight=case.weight)


def _ended(task: Task, result: ExecResult) -> str:
    """How a program ended that did not exit."""
    if result.reason is Reason.SIGNAL:
        return f"ended by signal {result.signal}"
    if result.reason is Reason.WALL_TIMEOUT:
        return f"did not end within {task.time_limit_s:g} s"
    return f"ended: {result.reason}"


def _not_built(suite: ProgramSuite, built: ExecResult) -> tuple[Check, ...]:
    """The first case fails by it, and the others were never run."""
    said = plain_lines(
        (built.stderr.text.strip() or built.stdout.text.strip())[:1000], characters_max=600
    )
    code = f"exited with {built.exit_code}" if built.reason is Reason.EXIT else str(built.reason)
    why = f"it cannot be built: {suite.build[0]} {code}:\n{said}"
    status = CheckStatus.EXCEPTION if built.reason is Reason.EXIT else STATUS_OF[built.reason]
    first, *rest = suite.cases
    return (
        _check(first, status, why),
        *(_check(case, CheckStatus.NOT_RUN, why) for case in rest),
    )
