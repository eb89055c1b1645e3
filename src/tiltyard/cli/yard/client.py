"""Asking the yard daemon, or answering for it when there is none."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from tiltyard.cli.yard.connection import Connection
from tiltyard.cli.yard.place import Place, opened
from tiltyard.cli.yard.record import forget_lost, lost_error, lost_rows, unknown_error
from tiltyard.cli.yard.start import connect, connect_or_start
from tiltyard.cli.yard.wire import (
    Copied,
    Create,
    Done,
    Ended,
    Failed,
    List,
    Remove,
    Reply,
    Request,
    Row,
    Seen,
    Table,
    WireError,
    asked_for,
    parse_reply,
)
from tiltyard.core.errors import SandboxDied, SandboxError, UsageError

R = TypeVar("R", Table, Done, Ended, Seen, Copied)


async def replied(connection: Connection, kind: type[R]) -> R:
    """Waits for one reply. Raises what the daemon could not do."""
    received = await connection.receive()
    if received is None:
        raise SandboxDied("the yard daemon has ended.", fix="see `tiltyard sandbox ls`.")
    reply: Reply = parse_reply(received)
    if isinstance(reply, Failed):
        raise failure(reply)
    if not isinstance(reply, kind):
        raise WireError(f"the yard daemon answered with {reply.say}.")
    return reply


def failure(failed: Failed) -> UsageError | SandboxError:
    """The error that the daemon tells of."""
    kind = UsageError if failed.usage else SandboxError
    return kind(failed.message, fix=failed.fix)


@asynccontextmanager
async def asked(place: Place, request: Request) -> AsyncIterator[Connection | None]:
    """A connection on which something was asked for; None when there is no daemon."""
    connection = await connect(place)
    if connection is None:
        yield None
        return
    try:
        await connection.say(request)
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def using(directory: Path, id_: str, request: Request) -> AsyncIterator[Connection]:
    """A connection on which something of a sandbox was asked for.

    Raises `SandboxDied` for one that was lost with its daemon, `UsageError` for an unknown id.
    """
    with opened(directory) as place:
        async with asked(place, request) as connection:
            if connection is None:
                lost = any(row.id == id_ for row in lost_rows(place))
                raise lost_error(id_) if lost else unknown_error(id_)
            yield connection


async def create(directory: Path, request: Create) -> Row:
    """Makes a sandbox, with a daemon that keeps it. Raises `SandboxError`."""
    with opened(directory) as place:
        connection = await connect_or_start(place)
        try:
            await connection.say(request)
            return (await replied(connection, Table)).rows[0]
        finally:
            await connection.close()


async def rows(directory: Path) -> list[Row]:
    """Every sandbox, also those that were lost with a daemon that was killed."""
    with opened(directory) as place:
        async with asked(place, List()) as connection:
            if connection is None:
                return lost_rows(place)
            return (await replied(connection, Table)).rows


async def remove(directory: Path, ids: Iterable[str] | None) -> list[Row]:
    """Ends sandboxes, all of them for None. Raises `UsageError` for an unknown id."""
    wanted = None if ids is None else list(dict.fromkeys(ids))
    with opened(directory) as place:
        with asked_for():
            request = Remove(ids=wanted)
        async with asked(place, request) as connection:
            if connection is not None:
                return (await replied(connection, Table)).rows
        known = {row.id for row in lost_rows(place)}
        for id_ in wanted or ():
            if id_ not in known:
                raise unknown_error(id_)
        return forget_lost(place, wanted)
