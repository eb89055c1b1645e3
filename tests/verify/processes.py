"""What the tests do to sandboxes while something is verified in them."""

import asyncio
import os
import signal

from sandbox.processes import children, supervisors


async def kill_runs(*, times: int) -> int:
    """Kills the supervisors of cells in which something runs, so many times."""
    killed = 0
    while killed < times:
        await asyncio.sleep(0)
        for supervisor in supervisors():
            if killed < times and any(children(zygote) for zygote in children(supervisor)):
                os.kill(supervisor, signal.SIGKILL)
                killed += 1
                while children(supervisor):  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(0)
    return killed
