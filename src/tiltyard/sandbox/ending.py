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


NOTHING_USED = Usage(cpu_s=0.0, memory_peak_bytes=0)


def used_since(before: Usage, now: Usage) -> Usage:
    """What was used between two readings of the same counters."""
    if now.cpu_s is None or now.memory_peak_bytes is None:
        return now
    return Usage(
        cpu_s=now.cpu_s - (before.cpu_s or 0.0),
        memory_peak_bytes=max(now.memory_peak_bytes - (before.memory_peak_bytes or 0), 0),
        oom_kills=now.oom_kills - before.oom_kills,
    )


CPU_CLOCK_S = 0.05
"""The clock that enforces CPU-time limits ticks coarsely: a kill may come this much early."""

_FORCED = {
    ExitFlag.ZYGOTE_DIED: (Reason.SANDBOX_DIED, "the zygote ended"),
    ExitFlag.WALL: (Reason.WALL_TIMEOUT, ""),
    ExitFlag.IDLE: (Reason.IDLE_TIMEOUT, ""),
    ExitFlag.OUTPUT: (Reason.OUTPUT, ""),
    ExitFlag.INPUT: (Reason.KILLED, "it did not read what it was sent"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The meaning of an end."""

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A supervisor that did not end an execution at its deadline."""

    since_start_s: float
    cpus: float
    """How many the sandbox may use."""
    cpu_used_s: float | None
    """What it used since the start; None where no cgroup counts it."""


STARVED_SHARE = 0.5
"""A sandbox that used this share of its CPUs until past its deadline was busy, not stuck."""


def ending_of(raw: RawExit, *, before: Usage, after: Usage, cpu_limit_s: int) -> Ending:
    """Decides why an execution ended.

    `before` and `after` are readings around it; `cpu_limit_s` 0 means that it had none.
    """
    if ExitFlag.NOT_STARTED in raw.flags:
        detail = f"{raw.call}: {os.strerror(raw.status)}"
        return Ending(reason=Reason.START_FAILED, detail=detail)
    by_signal = os.WTERMSIG(raw.status) if os.WIFSIGNALED(raw.status) else None
    code = os.WEXITSTATUS(raw.status) if os.WIFEXITED(raw.status) else None
    reason, detail = _reason(raw, by_signal, code, before, after, cpu_limit_s)
    return Ending(reason=reason, exit_code=code, signal=by_signal, detail=detail)


def ending_of_lost(*, before: Usage, after: Usage, overdue: Overdue | None, died: bool) -> Ending:
    """Decides what became of an execution whose sandbox was lost under it.

    `overdue` is None unless the sandbox was given up on for this execution's sake. `died` is True
    when the sandbox was seen from outside to have ended, by itself or at its owner's wish: then
    what ran in it ended with it, unfinished. Else only the connection ended, or was ended by us:
    the program may have finished before, and that nobody said so is no evidence.

    A program must not be able to make its own failure look like ours: memory that it used up, or
    processes that leave the supervisor no time to run, are its own doing, and both show in the
    cgroup.
    """
    if after.oom_kills > before.oom_kills:
        return Ending(reason=Reason.OOM, detail="the whole sandbox ran out of memory")
    if overdue is not None and overdue.cpu_used_s is not None:
        share = overdue.cpu_used_s / (overdue.since_start_s * overdue.cpus)
        if share >= STARVED_SHARE:
            return Ending(
                reason=Reason.WALL_TIMEOUT,
                detail="its processes left the sandbox's supervisor no time to end it",
            )
    if overdue is not None:
        return Ending(reason=Reason.OUTCOME_UNKNOWN, detail="the supervisor did not answer")
    if not died:
        return Ending(reason=Reason.OUTCOME_UNKNOWN, detail="the connection to its sandbox broke")
    return Ending(reason=Reason.SANDBOX_DIED)


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
