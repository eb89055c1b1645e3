"""Programs of tasks as they are built and run: built once, frozen, then run in forks of that.

What a sandbox was built in is frozen with every process in it killed, so nothing of one run reaches
the next. A reference is trusted and asked again and again, so what was built of those used last is
kept; what was built of a submission is given up with the block that asked for it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tiltyard.core.errors import SandboxDied, SandboxFileError, UnsoundTask
from tiltyard.core.execution import LOSSES, MIB, ExecResult, Reason, SandboxSpec
from tiltyard.core.task import ProgramCase, ProgramSuite, Task
from tiltyard.sandbox.pool import Pool, Provider
from tiltyard.sandbox.setups import SetUp, SetUpFailed, SetUps
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.crossing import STATUS_OF
from tiltyard.verify.evidence import plain_lines

BUILD_S = 60.0
OUTPUT_BYTES_MAX = 8 * MIB
DISK_BYTES_MAX = 64 * MIB
"""All snapshots together have a share of this machine's memory, and no build may use it up."""
REFERENCES_KEPT_MAX = 4
"""Each has up to `DISK_BYTES_MAX` of that share."""
CAPTURED_BYTES_MAX = 100 * 1024
"""Of a program that prints more than this, the output goes to a file in its sandbox."""
WORKSPACE = "/workspace"
OUTPUT = "/tmp/output"  # noqa: S108 - in the program's own sandbox
TO_FILE = ("/bin/sh", "-c", 'exec "$@" >"$0"', OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program that is ready to run."""

    spec: SandboxSpec
    """Of sandboxes in which it lies built; good while the block lasts that gave it."""
    cpu_s: float = 0.0
    """What building it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBuilt:
    """A program whose build command did not end well."""

    result: ExecResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One run of a program."""

    result: ExecResult
    output: bytes | None
    """None for more than is looked at, or no file any more."""

    @property
    def went_well(self) -> bool:
        """It exited with 0, and what it printed is there."""
        return self.result.ok and self.output is not None

    @property
    def words(self) -> str:
        """How it ended and the last that it said, for evidence."""
        result = self.result
        if result.reason is Reason.START_FAILED:
            return f"cannot be started: {plain_lines(result.detail)}"
        if result.reason is Reason.SIGNAL:
            ended = f"ended by signal {result.signal}"
        elif result.reason is Reason.EXIT:
            ended = f"exited with {result.exit_code}"
        else:
            ended = f"ended: {result.reason}"
        said = plain_lines(result.stderr.text.strip()[-300:])
        more = f"; last output: {said}" if said else ""
        return f"{'' if self.output is not None else 'it printed too much; '}{ended}{more}"


class ProgramRuns:
    """Builds and runs programs. Use with `async with`."""

    def __init__(self, provider: Provider, *, spec: SandboxSpec, references_max: int) -> None:
        """`spec` is what programs run under; `references_max` are built at a time."""
        self._provider = provider
        disk_bytes = min(spec.limits.disk_bytes, DISK_BYTES_MAX)
        self.spec = replace(spec, limits=replace(spec.limits, disk_bytes=disk_bytes))
        self._open: set[Sandbox] = set()
        self._pool = Pool(provider, in_use_max=references_max, warm=0)
        self._references = SetUps(self._pool, kept_max=REFERENCES_KEPT_MAX)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self._pool)
        await self._opened.enter_async_context(self._references)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox in tuple(self._open):
            sandbox.destroy()  # whoever waits for it gets a `SandboxError`
        await self._opened.__aexit__(kind, error, trace)

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return len(self._open) + self._pool.counts.in_use

    @asynccontextmanager
    async def built(
        self, task: Task, source: bytes, suite: ProgramSuite
    ) -> AsyncIterator[Built | NotBuilt]:
        """A submission's program. Raises `SandboxError`, and `UnsoundTask` without a compiler."""
        async with AsyncExitStack() as kept:
            async with self.sandbox(self.spec) as sandbox:
                await sandbox.write(f"{WORKSPACE}/{suite.source}", source)
                result = await _build(task, suite, sandbox)
                made: Built | NotBuilt
                if result is None or result.ok:
                    await sandbox.kill()
                    snapshot = await kept.enter_async_context(await sandbox.snapshot())
                    made = Built(spec=snapshot.spec, cpu_s=result.cpu_s if result else 0.0)
                else:
                    made = NotBuilt(result=result)
            yield made

    @asynccontextmanager
    async def reference(self, task: Task, suite: ProgramSuite) -> AsyncIterator[Built]:
        """The task's own program, built by whoever asks first. Raises `UnsoundTask` where it cannot
        be built, and `SandboxError`."""
        set_up = SetUp(
            files=((f"{WORKSPACE}/{suite.source}", task.reference.encode()),),
            commands=(suite.build,) if suite.build else (),
            timeout_s=BUILD_S,
        )
        async with AsyncExitStack() as kept:
            try:
                spec = await kept.enter_async_context(self._references.prepared(self.spec, set_up))
            except SetUpFailed as error:
                raise UnsoundTask(
                    f"task {task.id}: its reference: {plain_lines(str(error))}"
                ) from None
            yield Built(spec=spec)

    async def ask(
        self, built: Built, suite: ProgramSuite, case: ProgramCase, *, timeout_s: float, large: bool
    ) -> Printed:
        """Runs one case in a sandbox of its own. `large`: its output may be more than is captured.

        Raises `SandboxError` when the fault is ours.
        """
        async with self.sandbox(built.spec) as sandbox:
            command = (*(TO_FILE if large else ()), *suite.run, *case.arguments)
            result = await run(sandbox, command, timeout_s=timeout_s, stdin=case.stdin)
            return Printed(result=result, output=await output_of(sandbox, result, large=large))

    @asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A new one for the length of a block. Raises `SandboxError`."""
        sandbox = await self._provider.create(spec)
        self._open.add(sandbox)
        try:
            yield sandbox
        finally:
            self._open.discard(sandbox)
            await asyncio.shield(sandbox.close())


async def _build(task: Task, suite: ProgramSuite, sandbox: Sandbox) -> ExecResult | None:
    """How building went; None where nothing is built."""
    if not suite.build:
        return None
    result = await run(sandbox, suite.build, timeout_s=BUILD_S)
    if result.reason is Reason.START_FAILED:
        raise UnsoundTask(f"task {task.id}: {suite.build[0]} cannot be started")
    return result


async def run(
    sandbox: Sandbox, command: tuple[str, ...], *, timeout_s: float, stdin: bytes = b""
) -> ExecResult:
    """Runs a program to its end. Raises `SandboxDied` when its sandbox was lost."""
    return not_lost(
        await sandbox.run(
            command, timeout_s=timeout_s, stdin=stdin, output_bytes_max=OUTPUT_BYTES_MAX
        )
    )


def not_lost(result: ExecResult) -> ExecResult:
    """A result that says something of the program. Raises `SandboxDied` for any other."""
    if result.reason in LOSSES or result.reason not in {*STATUS_OF, Reason.START_FAILED}:
        raise SandboxDied(f"a program's sandbox was lost: {result.reason} {result.detail}")
    return result


async def output_of(sandbox: Sandbox, result: ExecResult, *, large: bool) -> bytes | None:
    """What a program printed that has ended; None for more than is looked at."""
    if not large:
        captured = result.stdout
        return None if captured.truncated else captured.head + captured.tail
    await sandbox.kill()
    try:
        return await sandbox.read(OUTPUT, bytes_max=OUTPUT_BYTES_MAX)
    except SandboxFileError:  # too large, or no file any more
        return None
