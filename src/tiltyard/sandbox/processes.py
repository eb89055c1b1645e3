"""One program in a sandbox, as whoever started it or found it by its id holds it.

It needs nobody who waits for it: what it writes is kept within bounds, and its deadlines are held
in any case (`course`).
"""

import asyncio
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass

from tiltyard.core.execution import Enforcement, ExecResult, Limit, Pty, Stdin, StreamCapture
from tiltyard.core.ids import ProcessId
from tiltyard.sandbox.course import Course
from tiltyard.sandbox.orders import Order, problem_with_terminal
from tiltyard.sandbox.protocol import FrameType, signal_body, size_body
from tiltyard.sandbox.streams import Chunks
from tiltyard.sandbox.supervisor import Execution

END_OF_INPUT = b"\x04"
"""What a person types into a terminal for it."""


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
            ending, raw = settled.ending, settled.raw
            self._result = ExecResult(
                reason=ending.reason,
                exit_code=ending.exit_code,
                signal=ending.signal,
                stdout=self._execution.stdout.result(),
                stderr=self._execution.stderr.result(),
                wall_s=settled.wall_s,
                cpu_s=settled.cpu_s,
                memory_peak_bytes=settled.memory_peak_bytes,
                io_read_bytes=raw.io_read_bytes if raw else 0,
                io_written_bytes=raw.io_written_bytes if raw else 0,
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

    def put_off(self, time_s: float) -> None:
        """Moves its deadlines, because it was made to stand still for so long."""
        self._course.put_off(time_s)

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
