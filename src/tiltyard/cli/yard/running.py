"""The command's side of a program in a sandbox: standard input in, output out, its exit code."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tiltyard.cli.boundary import errors
from tiltyard.cli.yard.client import failure, using
from tiltyard.cli.yard.connection import Connection
from tiltyard.cli.yard.wire import (
    BLOCK_BYTES,
    STDIN_FRAMES_MAX,
    Ended,
    Exec,
    Failed,
    Frame,
    Kind,
    Resize,
    Size,
    WireError,
    parse_reply,
)
from tiltyard.core.errors import SandboxDied, TiltyardError
from tiltyard.core.execution import LOSSES, Reason

EXIT_TILTYARD, EXIT_NOT_STARTED, EXIT_BY_SIGNAL = 125, 127, 128
"""As `docker exec` and the shell have it, so that scripts find what they know."""
STDIN, STDOUT, STDERR = 0, 1, 2


async def run(
    directory: Path,
    request: Exec,
    *,
    take: Callable[[Kind, bytes], None] | None = None,
    sizes: "asyncio.Queue[Size] | None" = None,
) -> Ended:
    """Runs a program with this process's standard streams, and tells how it ended.

    `take` gets its output instead of them; `sizes` are those that its terminal gets. Cancelling
    kills the program.
    """
    window = threading.Semaphore(STDIN_FRAMES_MAX)
    failed: Exception | None = None
    async with using(directory, request.id, request) as connection, asyncio.TaskGroup() as group:
        beside = [group.create_task(_feed(connection, window))]
        if sizes is not None:
            beside.append(group.create_task(_resize(connection, sizes)))
        try:
            return await _receive(connection, take or write_out, window)
        except (TiltyardError, OSError) as error:
            failed = error  # the task group would wrap it
        finally:
            for task in beside:
                task.cancel()
    raise failed


def exit_code(ended: Ended) -> int:
    """What the command exits with."""
    if ended.reason is Reason.START_FAILED:
        return EXIT_NOT_STARTED
    if ended.reason in LOSSES or (ended.skipped_bytes and ended.exit_code == 0):
        return EXIT_TILTYARD
    if ended.exit_code is not None:
        return ended.exit_code
    return EXIT_BY_SIGNAL + (ended.signal or 9)


def tell(ended: Ended) -> None:
    """Says on standard error what an exit code cannot say."""
    if ended.skipped_bytes:
        errors.print(
            f"{ended.skipped_bytes} bytes of output are missing, because they were not taken off "
            "fast enough: have the program write a file, and copy that",
            style="yellow",
        )
    if ended.reason not in {Reason.EXIT, Reason.SIGNAL}:
        detail = f": {ended.detail}" if ended.detail else ""
        errors.print(f"ended: {ended.reason}{detail}", style="yellow", markup=False)


def write_out(kind: Kind, block: bytes) -> None:
    """Writes all of it to this process's own stream of that kind."""
    fd = STDOUT if kind is Kind.STDOUT else STDERR
    view = memoryview(block)
    while view:
        view = view[os.write(fd, view) :]


async def _receive(
    connection: Connection, take: Callable[[Kind, bytes], None], window: threading.Semaphore
) -> Ended:
    while received := await connection.receive():
        match received:
            case Frame(kind=Kind.STDOUT | Kind.STDERR as kind, body=body):
                take(kind, body)
            case Frame(kind=Kind.TAKEN):
                window.release()
            case _:
                reply = parse_reply(received)
                if isinstance(reply, Failed):
                    raise failure(reply)
                if isinstance(reply, Ended):
                    return reply
                raise WireError(f"the yard daemon answered with {reply.say}.")
    raise SandboxDied("the yard daemon has ended.", fix="see `tiltyard sandbox ls`.")


async def _resize(connection: Connection, sizes: "asyncio.Queue[Size]") -> None:
    with suppress(SandboxDied):  # `_receive` says so
        while True:
            await connection.say(Resize(size=await sizes.get()))


async def _feed(connection: Connection, window: threading.Semaphore) -> None:
    """Sends standard input to its end, no faster than the program takes it in."""
    blocks: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the window
    loop = asyncio.get_running_loop()

    def read() -> None:
        # A thread, because a file and a terminal cannot be waited for in one way; a daemon one,
        # because nobody can interrupt it when the program ends first.
        block = b"?"
        while block:
            window.acquire()
            block = b""
            with suppress(OSError):
                block = os.read(STDIN, BLOCK_BYTES)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(blocks.put_nowait, block)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    with suppress(SandboxDied):
        while block := await blocks.get():
            await connection.send(Kind.STDIN, block)
        await connection.send(Kind.STDIN, b"")
