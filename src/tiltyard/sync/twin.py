"""What the twins have in common: the asynchronous object, and the loop that its calls run on.

The twins themselves are made from the asynchronous classes by `scripts/make_twins.py`. A property
and a plain method run on the loop as well, so nothing is read while it changes. When everything is
closed the loop is gone: coroutines then raise `SandboxClosed`, and the rest is still answered.

A context manager is entered and left by one and the same task, as `asyncio.TaskGroup` and
`asyncio.timeout` demand, with the caller's block in between.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tiltyard.core.errors import SandboxClosed
from tiltyard.sync.portal import Call, Portal, lease, release

A_co = TypeVar("A_co", covariant=True)
C_co = TypeVar("C_co", bound=AbstractAsyncContextManager[object], covariant=True)
T = TypeVar("T")
U = TypeVar("U")
_Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


def as_it_is(value: T, portal: Portal) -> T:  # noqa: ARG001 - for what needs no twin
    return value


class Twin(Generic[A_co]):
    """An asynchronous object, to be used without `await`, from any thread."""

    def __init__(self, real: A_co, portal: Portal | None = None) -> None:
        """`portal` None: it was not opened yet."""
        self._real = real
        self._portal = portal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Twin) and self._real is other._real

    def __hash__(self) -> int:
        return hash(id(self._real))

    def __repr__(self) -> str:
        return f"<twin of {self._real!r}>"

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._opened().call(make)

    def _read(self, get: Callable[[], T]) -> T:
        async def once() -> T:
            return get()

        if self._portal is None or not self._portal.open:
            # Its loop is gone, so nobody else uses it; for what asks a loop for the time, any does.
            return get() if _in_a_loop() else asyncio.run(once())
        return self._portal.call(once)

    def _around(
        self,
        make: Callable[[], AbstractAsyncContextManager[T]],
        wrap: Callable[[T, Portal], U],
    ) -> AbstractContextManager[U]:
        return _Around(self._opened, make, wrap)

    def _each(self, items: AsyncIterator[T], wrap: Callable[[T, Portal], U]) -> "_Each[T, U]":
        return _Each(self._opened(), items, wrap)

    def _opened(self) -> Portal:
        if self._portal is None:
            raise SandboxClosed("it is not open yet.", fix="use it inside its `with`.")
        return self._portal


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class OpenTwin(Twin[C_co]):
    """One that is used with `with`."""

    _block: "_Block[object] | None" = None
    _leased = False

    def __enter__(self) -> Self:
        if self._portal is None:
            self._portal = lease()
            self._leased = True
        block = _Block(self._portal, self._real)
        try:
            block.enter()
        except BaseException:
            self._give_back()
            raise
        self._block = block
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return self._block is not None and self._block.leave((kind, error, trace))
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._leased and self._portal is not None:
            self._leased = False
            release(self._portal)


class _Around(AbstractContextManager[U], Generic[T, U]):
    """A method's context manager."""

    def __init__(
        self,
        portal: Callable[[], Portal],
        make: Callable[[], AbstractAsyncContextManager[T]],
        wrap: Callable[[T, Portal], U],
    ) -> None:
        self._portal = portal
        self._make = make
        self._wrap = wrap
        self._block: _Block[T] | None = None

    def __enter__(self) -> U:
        portal = self._portal()
        block = _Block(portal, self._make())
        value = block.enter()
        self._block = block
        return self._wrap(value, portal)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._block is not None and self._block.leave((kind, error, trace))


class _Each(Generic[T, U]):
    """A method's asynchronous iterator."""

    def __init__(
        self, portal: Portal, items: AsyncIterator[T], wrap: Callable[[T, Portal], U]
    ) -> None:
        self._portal = portal
        self._items = items
        self._wrap = wrap

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> U:
        async def following() -> T:
            return await anext(self._items)

        try:
            return self._wrap(self._portal.call(following), self._portal)
        except StopAsyncIteration:
            raise StopIteration from None


class _Block(Generic[T]):
    """An asynchronous context manager around a block of a thread."""

    def __init__(self, portal: Portal, context: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._context = context
        self._entered: Future[T] = Future()
        self._left: asyncio.Future[_Raised] | None = None
        self._call = Call(self._hold)

    def enter(self) -> T:
        """Returns what the context manager gives. Interrupted, nothing of it stays open."""
        # Also when it is cancelled before its first step.
        self._call.result.add_done_callback(self._ended)
        return self._portal.wait(self._call, self._entered)

    def leave(self, raised: _Raised) -> bool:
        """True when the context manager took the block's exception.

        An interruption is raised when everything is closed: nothing is left half-way.
        """
        if self._portal.foreign:
            return False
        try:
            self._portal.post(lambda: self._leave(raised))
            return self._call.result.result()
        except BaseException:
            if not self._call.result.done() and self._portal.post(lambda: self._leave(raised)):
                with suppress(asyncio.CancelledError, Exception):
                    self._call.result.result()
            raise

    def _leave(self, raised: _Raised) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(raised)

    def _ended(self, result: "Future[bool]") -> None:
        if not self._entered.done():
            self._entered.set_exception(result.exception() or SandboxClosed("it was closed."))

    async def _hold(self) -> bool:
        self._left = asyncio.get_running_loop().create_future()
        value = await self._context.__aenter__()
        self._entered.set_result(value)
        try:
            raised = await self._left
        except asyncio.CancelledError as error:
            await self._context.__aexit__(type(error), error, error.__traceback__)
            raise
        return bool(await self._context.__aexit__(*raised))
