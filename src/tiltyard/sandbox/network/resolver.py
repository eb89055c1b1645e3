"""Finding the addresses of names, outside the sandbox and off the event loop."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Protocol

from tiltyard.sandbox.network.addresses import Address, unmapped

LOOKUPS_MAX = 32
"""At once, of all sandboxes: `lookups` shares them out. One that hangs holds a thread until the C
library gives up, so the threads are our own."""
ADDRESSES_MAX = 8


class Resolver(Protocol):
    """Finds addresses."""

    async def resolve(self, name: str) -> tuple[Address, ...]:
        """The addresses of a name, best first; none when it has none or cannot be looked up.

        It returns only when it holds nothing any more: until then it has its sandbox's place,
        whether anybody waits for it or not. It is cancelled only at the end of the provider.
        """
        ...

    def close(self) -> None:
        """Gives up what is under way; idempotent."""
        ...


class SystemResolver:
    """Asks as every program of this machine does: its hosts file, then its name servers."""

    def __init__(self, look_up: Callable[[str], tuple[Address, ...]] | None = None) -> None:
        """`look_up` is what a thread does; None asks the C library."""
        self._look_up = _look_up if look_up is None else look_up
        self._threads = ThreadPoolExecutor(LOOKUPS_MAX, "tiltyard-resolver")

    async def resolve(self, name: str) -> tuple[Address, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._look_up, name)

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
