"""Finding the addresses of names, outside the sandbox and off the event loop."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Protocol

from tiltyard.sandbox.network.addresses import Address, unmapped

THREADS_MAX = 8
"""A look-up that hangs holds a thread until the C library gives up, so they are few and our own."""
ADDRESSES_MAX = 8


class Resolver(Protocol):
    """Finds addresses."""

    async def resolve(self, name: str) -> tuple[Address, ...]:
        """The addresses of a name, best first; none when it has none or cannot be looked up."""
        ...

    def close(self) -> None:
        """Gives up what is under way; idempotent."""
        ...


class SystemResolver:
    """Asks as every program of this machine does: its hosts file, then its name servers."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, "tiltyard-resolver")

    async def resolve(self, name: str) -> tuple[Address, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, name)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(name: str) -> tuple[Address, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    # A zone belongs to a link-local address, which no rule allows.
    addresses = (unmapped(ip_address(str(place[0]).partition("%")[0])) for *_, place in found)
    return tuple(dict.fromkeys(addresses))[:ADDRESSES_MAX]
