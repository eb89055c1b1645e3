"""Whether what a program printed is right: by its bytes, lines or words, or by the task's checker.

A checker runs in a sandbox of its own, which no solution enters.
"""

import asyncio

from tiltyard.core.errors import UnscoredAnswer, UnsoundTask
from tiltyard.core.execution import Reason
from tiltyard.core.task import CompareOutput, ProgramCase, ProgramSuite, Task
from tiltyard.verify.evidence import plain
from tiltyard.verify.split.outputs import difference
from tiltyard.verify.split.program_runs import WORKSPACE, ProgramRuns, run

CHECKER_S = 20.0
STARVED = frozenset({Reason.WALL_TIMEOUT, Reason.CPU_TIMEOUT, Reason.OOM})
"""Ends that an output can bring a checker to by its mere size, such as a number to count up to."""
TRIED = (
    *(b"", b"\n", b"\xff\x00", b"no number\n"),
    b"nan inf -inf 1e999\n",  # numbers for `float` that no `int` and no `round` takes
    "\N{SUPERSCRIPT TWO}\n".encode(),  # a digit for `str.isdigit`, and no number for `int`
    b"9" * 5_000,  # more digits than `int` takes
    b"[" * 20_000,  # deeper than a reader of JSON goes
)
"""Outputs that break checkers which were not written for them."""
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


class Comparison:
    """Compares outputs, each as its suite says."""

    def __init__(self, runs: ProgramRuns, *, python: str) -> None:
        """`python` runs the checkers."""
        self._runs = runs
        self._python = python

    async def wrong(
        self, task: Task, suite: ProgramSuite, case: ProgramCase, got: bytes, *, text_only: bool
    ) -> str | None:
        """What is not as the case expects; None when nothing is.

        With `text_only` the checker is asked about UTF-8 only, and all else is a wrong answer.
        Raises `UnscoredAnswer` where the checker breaks on this output, `UnsoundTask` where it
        does on what is expected, or `SandboxError` when the fault is ours.
        """
        if suite.compare is not CompareOutput.CHECKER:
            return await asyncio.to_thread(
                difference, suite.compare, case.expected, got, tolerance=suite.float_tolerance
            )
        if text_only and not _is_text(got):
            return "its output is not UTF-8, and the checker reads text"
        try:
            return await self._refused(task, suite, case, got)
        except UnsoundTask as error:
            if got == case.expected:
                raise
            # Breaking the checker must not be a way out of a 0 that nobody sees.
            raise UnscoredAnswer(str(error)) from None

    async def wrong_again(
        self, task: Task, suite: ProgramSuite, case: ProgramCase, got: bytes
    ) -> str | None:
        """As `wrong`, of a program that was right before: the checker is taken to read what it
        expects, and is not asked about output that is no UTF-8 where that is."""
        text_only = _is_text(case.expected) and not _is_text(got)
        return await self.wrong(task, suite, case, got, text_only=text_only)

    async def wrong_beside(
        self, task: Task, suite: ProgramSuite, case: ProgramCase, got: bytes
    ) -> str | None:
        """As `wrong_again`, of an input that nobody has tried before: what is expected is what the
        reference printed. Raises `UnsoundTask` where the checker does not take that either."""
        wrong = await self.wrong_again(task, suite, case, got)
        if wrong is not None and suite.compare is CompareOutput.CHECKER:
            theirs: str | None = wrong
            if got != case.expected:
                theirs = await self.wrong(task, suite, case, case.expected, text_only=False)
            if theirs is not None:
                raise UnsoundTask(
                    f"task {task.id}: what its reference prints for {case.id} is wrong: {theirs}"
                )
        return wrong

    async def _refused(
        self, task: Task, suite: ProgramSuite, case: ProgramCase, got: bytes
    ) -> str | None:
        """Asks the checker; why it refuses, or None. Raises `UnsoundTask` when it does neither."""
        async with self._runs.sandbox(self._runs.spec) as sandbox:
            texts = {"input": case.stdin, "expected": case.expected, "output": got}
            for name, text in texts.items():
                await sandbox.write(f"{WORKSPACE}/{name}", text)
            await sandbox.write(f"{WORKSPACE}/checker.py", suite.checker or "")
            paths = (f"{WORKSPACE}/{name}" for name in ("checker.py", *texts))
            command = (self._python, "-I", "-B", "-c", RUN_CHECKER, *paths)
            result = await run(sandbox, command, timeout_s=CHECKER_S)
        if result.reason is Reason.EXIT and result.exit_code in {0, 1}:
            said = plain(result.stdout.text.strip()[:200])
            words = f"the checker refused it{f': {said}' if said else ''}"
            return words if result.exit_code else None
        if result.reason in STARVED and got != case.expected:
            # With the reference's output it did get through, so it is this one's doing.
            return f"the checker did not get through with it ({result.reason})"
        ended = f"exited with {result.exit_code}" if result.reason is Reason.EXIT else result.reason
        raise UnsoundTask(
            f"task {task.id}: its checker {ended} on the output of case {case.id}: "
            f"{plain(result.stderr.text.strip()[-300:])}"
        )

    async def try_checker(self, task: Task, suite: ProgramSuite) -> bool:
        """Shows the checker outputs that a solution may come up with; whether it reads only text.

        It may break on what is not UTF-8, as a program that opens a file as text does, and is then
        never shown such a thing. All else it must stand. Raises `UnsoundTask`: better for all
        submissions than for the one that prints such a thing.
        """
        if suite.compare is not CompareOutput.CHECKER:
            return False
        text_only = False
        case = suite.cases[0]
        half = case.expected[: len(case.expected) // 2]
        for got in (*TRIED, half, case.expected * 2):
            try:
                await self._refused(task, suite, case, got)
            except UnsoundTask as error:
                if _is_text(got):
                    tried = plain(repr(got[:20])[1:])
                    raise UnsoundTask(f"{error}; it was tried with the output {tried}") from None
                text_only = True
        return text_only


def _is_text(output: bytes) -> bool:
    """Whether a program that opens it as text can read it."""
    try:
        output.decode()
    except UnicodeDecodeError:
        return False
    return True
