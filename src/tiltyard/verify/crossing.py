"""What every mode needs at the trusted end of a run's channel: patience, frames, and what an end
says of whoever was inside."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tiltyard.core.execution import Reason
from tiltyard.core.values import Value
from tiltyard.core.verdict import CheckStatus
from tiltyard.sandbox.ending import Ending
from tiltyard.sandbox.zygotes import Run
from tiltyard.verify.evidence import plain_lines
from tiltyard.verify.split.inside import codec

Argument = TypeVar("Argument")
Result = TypeVar("Result")

HANG_GRACE_S = 5.0
"""After a run's own deadline; past this the sandbox, not the solution, is at fault."""
END_GRACE_S = 2.0
LARGE_BYTES = 8 * 1024
"""A value of more than this is worked on beside the event loop, which must not wait for it."""

STATUS_OF = {
    Reason.EXIT: CheckStatus.NO_REPLY,
    Reason.KILLED: CheckStatus.NO_REPLY,
    Reason.SIGNAL: CheckStatus.CRASH,
    Reason.WALL_TIMEOUT: CheckStatus.TIMEOUT,
    Reason.CPU_TIMEOUT: CheckStatus.TIMEOUT,
    Reason.IDLE_TIMEOUT: CheckStatus.TIMEOUT,
    Reason.OOM: CheckStatus.OOM,
    Reason.OUTPUT: CheckStatus.OUTPUT_LIMIT,
    Reason.DISK: CheckStatus.NO_REPLY,
    Reason.PIDS: CheckStatus.NO_REPLY,
}
"""What a run's end says of the solution in it. Other ends are losses of ours."""


def framed(message: Value) -> bytes:
    """A message as a run reads it. Raises `codec.BadValueError` when it cannot cross."""
    return codec.frame(codec.encode(message))


def words_of(ending: Ending, run: Run) -> str:
    """How a run ended and the last that it said, for evidence."""
    ended = {
        Reason.SIGNAL: f"ended by signal {ending.signal}",
        Reason.EXIT: f"exited with code {ending.exit_code} without an answer",
    }.get(ending.reason, f"ended: {ending.reason}")
    last = plain_lines(run.stderr.result().text.strip()[-300:])
    return f"{ended}; last output: {last}" if last else ended


async def beside_the_loop(
    size_bytes: int, work: Callable[[Argument], Result], argument: Argument
) -> Result:
    """Calls `work(argument)`, in a thread when what it is about is large."""
    if size_bytes <= LARGE_BYTES:
        return work(argument)
    return await asyncio.to_thread(work, argument)
