"""Waiting for a plain socket without taking anything from it."""

import asyncio
import socket


async def readable(waited: socket.socket) -> None:
    """Returns when there is something to receive or to accept.

    asyncio's own `sock_accept` would lose a connection when it is cancelled in the moment of its
    coming, and `sock_recv` would take its chunk in a turn of the loop that is not its own.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(waited.fileno(), _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(waited.fileno())


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
