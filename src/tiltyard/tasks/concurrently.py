"""Work on many things, a bounded number at a time: the one loop that checks and rollouts share."""

from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tiltyard.core.errors import UsageError

T = TypeVar("T")


async def for_each(
    things: Iterable[T], work: Callable[[int, T], Awaitable[None]], *, concurrency: int
) -> None:
    """Calls `work` with the place and the thing for each, at most `concurrency` at a time.

    The workers share one iterator, so no more things exist at a time than are being worked on. An
    error of one cancels the others. Raises UsageError when `concurrency` is not positive.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}.", fix="Give 1 or more.")
    waiting = enumerate(things)

    async def worker() -> None:
        for place, thing in waiting:
            await work(place, thing)

    async with TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
