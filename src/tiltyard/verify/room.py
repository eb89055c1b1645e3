"""What opens and closes with its parts: a mode, a measure, the verifier itself."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self


class Part(Protocol):
    """Something that holds sandboxes while it is open."""

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...


class Room:
    """Enters its parts in order and leaves them in the opposite one, whatever happens."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for part in self._parts:
            await self._opened.enter_async_context(part)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return sum(part.sandboxes for part in self._parts)
