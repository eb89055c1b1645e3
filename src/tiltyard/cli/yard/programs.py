"""Running a program for a connection: its output out, its standard input in, its end.

The connection is read all the time, so its end is seen whatever the program does: then the program
is killed. In a sandbox no program waits for its reader, who then misses the oldest of its output;
but who runs one in a pipeline wants all of it. So output waits here, and a program that writes
faster than its client reads is stopped meanwhile. Not one with a terminal: its jobs are stopped and
continued by the person at it. Should output be missed all the same, the client is told how much.
"""

import asyncio
import signal
from collections import deque

from tiltyard.cli.yard.connection import Connection
from tiltyard.cli.yard.wire import (
    BLOCK_BYTES,
    STDIN_FRAMES_MAX,
    Ended,
    Exec,
    Kind,
    Resize,
    WireError,
    parse_request,
)
from tiltyard.core.errors import SandboxDied
from tiltyard.core.execution import MIB, Chunk, Pty, Stdin, Stream
from tiltyard.sandbox.orders import OUTPUT_BYTES_MOST
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.supervised import Sandbox

BACKLOG_BYTES_MAX = 64 * MIB
STOP_BYTES, CONTINUE_BYTES = 8 * MIB, 2 * MIB
"""What waits when a program is stopped and when it goes on. More may be on the way meanwhile."""


async def run_program(sandbox: Sandbox, asked: Exec, connection: Connection) -> None:
    """Runs it to its end. When the client goes away, it is killed."""
    size = asked.terminal
    process = await sandbox.spawn(
        asked.argv,
        timeout_s=asked.timeout_s,
        cpu_s=asked.cpu_s,
        idle_s=asked.idle_s,
        stdin=Stdin.STREAMED if size is None else b"",
        cwd=asked.cwd,
        env=asked.env,
        user=asked.user,
        pty=None if size is None else Pty(rows=size.rows, columns=size.columns),
        output_bytes_max=(
            OUTPUT_BYTES_MOST if asked.output_bytes_max is None else asked.output_bytes_max
        ),
    )
    try:
        skipped_bytes = await _attend(process, connection)
        done = await process.wait()
    finally:
        await process.kill()
    await connection.say(
        Ended(
            reason=done.reason,
            exit_code=done.exit_code,
            signal=done.signal,
            wall_s=done.wall_s,
            cpu_s=done.cpu_s,
            memory_peak_bytes=done.memory_peak_bytes,
            detail=done.detail,
            skipped_bytes=skipped_bytes,
        )
    )


async def _attend(process: Process, connection: Connection) -> int:
    """Carries everything until the program has ended; tells how much output was missed."""
    typed: asyncio.Queue[bytes] = asyncio.Queue(STDIN_FRAMES_MAX)
    backlog = _Backlog(process)
    async with asyncio.TaskGroup() as group:
        beside = (
            group.create_task(_hear(process, connection, typed)),
            group.create_task(_type(process, connection, typed)),
            group.create_task(_pull(process, backlog)),
        )
        while (chunk := await backlog.take()) is not None:
            kind = Kind.STDOUT if chunk.stream is Stream.STDOUT else Kind.STDERR
            try:
                for at in range(0, len(chunk.data), BLOCK_BYTES):
                    await connection.send(kind, chunk.data[at : at + BLOCK_BYTES])
            except SandboxDied:
                process.ask_end()
                break
        for task in beside:
            task.cancel()
    return backlog.skipped_bytes


async def _hear(process: Process, connection: Connection, typed: "asyncio.Queue[bytes]") -> None:
    """Takes in what the client says, for as long as it is there and says what it may."""
    try:
        while received := await connection.receive():
            if received.kind is Kind.STDIN:
                typed.put_nowait(received.body)
                continue
            request = parse_request(received)
            if not isinstance(request, Resize):
                break
            if process.pty:
                await process.resize(request.size.rows, request.size.columns)
    except (WireError, asyncio.QueueFull):
        pass  # as good as gone
    process.ask_end()


async def _type(process: Process, connection: Connection, typed: "asyncio.Queue[bytes]") -> None:
    """Gives the program its standard input, as fast as it reads."""
    try:
        while block := await typed.get():
            await process.write(block)  # when nobody reads any more it is dropped
            await connection.send(Kind.TAKEN, b"")
        await process.close_stdin()
    except SandboxDied:
        pass  # `_hear` sees it too


async def _pull(process: Process, backlog: "_Backlog") -> None:
    async for chunk in process.chunks():
        await backlog.put(chunk)
    await backlog.put(None)


class _Backlog:
    """Output on its way to the client; bounded by bytes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stopped = False
        self._chunks: deque[Chunk | None] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.skipped_bytes = 0

    async def put(self, chunk: Chunk | None) -> None:
        """None is the end."""
        if self._bytes > STOP_BYTES and not self._stopped and not self._process.pty:
            self._stopped = True
            await self._process.signal(signal.SIGSTOP, whole_tree=True)
        while self._bytes > BACKLOG_BYTES_MAX:
            self._changed.clear()
            await self._changed.wait()
        self._chunks.append(chunk)
        if chunk is not None:
            self._bytes += len(chunk.data)
            self.skipped_bytes += chunk.skipped_bytes
        self._changed.set()

    async def take(self) -> Chunk | None:
        while not self._chunks:
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        if chunk is not None:
            self._bytes -= len(chunk.data)
        if self._bytes < CONTINUE_BYTES and self._stopped:
            self._stopped = False
            await self._process.signal(signal.SIGCONT, whole_tree=True)
        self._changed.set()
        return chunk
