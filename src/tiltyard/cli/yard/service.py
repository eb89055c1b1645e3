"""What the daemon does for one connection after the other, and how long it has something to do."""

import asyncio
import os
from typing import assert_never

import structlog

from tiltyard.cli.yard.connection import Connection
from tiltyard.cli.yard.files import serve_file
from tiltyard.cli.yard.kept import Kept
from tiltyard.cli.yard.programs import run_program
from tiltyard.cli.yard.wire import (
    VERSION,
    Create,
    Done,
    Download,
    Exec,
    Failed,
    Hello,
    List,
    Look,
    Read,
    Remove,
    Request,
    Resize,
    Stop,
    Table,
    Upload,
    WireError,
    Write,
    parse_request,
)
from tiltyard.core.errors import SandboxDied, SandboxError, TaskError, TiltyardError, UsageError

CONNECTIONS_MAX = 128
REQUEST_TIMEOUT_S = 10.0

_log = structlog.get_logger(__name__)


class Service:
    """Answers requests about the sandboxes that are kept."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._connections = 0
        self._changed = asyncio.Event()
        self.stopped = asyncio.Event()
        """Somebody asked for the daemon's end."""

    def wake(self) -> None:
        """Something came or went."""
        self._changed.set()

    async def until_idle(self, idle_s: float) -> None:
        """Returns when for `idle_s` there was neither a sandbox nor a connection."""
        while True:
            self._changed.clear()
            if self._connections or not self._kept.empty:
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout(idle_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def serve(self, connection: Connection) -> None:
        """Serves one connection to its end. Raises nothing but cancellation."""
        self._connections += 1
        self.wake()
        try:
            await self._serve(connection)
            await connection.part()
        except SandboxDied:
            pass  # the client went away, which ends what it asked for
        except Exception as error:  # noqa: BLE001 - the top of a connection's task
            _log.exception("request_failed", error=str(error))
        finally:
            self._connections -= 1
            self.wake()
            await connection.close()

    async def _serve(self, connection: Connection) -> None:
        if not connection.trusted:
            _log.warning("stranger_refused", uid=connection.peer[1])
            return
        await connection.say(Hello(version=VERSION, pid=os.getpid()))
        try:
            if self._connections > CONNECTIONS_MAX:
                raise UsageError(f"{CONNECTIONS_MAX} commands are using the yard daemon already.")
            request = await self._request(connection)
            if request is not None:
                await self._answer(request, connection)
        except (TiltyardError, ValueError) as error:
            await connection.say(_failed(error))

    async def _request(self, connection: Connection) -> Request | None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                received = await connection.receive()
        except TimeoutError:
            raise WireError(f"no request came within {REQUEST_TIMEOUT_S:.0f} s.") from None
        return None if received is None else parse_request(received)

    async def _answer(self, request: Request, connection: Connection) -> None:
        match request:
            case Create():
                # When the command is stopped meanwhile, nothing of it stays.
                row = await connection.unless_gone(self._kept.create(request))
                await connection.say(Table(rows=[row]))
            case Exec() | Write() | Read() | Look() | Upload() | Download():
                sandbox = self._kept.find(request.id)
                try:
                    if isinstance(request, Exec):
                        await run_program(sandbox, request, connection)
                    else:
                        await serve_file(sandbox, request, connection)
                except SandboxError as error:
                    # The user knows it by another id than its provider.
                    error.message = error.message.replace(str(sandbox.id), request.id, 1)
                    raise
            case List():
                await connection.say(Table(rows=self._kept.rows()))
            case Remove():
                await connection.say(Table(rows=await self._kept.remove(request.ids)))
            case Stop():
                await self._kept.remove(None)
                await connection.say(Done())
                self.stopped.set()
            case Resize():
                raise WireError("a size came where no program runs.")
            case _:
                assert_never(request)


def _failed(error: Exception) -> Failed:
    if isinstance(error, TiltyardError):
        usage = isinstance(error, (UsageError, TaskError))
        return Failed(message=error.message, fix=error.fix, usage=usage)
    return Failed(message=f"{error}.", fix=None, usage=True)
