"""What the end of an execution meant. Pure; the facts come from the supervisor and the cgroup.

The program can choose its exit code and its output, nothing else here: an exit code of 137 is an
exit code, not an out-of-memory kill, because only the cgroup's own counter says that.
"""

import os
import signal
from dataclasses import dataclass

from tiltyard.core.execution import Reason
from tiltyard.sandbox.protocol import ExitFlag, RawExit


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Readings of a sandbox's cgroup, from outside. Counters only grow."""

    cpu_s: float | None
    """None where no cgroup accounts for CPU time."""
    memory_peak_bytes: int | None
    """None where no cgroup accounts for memory."""
    oom_kills: int = 0
    pids_refused: int = 0


CPU_CLOCK_S = 0.05
"""The clock that enforces CPU-time limits ticks coarsely: a kill may come this much early."""

_FORCED = {
    ExitFlag.ZYGOTE_DIED: (Reason.SANDBOX_DIED, "the zygote ended"),
    ExitFlag.WALL: (Reason.WALL_TIMEOUT, ""),
    ExitFlag.OUTPUT: (Reason.OUTPUT, ""),
    ExitFlag.INPUT: (Reason.KILLED, "it did not read what it was sent"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The meaning of an end."""

    reason: Reason
    exit_code: int | None
    signal: int | None
    detail: str = ""


def ending_of(raw: RawExit, *, before: Usage, after: Usage, cpu_limit_s: int) -> Ending:
    """Decides why an execution ended.

    `before` and `after` are readings around it; `cpu_limit_s` 0 means that it had none.
    """
    if ExitFlag.NOT_STARTED in raw.flags:
        detail = f"{raw.call}: {os.strerror(raw.status)}"
        return Ending(reason=Reason.START_FAILED, exit_code=None, signal=None, detail=detail)
    by_signal = os.WTERMSIG(raw.status) if os.WIFSIGNALED(raw.status) else None
    code = os.WEXITSTATUS(raw.status) if os.WIFEXITED(raw.status) else None
    reason, detail = _reason(raw, by_signal, code, before, after, cpu_limit_s)
    return Ending(reason=reason, exit_code=code, signal=by_signal, detail=detail)


def _reason(
    raw: RawExit,
    by_signal: int | None,
    code: int | None,
    before: Usage,
    after: Usage,
    cpu_limit_s: int,
) -> tuple[Reason, str]:
    failed = by_signal is not None or code != 0
    if failed and after.oom_kills > before.oom_kills:
        return Reason.OOM, ""
    for flag, meaning in _FORCED.items():
        if flag in raw.flags:
            return meaning
    if by_signal is not None:
        over = 0 < cpu_limit_s <= raw.cpu_s + CPU_CLOCK_S
        if by_signal == signal.SIGXCPU or (by_signal == signal.SIGKILL and over):
            return Reason.CPU_TIMEOUT, ""
        # Asked to end after it had ended by itself, it ended by itself.
        asked = by_signal == signal.SIGKILL and ExitFlag.KILLED in raw.flags
        return (Reason.KILLED if asked else Reason.SIGNAL), ""
    if failed and ExitFlag.DISK_FULL in raw.flags:
        return Reason.DISK, ""
    if failed and after.pids_refused > before.pids_refused:
        return Reason.PIDS, ""
    return Reason.EXIT, ""
