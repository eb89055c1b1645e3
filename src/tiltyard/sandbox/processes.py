"""The programs of one sandbox: started, fed, watched, signalled, found again by their ids.

Every program is started here, whether its caller waits for it or not. A running program is known to
its sandbox under an id, so that another task of this process can attach to it; it needs nobody who
waits: what it writes is kept within bounds, and its deadlines are held in any case (`course`).
"""

import asyncio
import errno
import signal as signals
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from tiltyard.core.errors import ProcessUnknown, SandboxRefused
from tiltyard.core.execution import (
    Enforcement,
    ExecResult,
    Limit,
    Pty,
    SandboxSpec,
    Stdin,
    StreamCapture,
)
from tiltyard.core.ids import ProcessId, SandboxId
from tiltyard.sandbox.course import Course
from tiltyard.sandbox.hold import Hold
from tiltyard.sandbox.orders import Order, limits_under, problem_with_terminal
from tiltyard.sandbox.protocol import (
    EXECUTIONS_MAX,
    ExitFlag,
    FrameType,
    RawExit,
    signal_body,
    size_body,
)
from tiltyard.sandbox.streams import Chunks
from tiltyard.sandbox.supervisor import Execution, Supervisor

ENDED_KEPT_MAX = 16
"""Ended background programs that can still be asked how they ended; each keeps up to 256 KiB."""
END_OF_INPUT = b"\x04"
"""What a person types into a terminal for it."""
ONE_USER = "user-namespace"
"""The rung on which a sandbox has no other user than its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What is kept so far of a program's output."""

    stdout: StreamCapture
    stderr: StreamCapture


class Process:
    """One program in a sandbox, running or ended. Made by `Sandbox.spawn` and `Sandbox.stream`.

    Nothing here raises for what the program does: how it ended is what `wait` returns. Cancelling
    a call stops only that call; the program runs on until it ends, is killed, or its sandbox goes.
    """

    def __init__(
        self,
        *,
        execution: Execution,
        course: Course,
        order: Order,
        isolation: str,
        enforced: Mapping[Limit, Enforcement],
    ) -> None:
        self.id = ProcessId(f"p{execution.id}")
        self.argv = tuple(order.argv)
        self.pty = order.pty is not None
        self._streamed = self.pty or order.stdin is Stdin.STREAMED
        self._execution = execution
        self._course = course
        self._isolation = isolation
        self._enforced = enforced
        self._writing = asyncio.Lock()
        self._result: ExecResult | None = None

    @property
    def running(self) -> bool:
        return not self._course.ended

    async def wait(self) -> ExecResult:
        """Waits until its main process has ended, and tells how; for any number of callers."""
        settled = await self._course.settled()
        if self._result is None:
            ending = settled.ending
            self._result = ExecResult(
                reason=ending.reason,
                exit_code=ending.exit_code,
                signal=ending.signal,
                stdout=self._execution.stdout.result(),
                stderr=self._execution.stderr.result(),
                wall_s=settled.wall_s,
                cpu_s=settled.cpu_s,
                memory_peak_bytes=settled.memory_peak_bytes,
                detail=ending.detail,
                isolation=self._isolation,
                enforced=self._enforced,
            )
        return self._result

    async def write(self, data: bytes) -> bool:
        """Writes to its standard input, or types into its terminal, all of `data` in one piece.

        Waits for as long as the program does not read, with no more than 64 KiB on the way to it.
        False when nobody reads any more: it closed its standard input, or has ended.

        Raises `ValueError` when it was started with neither `Stdin.STREAMED` nor a terminal.
        """
        self._check_streamed()
        async with self._writing:
            view = memoryview(data)
            while view:
                count = await self._execution.input.reserve(len(view))
                if not count:
                    return False
                self._execution.order(FrameType.INPUT, bytes(view[:count]))
                view = view[count:]
        return self._execution.input.open

    async def close_stdin(self) -> None:
        """Ends its standard input after what was written; in a terminal, types the end of input."""
        self._check_streamed()
        if self.pty:
            await self.write(END_OF_INPUT)
            return
        async with self._writing:
            self._execution.order(FrameType.CLOSE_INPUT)
            self._execution.input.close()

    async def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """Sends a signal to the process group of its main process; to nobody when it has ended.

        With `whole_tree`, to everything that descends from it or shares its session. The foreground
        program of a terminal is better told by typing: `write(b"\\x03")` is Ctrl-C.
        """
        if number not in signals.valid_signals():
            raise ValueError(f"process {self.id}: there is no signal {number}")
        self._execution.order(FrameType.SIGNAL, signal_body(number, whole_tree=whole_tree))

    async def kill(self) -> ExecResult:
        """Kills it with all that it started, waits for that, and tells how it ended."""
        self.ask_end()
        return await self.wait()

    def ask_end(self) -> None:
        """Has it killed with all that it started, without waiting."""
        self._course.kill()

    async def resize(self, rows: int, columns: int) -> None:
        """Tells its terminal a new size. Raises `ValueError` when it has no terminal."""
        if not self.pty:
            raise ValueError(f"process {self.id} has no terminal.")
        size = Pty(rows=rows, columns=columns)
        if problem := problem_with_terminal(size):
            raise ValueError(f"process {self.id}: {problem}")
        self._execution.order(FrameType.RESIZE, size_body(size))

    def tail(self) -> Tail:
        """What is kept of its output so far."""
        return Tail(stdout=self._execution.stdout.result(), stderr=self._execution.stderr.result())

    def chunks(self) -> Chunks:
        """Its output: first what is kept of it so far, then as it comes, until it has ended.

        Each call makes a reader of its own, for one task. A program never waits for a reader, so
        none runs into a deadline because of one; a reader that is over 1 MiB behind loses the
        oldest, and is told how much in the next chunk's `skipped_bytes`.
        """
        return self._execution.chunks()

    def _check_streamed(self) -> None:
        if not self._streamed:
            raise ValueError(
                f"process {self.id}: its standard input was given at its start; to write to it, "
                "start it with stdin=Stdin.STREAMED or a pty"
            )


