"""What the tests do to sandboxes while something is verified in them."""

import asyncio
import os
import signal
from contextlib import suppress

from sandbox.processes import children, supervisors


async def kill_runs(*, times: int, depth: int = 2) -> int:
    """Kills the supervisors of sandboxes in which something runs, so many times.

    Something runs where there are processes at `depth` below the supervisor: 2 in a cell, whose
    kept interpreter is always there, and 1 in a sandbox in which a program is started.
    """
    killed = 0
    while killed < times:
        await asyncio.sleep(0)
        for supervisor in supervisors():
            if killed < times and _below(supervisor, depth):
                os.kill(supervisor, signal.SIGKILL)
                killed += 1
                while children(supervisor):  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(0)
    return killed


async def kill_all_runs(judging: "asyncio.Task[object]", *, depth: int = 2) -> None:
    """Kills every one, until the judgement has come to its end."""
    while not judging.done():
        await asyncio.sleep(0)
        for supervisor in supervisors():
            if _below(supervisor, depth):
                with suppress(ProcessLookupError):  # it is gone with what we killed before
                    os.kill(supervisor, signal.SIGKILL)


def _below(pid: int, depth: int) -> bool:
    """Whether there are processes so many levels below one."""
    level = [pid]
    for _ in range(depth):
        level = [child for each in level for child in children(each)]
    return bool(level)
