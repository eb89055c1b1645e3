"""Ending the daemon, and waiting until its process is gone."""

import asyncio
import os
from pathlib import Path

from tiltyard.cli.yard.client import asked, replied
from tiltyard.cli.yard.place import opened
from tiltyard.cli.yard.record import forget_lost
from tiltyard.cli.yard.wire import Done, Stop
from tiltyard.core.errors import SandboxError

END_TIMEOUT_S = 30.0


async def stop(directory: Path) -> bool:
    """Ends the daemon with every sandbox; False when there was none. Raises `SandboxError`."""
    with opened(directory) as place:
        async with asked(place, Stop()) as connection:
            if connection is None:
                forget_lost(place, None)
                return False
            pid, _ = connection.peer
            # While it is connected its pid is its own.
            process = os.pidfd_open(pid)
            try:
                await replied(connection, Done)
                await connection.close()
                await _gone(process, pid)
            finally:
                os.close(process)
            return True


async def _gone(process: int, pid: int) -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(process, gone.set)
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await gone.wait()
    except TimeoutError:
        raise SandboxError(
            f"the yard daemon, process {pid}, was told to end {END_TIMEOUT_S:.0f} s ago.",
            fix=f"`kill -9 {pid}`; its sandboxes end with it.",
        ) from None
    finally:
        loop.remove_reader(process)
