"""What is found out once about a suite with its reference and then remembered, for every mode."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

SUITES_KEPT_MAX = 1_000
"""Kept for the suites seen last; what is known of an older one is found again."""

Known = TypeVar("Known")


class Remembered(Generic[Known]):
    """Results by the digest of all that they depend on; each is found by one caller at a time.

    That a reference passes is remembered; that it fails is not, because on a machine that is
    starved of CPU a right reference may run out of time.
    """

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._finding: dict[str, tuple[asyncio.Lock, int]] = {}
        """Only what is being found now, and how many wait for it."""

    async def get(self, key: str, find: Callable[[], Awaitable[Known]]) -> Known:
        """What is known under `key`, found by `find` when nothing is. Raises what `find` does."""
        if key in self._known:
            return self._known[key]
        lock, waiting = self._finding.get(key, (asyncio.Lock(), 0))
        self._finding[key] = lock, waiting + 1
        try:
            async with lock:
                if key not in self._known:
                    self._known[key] = await find()
                    while len(self._known) > SUITES_KEPT_MAX:
                        self._known.pop(next(iter(self._known)))
                return self._known[key]
        finally:
            lock, waiting = self._finding.pop(key)
            if waiting > 1:
                self._finding[key] = lock, waiting - 1


def digest_of(*parts: bytes) -> str:
    """One digest of several byte strings, each told apart from its neighbours."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
