"""The daemon's life: from the lock that makes it the only one to the last file that it removes."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from tiltyard.cli.yard.connection import LIMIT_BYTES, Connection
from tiltyard.cli.yard.kept import Kept
from tiltyard.cli.yard.place import DAEMON_LOCK, LOG, RECORD, SOCKET, START_LOCK, Place
from tiltyard.cli.yard.record import recorded_rows, write_record
from tiltyard.cli.yard.service import Service
from tiltyard.cli.yard.wire import Row
from tiltyard.wiring import open_provider

IDLE_S = 60.0
"""How long it stays without a sandbox, for the next command's sake."""
LOCK_TIMEOUT_S = 20.0
"""A daemon that is ending needs no longer than that for its sandboxes."""
BACKLOG = 64


async def serve(place: Place, *, ready: Callable[[], None], idle_s: float = IDLE_S) -> None:
    """Serves until it is told to end, or nothing was left for `idle_s`.

    `ready` is called when commands can connect. Raises `SandboxRefused` when this machine gives no
    sandboxes. Leaves nothing behind, but for the record of sandboxes that an earlier one lost.
    """
    lock = await place.lock(DAEMON_LOCK, timeout_s=LOCK_TIMEOUT_S)
    lost = recorded_rows(place)
    try:
        lost = await _serve(place, lost, ready=ready, idle_s=idle_s)
    finally:
        place.remove(SOCKET, LOG)
        if lost:
            write_record(place, os.getpid(), lost)
        else:
            place.remove(RECORD)
        place.remove(DAEMON_LOCK)
        os.close(lock)


async def _serve(
    place: Place, lost: list[Row], *, ready: Callable[[], None], idle_s: float
) -> list[Row]:
    """Returns those of an earlier daemon that nobody has forgotten yet."""
    async with open_provider() as provider:
        kept: Kept

        def changed() -> None:
            service.wake()
            write_record(place, os.getpid(), kept.rows())

        try:
            async with asyncio.TaskGroup() as group:
                kept = Kept(provider, group=group, lost=lost, changed=changed)
                service = Service(kept)
                changed()
                server = await _listen(place, service, group)
                ready()
                await _until_told(service, idle_s)
                # From here on commands find no socket, and wait for the lock.
                place.remove(SOCKET)
                server.close()
                raise _End  # noqa: TRY301 - it goes through the group
        except* _End:
            pass
        return kept.lost


class _End(Exception):
    """Takes the tasks of all connections and deadlines along."""


async def _listen(place: Place, service: Service, connections: asyncio.TaskGroup) -> asyncio.Server:
    place.remove(SOCKET)  # of one that was killed: we have the lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place.socket_path)
    listener.listen(BACKLOG)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connections.create_task(service.serve(Connection(reader, writer)))
        except RuntimeError:
            writer.close()  # it came while we end; its command begins again

    return await asyncio.start_unix_server(connected, sock=listener, limit=LIMIT_BYTES)


async def _until_told(service: Service, idle_s: float) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, service.stopped.set)
    try:
        async with asyncio.TaskGroup() as group:
            waits = {
                group.create_task(service.stopped.wait()),
                group.create_task(service.until_idle(idle_s)),
            }
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def release_start_lock(place: Place, fd: int) -> None:
    """Lets the next command in. The file goes first, while the lock on it is still held."""
    place.remove(START_LOCK)
    with suppress(OSError):
        os.close(fd)
