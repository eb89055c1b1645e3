"""Where programs are measured: each run in a fork of what was built, billed from outside.

A run has a sandbox of its own, so that whatever is used there from the program's start on was used
for it: by its threads, children and daemons too. Nothing it prints or asks says what it took.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tiltyard.core.errors import SandboxFileError, UnsoundTask
from tiltyard.core.execution import Reason, SandboxSpec
from tiltyard.core.task import ProgramCase, ProgramSuite, Task
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.dynamic.bench import NotCountedError, Watch
from tiltyard.verify.evidence import plain
from tiltyard.verify.room import Room
from tiltyard.verify.split.comparison import Comparison
from tiltyard.verify.split.program_runs import (
    OUTPUT,
    OUTPUT_BYTES_MAX,
    Built,
    NotBuilt,
    Printed,
    ProgramRuns,
    not_lost,
    output_of,
)

NOT_BUILT = "it could not be built when it was to be measured"
INPUT = "/tmp/input"  # noqa: S108 - in the program's own sandbox
BY_FILES = ("/bin/sh", "-c", f'exec "$@" <"$0" >{OUTPUT}', INPUT)
OUT_OF_TIME = frozenset({Reason.WALL_TIMEOUT, Reason.CPU_TIMEOUT})


class NoInputError(Exception):
    """What was built leaves no place for its input, such as a directory where the file would be.
    The message goes on from "it"."""

    def __init__(self, built: Built, why: str) -> None:
        super().__init__(f"leaves no place for its input: {plain(why)}")
        self.built = built


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """One run, as seen from outside."""

    printed: Printed
    cpu_s: float
    """Of the program and all that it started; building it is not in it."""
    io_bytes: int
    """What passed through read and write calls, its input and output too; of a child only when it
    was waited for."""
    over: bool
    """It was ended because it had used more time than it might."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A solution and its reference, ready to run."""

    task: Task
    suite: ProgramSuite
    built: dict[str, Built]
    """Of `reference` and `solution`."""

    def blamed(self, error: NoInputError) -> str:
        """What is wrong with the solution. Raises `UnsoundTask` where it is the reference."""
        if error.built is self.built["reference"]:
            raise UnsoundTask(f"task {self.task.id}: its reference {error}") from None
        return f"it {error}"


class ProgramBench(Room):
    """Use with `async with`, and by one measure at a time: each would disturb the others."""

    def __init__(self, provider: Provider, *, spec: SandboxSpec, python: str) -> None:
        """`spec` is what programs are limited by; `python` runs checkers."""
        self.runs = ProgramRuns(provider, spec=spec, references_max=1)
        self.comparison = Comparison(self.runs, python=python)
        super().__init__(self.runs)

    @asynccontextmanager
    async def pair(
        self, task: Task, suite: ProgramSuite, source: bytes
    ) -> AsyncIterator[Pair | None]:
        """Both programs, built; None where the solution cannot be, though it could before.

        Raises `SandboxError`, and `UnsoundTask` where the reference cannot be built.
        """
        async with (
            self.runs.reference(task, suite) as reference,
            self.runs.built(task, source, suite) as solution,
        ):
            if isinstance(solution, NotBuilt):
                yield None
            else:
                built = {"reference": reference, "solution": solution}
                yield Pair(task=task, suite=suite, built=built)

    async def run(
        self,
        built: Built,
        program: tuple[str, ...],
        case: ProgramCase,
        *,
        by_files: bool,
        cpu_s_max: float,
        wall_s: float,
    ) -> Billed:
        """Runs a program on a case's input. `by_files`: which, like its output, is in a file.

        Raises `SandboxError`, `NoInputError`, and `NotCountedError` where nothing can be billed.
        """
        async with self.runs.sandbox(built.spec) as sandbox:
            if by_files:
                try:
                    await sandbox.write(INPUT, case.stdin)
                except SandboxFileError as error:  # by what its build left there
                    raise NoInputError(built, str(error)) from None
            since_s = sandbox.usage().cpu_s
            if since_s is None:
                raise NotCountedError(
                    "no cgroup counts CPU time here", fix="see `tiltyard doctor`."
                )
            before = await _moved_bytes(sandbox)
            process = await sandbox.spawn(
                (*(BY_FILES if by_files else ()), *program, *case.arguments),
                timeout_s=wall_s,
                stdin=b"" if by_files else case.stdin,
                output_bytes_max=OUTPUT_BYTES_MAX,
            )
            watch = Watch(
                lambda: sandbox.usage().cpu_s,
                process.ask_end,
                since_s=since_s,
                cpu_s_max=cpu_s_max,
            )
            try:
                result = not_lost(await process.wait())
            finally:
                watch.stop()
            moved = await _moved_bytes(sandbox) - before
            output = await output_of(sandbox, result, large=by_files) if sandbox.alive else None
        return Billed(
            printed=Printed(result=result, output=output),
            cpu_s=result.cpu_s,
            io_bytes=max(moved, 0),
            over=watch.over or result.reason in OUT_OF_TIME,
        )


async def _moved_bytes(sandbox: Sandbox) -> int:
    """What went through read and write calls until now; 0 when the sandbox is gone."""
    footprint = await sandbox.programs.footprint()
    return 0 if footprint is None else footprint.io_bytes