class Programs:
    """Starts the programs of one sandbox, and knows those that run."""

    def __init__(
        self,
        *,
        sandbox_id: SandboxId,
        spec: SandboxSpec,
        supervisor: Supervisor,
        hold: Hold,
        isolation: str,
        enforced: Mapping[Limit, Enforcement],
        environment: Mapping[str, str],
    ) -> None:
        self._sandbox_id = sandbox_id
        self._spec = spec
        self._supervisor = supervisor
        self._hold = hold
        self._isolation = isolation
        self._enforced = enforced
        self._environment = environment
        self._running: dict[ProcessId, Process] = {}
        self._ended: OrderedDict[ProcessId, Process] = OrderedDict()

    @property
    def running(self) -> tuple[Process, ...]:
        return tuple(self._running.values())

    def find(self, id_: ProcessId) -> Process:
        """Raises `ProcessUnknown`."""
        found = self._running.get(id_) or self._ended.get(id_)
        if found is None:
            raise ProcessUnknown(
                f"sandbox {self._sandbox_id} has no process {id_!r}.",
                fix=f"list the running ones; the last {ENDED_KEPT_MAX} that ended are known too.",
            )
        return found

    def start(self, order: Order, *, keep: bool) -> Process:
        """Starts a program and returns at once; with `keep`, it can be found after its end.

        Raises `ValueError` for an order that makes no sense, `SandboxRefused` for a user that this
        sandbox cannot have.
        """
        if problem := order.problem():
            raise ValueError(f"sandbox {self._sandbox_id}: {problem}")
        if order.other_user and self._isolation == ONE_USER:
            raise SandboxRefused(
                f"sandbox {self._sandbox_id} has no user {order.user!r}: it has only its root.",
                fix="run Tiltyard as root, where each sandbox has 65,536 ids, or leave `user` out.",
            )
        limits = limits_under(
            self._spec,
            self._enforced,
            wall_s=order.timeout_s or 0.0,
            cpu_s=order.cpu_s,
            output_bytes_max=order.output_bytes_max,
        )
        try:
            body = order.body(environment=self._environment, limits=limits)
        except ValueError as error:
            raise ValueError(f"sandbox {self._sandbox_id}: {error}") from None
        before = self._hold.read_usage(reset_peak=self._supervisor.running == 0)
        full = self._supervisor.running >= EXECUTIONS_MAX
        execution = self._supervisor.execution()
        course = Course(
            execution,
            supervisor=self._supervisor,
            hold=self._hold,
            cpus=self._spec.limits.cpus,
            limits=limits,
            idle_s=order.idle_s or 0.0,
            before=before,
        )
        process = Process(
            execution=execution,
            course=course,
            order=order,
            isolation=self._isolation,
            enforced=self._enforced,
        )
        self._running[process.id] = process
        if full:
            # It would be refused inside as well; but what is on the way there is bounded like this.
            self._supervisor.refuse(execution, _no_room())
        else:
            execution.order(FrameType.SPAWN, body)
        execution.at_end(lambda _: self._forget(process, keep=keep))
        return process

    def _forget(self, process: Process, *, keep: bool) -> None:
        del self._running[process.id]
        if keep:
            self._ended[process.id] = process
            if len(self._ended) > ENDED_KEPT_MAX:
                self._ended.popitem(last=False)


def _no_room() -> RawExit:
    return RawExit(
        status=errno.EAGAIN,
        flags=ExitFlag.NOT_STARTED,
        wall_s=0.0,
        cpu_s=0.0,
        memory_peak_bytes=0,
        stdout_bytes=0,
        stderr_bytes=0,
        call="executions at once",
    )
