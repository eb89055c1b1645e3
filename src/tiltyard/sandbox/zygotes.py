"""Kept interpreters: runs that start in a millisecond, each isolated from every other.

A *cell* is a sandbox with one zygote in it (see `inside/zygote.py` for how a run is isolated). A
cell serves one run at a time, so the sandbox's memory and process limits are that run's. After it,
its whole pid namespace has been killed and reaped before the cell serves again; a cell about which
that is not certain is destroyed. A zygote never runs what it was not started with.
"""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import structlog

from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import MIB, Reason, SandboxSpec
from tiltyard.sandbox.ending import Ending, Usage, used_since
from tiltyard.sandbox.footprint import Footprint
from tiltyard.sandbox.orders import TIMEOUT_S_MAX
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.protocol import ProgramLimits
from tiltyard.sandbox.streams import Capture, ChannelClosed, ChannelInbox
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.supervisor import Execution

HOME = "/run/tiltyard"
START_TIMEOUT_S = 60.0
"""Imports on a busy machine; then the machine, not the program, is at fault."""
EMPTY_SPARE_BYTES = 8 * MIB
"""Caches of the kernel's own, which it gives back when memory is short."""
EMPTY_TRIES_MAX = 200
EMPTY_RETRY_S = 0.002
END_TIMEOUT_S = 5.0
"""Killing a run takes a millisecond; a cell that needs longer than this is destroyed."""
RUN_OUTPUT_BYTES_MAX = 16 * MIB

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The Python of a provider's sandboxes, and what its runs are restricted with."""

    python: str
    """The interpreter's path, inside the sandbox."""
    packages: str
    """The directory of installed packages, inside the sandbox."""
    filter: bytes
    """The compiled system-call filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteProgram:
    """What a zygote is started with."""

    files: Mapping[str, str]
    """Sources by file name; they can import each other while the zygote starts."""
    main: str
    """The file whose `serve(channel)` every run calls."""
    programs: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    """Executables by file name, each a file of this machine's, that runs may start."""
    run_disk_bytes: int = 32 * MIB


class Run:
    """One isolated run: talk with it over its channel, then `end` it."""

    def __init__(
        self, sandbox: Sandbox, execution: Execution, limits: ProgramLimits, before: Usage
    ) -> None:
        self._sandbox = sandbox
        self._execution = execution
        self._limits = limits
        self._before = before
        self.cpu_s = 0.0
        """CPU time of its processes; known once it has ended."""
        self.wall_s = 0.0
        """How long it lived; known once it has ended."""

    @property
    def channel(self) -> ChannelInbox:
        return self._execution.channel

    @property
    def stdout(self) -> Capture:
        return self._execution.stdout

    @property
    def stderr(self) -> Capture:
        return self._execution.stderr

    def send(self, data: bytes) -> None:
        self._execution.send(data)

    @property
    def alive(self) -> bool:
        return not self._execution.ended.done()

    def kill(self) -> None:
        """Asks for its end, without waiting; `end` waits."""
        self._execution.kill()

    def used(self) -> Usage:
        """What it used until now, by its cgroup, with all that it started.

        Its own start and the supervisor's work for it are in it. Where the kernel cannot count a
        peak of memory anew, that is what it went over the highest that its cell ever had.
        """
        return used_since(self._before, self._sandbox.usage())

    async def footprint(self) -> Footprint | None:
        """What its processes hold now, seen from outside; None when its sandbox is gone."""
        return await self._sandbox.programs.footprint_of_runs()

    def memory_bytes(self) -> int | None:
        """What its cell holds now, files and kernel included; None where no cgroup counts it."""
        return self._sandbox.memory_bytes()

    async def ended(self) -> Ending:
        """Waits for its end, by itself or at a limit, and says what that was."""
        settled = await self._sandbox.programs.settle(
            self._execution, limits=self._limits, before=self._before
        )
        self.cpu_s = settled.cpu_s
        self.wall_s = settled.wall_s
        return _told_apart(settled.ending, limits=self._limits)

    async def end(self, *, grace_s: float = 0.0) -> Ending:
        """Waits `grace_s` for its own end, then kills it; returns when nothing of it is left."""
        if grace_s:
            await asyncio.wait((self._execution.ended,), timeout=grace_s)
        self._execution.kill()
        return await self.ended()


