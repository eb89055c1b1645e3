"""The synchronous twin of `tiltyard.sandbox.processes.Process`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from tiltyard.core.execution import ExecResult
from tiltyard.core.ids import ProcessId
from tiltyard.sandbox.processes import Process as AsyncProcess, Tail
from tiltyard.sync.twin import Twin
from tiltyard.sync.twins.chunks import Chunks


class Process(Twin[AsyncProcess]):
    """One program in a sandbox, running or ended. Made by `Sandbox.spawn` and `Sandbox.stream`.

    Nothing here raises for what the program does: how it ended is what `wait` returns. Cancelling
    a call stops only that call; the program runs on until it ends, is killed, or its sandbox goes.
    """

    @property
    def id(self) -> ProcessId:
        return self._real.id

    @property
    def argv(self) -> tuple[str, ...]:
        return self._real.argv

    @property
    def pty(self) -> bool:
        return self._real.pty

    @property
    def running(self) -> bool:
        return self._read(lambda: self._real.running)

    def wait(self) -> ExecResult:
        """Waits until its main process has ended, and tells how; for any number of callers."""
        return self._call(self._real.wait)

    def write(self, data: bytes) -> bool:
        """Writes to its standard input, or types into its terminal, all of `data` in one piece.

        Waits for as long as the program does not read, with no more than 64 KiB on the way to it.
        False when nobody reads any more: it closed its standard input, or has ended.

        Raises `ValueError` when it was started with neither `Stdin.STREAMED` nor a terminal.
        """
        return self._call(lambda: self._real.write(data))

    def close_stdin(self) -> None:
        """Ends its standard input after what was written; in a terminal, types the end of input."""
        self._call(self._real.close_stdin)

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """Sends a signal to the process group of its main process; to nobody when it has ended.

        With `whole_tree`, to everything that descends from it or shares its session. The foreground
        program of a terminal is better told by typing: `write(b"\\x03")` is Ctrl-C.
        """
        self._call(lambda: self._real.signal(number, whole_tree=whole_tree))

    def kill(self) -> ExecResult:
        """Kills it with all that it started, waits for that, and tells how it ended."""
        return self._call(self._real.kill)

    def ask_end(self) -> None:
        """Has it killed with all that it started, without waiting."""
        self._read(self._real.ask_end)

    def put_off(self, time_s: float) -> None:
        """Moves its deadlines, because it was made to stand still for so long."""
        self._read(lambda: self._real.put_off(time_s))

    def resize(self, rows: int, columns: int) -> None:
        """Tells its terminal a new size. Raises `ValueError` when it has no terminal."""
        self._call(lambda: self._real.resize(rows, columns))

    def tail(self) -> Tail:
        """What is kept of its output so far."""
        return self._read(self._real.tail)

    def chunks(self) -> Chunks:
        """Its output: first what is kept of it so far, then as it comes, until it has ended.

        Each call makes a reader of its own, for one task. A program never waits for a reader, so
        none runs into a deadline because of one; a reader that is over 1 MiB behind loses the
        oldest, and is told how much in the next chunk's `skipped_bytes`.
        """
        it = self._read(self._real.chunks)
        return Chunks(it, self._portal)
