"""Work on the host's own files, done beside the event loop because a disk may keep it waiting."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Does file work of the host off the event loop; when cancelled, waits for its end first."""
    done = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((done,))
        done.exception()
        raise