def _told_apart(ending: Ending, *, limits: ProgramLimits) -> Ending:
    """Who killed a run that was killed by nobody we know of.

    A run is pid 1 of its pid namespace: the kernel drops a SIGKILL that comes from inside. So this
    one came from outside, a loss of ours; or from a CPU-time limit. The run may not set one itself
    (native/seccomp_compile.c), and how much of it was used is no evidence: the clock that enforces
    it charges whole ticks, so a run can arrange to be ended after a fraction of its time.
    """
    if ending.reason is not Reason.SIGNAL or ending.signal != signal.SIGKILL:
        return ending
    if limits.cpu_s:
        return replace(ending, reason=Reason.CPU_TIMEOUT)
    return replace(ending, reason=Reason.SANDBOX_DIED, detail="killed from outside the sandbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A sandbox with its zygote."""

    sandbox: Sandbox
    zygote: Execution
    memory_bytes: int | None
    """What it held when it was made; None where no cgroup counts it."""

    @property
    def alive(self) -> bool:
        return self.sandbox.alive and not self.zygote.ended.done()

    async def emptied(self) -> bool:
        """Waits until it holds no more than at first; False when that does not come about.

        A run's processes are gone, but the kernel frees its shared memory and its disk a little
        later, and until then they would count against the next run.
        """
        for _ in range(EMPTY_TRIES_MAX):
            now = self.sandbox.memory_bytes()
            if now is None or now <= (self.memory_bytes or 0) + EMPTY_SPARE_BYTES:
                return True
            await asyncio.sleep(EMPTY_RETRY_S)
        return False


class ZygoteCells:
    """A bounded set of cells with the same program. Use with `async with`."""

    def __init__(
        self,
        provider: Provider,
        *,
        interpreter: Interpreter,
        program: ZygoteProgram,
        spec: SandboxSpec,
        cells_max: int,
    ) -> None:
        self._provider = provider
        self._interpreter = interpreter
        self._program = program
        self._spec = spec
        self._idle: deque[_Cell] = deque()
        self._places = asyncio.Semaphore(cells_max)
        self._all: set[Sandbox] = set()
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        self._idle.clear()
        left = tuple(self._all)
        for sandbox in left:
            sandbox.destroy()
        for sandbox in left:
            await asyncio.shield(self._discard(sandbox))

    @property
    def sandboxes(self) -> int:
        """How many cells live, each a sandbox."""
        return len(self._all)

    @asynccontextmanager
    async def run(self, *, wall_s: float, cpu_s: int = 0) -> AsyncIterator[Run]:
        """A fresh run, ended with the block. Waits while every cell is busy.

        `cpu_s` bounds the CPU time of each of its processes; 0 does not, and `wall_s` bounds it all
        the same. With a limit, a run that is killed from outside is taken for one that reached it.

        Raises `SandboxError` when no cell can be made.
        """
        if not 0 < wall_s <= TIMEOUT_S_MAX:
            raise ValueError(f"a run needs a time limit, not {wall_s} s")
        self._check_open()
        async with self._places:
            self._check_open()
            cell = await self._take()
            sandbox = cell.sandbox
            limits = sandbox.programs.limits(
                wall_s=wall_s, cpu_s=cpu_s, output_bytes_max=RUN_OUTPUT_BYTES_MAX
            )
            clean = False
            execution: Execution | None = None
            try:
                self._check_open()  # they may have been closed while this one was made
                before = sandbox.programs.count_anew()
                execution = sandbox.programs.fork(cell.zygote, limits=limits)
                yield Run(sandbox, execution, limits, before)
            finally:
                if execution is not None:
                    clean = await asyncio.shield(_clear(execution))
                if clean and cell.alive and self._open:
                    self._idle.append(cell)
                else:
                    await asyncio.shield(self._discard(sandbox))

    def _check_open(self) -> None:
        if not self._open:
            raise SandboxClosed("the cells are closed.", fix="use them inside their `async with`.")

    async def _take(self) -> _Cell:
        while self._idle:
            cell = self._idle.pop()
            fit = False
            try:
                young = cell.sandbox.time_left_s > cell.sandbox.spec.lifetime_s / 2
                fit = cell.alive and young and await cell.emptied()
            finally:
                if not fit:
                    await asyncio.shield(self._discard(cell.sandbox))
            if fit:
                return cell
        return await self._make()

    async def _make(self) -> _Cell:
        program, interpreter = self._program, self._interpreter
        sandbox = await self._provider.create(self._spec, for_zygotes=True)
        self._all.add(sandbox)
        try:
            for name, source in program.files.items():
                await sandbox.write(f"{HOME}/{name}", source)
            for name, path in program.programs.items():
                executable = await asyncio.to_thread(path.read_bytes)
                await sandbox.write(f"{HOME}/{name}", executable, mode=0o755)
            await sandbox.write(f"{HOME}/filter.bpf", interpreter.filter)
            zygote_source = (resources.files(__package__) / "inside" / "zygote.py").read_text()
            await sandbox.write(f"{HOME}/zygote.py", zygote_source)
            argv = [
                *(interpreter.python, "-I", "-S", "-B", f"{HOME}/zygote.py"),
                *(f"{HOME}/{program.main}", f"{HOME}/filter.bpf"),
                *(str(program.run_disk_bytes), interpreter.packages),
            ]
            zygote = sandbox.programs.start_zygote(argv)
            await _ready(sandbox, zygote)
        except BaseException:
            await asyncio.shield(self._discard(sandbox))
            raise
        return _Cell(sandbox=sandbox, zygote=zygote, memory_bytes=sandbox.memory_bytes())

    async def _discard(self, sandbox: Sandbox) -> None:
        self._all.discard(sandbox)
        sandbox.destroy()
        try:
            await sandbox.close()
        except SandboxError as error:
            _log.error("cell_close_failed", sandbox_id=sandbox.id, error=str(error))


async def _ready(sandbox: Sandbox, zygote: Execution) -> None:
    """Waits until its imports are done, so that no run pays for them with its own time."""
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await zygote.channel.take(1)
    except ChannelClosed:
        said = zygote.stderr.result().text.strip()[-500:]
        raise SandboxError(f"sandbox {sandbox.id}: the zygote cannot start: {said}") from None
    except TimeoutError:
        raise SandboxError(
            f"sandbox {sandbox.id}: the zygote was not ready after {START_TIMEOUT_S:.0f} s"
        ) from None


async def _clear(execution: Execution) -> bool:
    """Kills what is left of a run. True when it is certain that nothing is."""
    execution.kill()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            return await asyncio.shield(execution.ended) is not None
    except TimeoutError:
        return False
