"""Finding the yard daemon, and starting one where there is none."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress

from tiltyard.cli.yard.connection import LIMIT_BYTES, Connection
from tiltyard.cli.yard.place import LOG, START_LOCK, Place
from tiltyard.cli.yard.wire import (
    VERSION,
    Done,
    Failed,
    Frame,
    Hello,
    Kind,
    WireError,
    parse_reply,
)
from tiltyard.core.errors import SandboxError, SandboxRefused, UsageError

HELLO_TIMEOUT_S = 20.0
START_TIMEOUT_S = 60.0
TRIES_MAX = 3
"""Daemons that may end in the very moment in which they are found."""
ANSWER_BYTES_MAX = 64 * 1024


async def connect(place: Place) -> Connection | None:
    """A connection on which the daemon has said hello; None when there is no daemon.

    Raises `SandboxError` when one is there that does not answer, or that is not the user's.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(place.socket_path, limit=LIMIT_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    connection = Connection(reader, writer)
    try:
        if await _greeted(connection):
            return connection
    except BaseException:
        await connection.close()
        raise
    await connection.close()
    return None


async def connect_or_start(place: Place) -> Connection:
    """As `connect`, starting a daemon first where there is none.

    Raises `SandboxRefused` when this machine gives no sandboxes.
    """
    for _ in range(TRIES_MAX):
        connection = await connect(place) or await _started(place)
        if connection is not None:
            return connection
    raise SandboxError(
        "the yard daemon ends as soon as it is started.",
        fix=f"see {place.path / LOG}, and `tiltyard doctor`.",
    )


async def _greeted(connection: Connection) -> bool:
    """False when it is just ending."""
    pid, uid = connection.peer
    if not connection.trusted:
        raise SandboxRefused(
            f"the yard's socket belongs to process {pid} of user {uid}.",
            fix="set TILTYARD_RUNTIME_DIR to a directory of your own.",
        )
    ended = f"end it, and its sandboxes with it: `kill {pid}`."
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            received = await connection.receive()
    except TimeoutError:
        raise SandboxError(f"the yard daemon, process {pid}, does not answer.", fix=ended) from None
    if received is None:
        return False
    hello = parse_reply(received)
    if not isinstance(hello, Hello):
        raise WireError(f"process {pid} is no yard daemon.", fix=ended)
    if hello.version != VERSION:
        raise UsageError(
            f"the yard daemon, process {pid}, is of another version of Tiltyard.", fix=ended
        )
    return True


async def _started(place: Place) -> Connection | None:
    lock = await place.lock(START_LOCK, timeout_s=START_TIMEOUT_S)
    try:
        connection = await connect(place)
        if connection is None:
            await _start(place, lock)
    except BaseException:
        os.close(lock)
        raise
    # Somebody else started one while we waited: then the lock is ours alone to remove.
    if connection is not None:
        place.remove(START_LOCK)
    os.close(lock)
    return connection or await connect(place)


async def _start(place: Place, lock: int) -> None:
    """Starts a daemon, which inherits the lock, and waits until it is ready."""
    reading, writing = os.pipe()
    log = place.open_file(LOG, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
    argv = [sys.executable, "-m", "tiltyard.cli.yard", str(place.path.absolute()), str(lock)]
    try:
        # An exec, never a fork that goes on as Python: this process has threads. Nobody waits for
        # it: it outlives this process, whose end leaves it to init.
        process = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec, once
            argv,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=log,
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
        os.close(log)
    answer = await _line(reading)
    if not answer:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        raise SandboxError(
            f"the yard daemon did not start (exit code {process.returncode}).",
            fix=f"see {place.path / LOG}.",
        )
    reply = parse_reply(Frame(kind=Kind.MESSAGE, body=answer))
    process.returncode = 0  # not ours to wait for
    if isinstance(reply, Failed):
        raise SandboxRefused(reply.message, fix=reply.fix)
    if not isinstance(reply, Done):
        raise WireError("the yard daemon said something strange at its start.")


async def _line(fd: int) -> bytes:
    reader = asyncio.StreamReader(limit=ANSWER_BYTES_MAX)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return await reader.readline()
    except TimeoutError:
        raise SandboxError(
            f"the yard daemon was not ready after {START_TIMEOUT_S:.0f} s.",
            fix="see its log in the runtime directory.",
        ) from None
    finally:
        transport.close()
