"""The course of one execution on the host's side, from its start to what its end meant.

The supervisor inside keeps every deadline; this keeps them a second time, with some grace: a
supervisor that does not end an execution at its deadline loses its sandbox. It needs no task of its
own, so a program may run on while nobody waits for it, and its end is read from the cgroup in the
same step in which it becomes known.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.ending import Ending, Overdue, Usage, ending_of, ending_of_lost
from tiltyard.sandbox.hold import Hold
from tiltyard.sandbox.protocol import FrameType, ProgramLimits, RawExit
from tiltyard.sandbox.supervisor import Execution, Supervisor

DEADLINE_GRACE_S = 5.0
"""How much later than the supervisor the host ends an execution, sandbox and all."""
LATE_S = 1.0
"""A timer that comes this late shows that this process had no time: nobody is blamed for it."""
DEATH_SEEN_S = 1.0
"""How long after its connection ended a sandbox is waited for, to be seen to have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How an execution ended, and what is known about it from outside."""

    ending: Ending
    raw: RawExit | None
    """The supervisor's facts; None when the sandbox was lost."""
    cpu_s: float
    """By the cgroup, with everything that the program started; else by the main process."""
    memory_peak_bytes: int
    wall_s: float


class Course:
    """Watches one execution of a sandbox."""

    def __init__(
        self,
        execution: Execution,
        *,
        supervisor: Supervisor,
        hold: Hold,
        cpus: float,
        limits: ProgramLimits,
        idle_s: float,
        before: Usage,
    ) -> None:
        """`before` is a reading from before its start; `idle_s` 0: it may be silent for ever."""
        self._loop = asyncio.get_running_loop()
        self._execution = execution
        self._supervisor = supervisor
        self._hold = hold
        self._cpus = cpus
        self._limits = limits
        self._idle_s = idle_s
        self._before = before
        self._after: Usage | None = None
        self._overdue: Overdue | None = None
        self._settled: Settled | None = None
        self._lost: Settled | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._end_s = float("inf")
        if limits.wall_s:
            self._end_s = max(execution.started_s + limits.wall_s, self._loop.time())
        execution.at_end(self._at_end)
        if self._after is None:
            self._arm(self._due_s())

    @property
    def ended(self) -> bool:
        return self._execution.ended.done()

    def kill(self) -> None:
        """Asks for its end. That must come about, or the sandbox is given up."""
        if self.ended:
            return
        self._execution.kill()
        self._end_s = min(self._end_s, self._loop.time())
        self._arm(self._due_s())

    def put_off(self, time_s: float) -> None:
        """Moves its deadlines; as the supervisor does, which is what really counts."""
        self._end_s += time_s
        self._execution.heard_s = self._loop.time()

    async def settled(self) -> Settled:
        """Waits for its end and tells what it was. Cancelling stops only the waiting."""
        if not self.ended:
            waiter = self._loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        if self._lost is not None:
            return self._lost
        if self._settled is None:
            lost = await self._settle_lost()
            if self._lost is None:
                self._lost = lost
            return self._lost
        return self._settled

    def _due_s(self) -> float:
        silent_s = self._execution.heard_s + self._idle_s if self._idle_s else float("inf")
        return min(self._end_s, silent_s) + DEADLINE_GRACE_S

    def _arm(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when_s != float("inf"):
            self._timer = self._loop.call_at(when_s, self._check, when_s)

    def _check(self, when_s: float) -> None:
        now = self._loop.time()
        due_s = self._due_s()
        if now < due_s:
            self._arm(due_s)
        elif self._supervisor.paused or now - when_s > LATE_S:
            self._arm(now + DEADLINE_GRACE_S)
        else:
            self._after = self._hold.read_usage(reset_peak=False)
            self._overdue = Overdue(
                since_start_s=now - self._execution.started_s,
                cpus=self._cpus,
                cpu_used_s=_since(self._before.cpu_s, self._after.cpu_s),
            )
            self._supervisor.give_up()
            self._hold.destroy()

    def _at_end(self, raw: RawExit | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        own = self._count_group(raw.group) if raw is not None and raw.group else None
        after = own or self._after or self._hold.read_usage(reset_peak=False)
        self._after = after
        if raw is not None:
            ending = ending_of(
                raw, before=self._before, after=after, cpu_limit_s=self._limits.cpu_s
            )
            self._settled = self._told(ending, raw, after)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _count_group(self, number: int) -> Usage | None:
        """What it used by its own cgroup, in which nothing else is counted; None when that cannot
        be read."""
        own = self._hold.read_group(number)
        self._supervisor.send_later(FrameType.RELEASE, number)
        if own.cpu_s is None or own.memory_peak_bytes is None:
            return None
        self._before = replace(self._before, cpu_s=0.0, memory_peak_bytes=0, oom_kills=0)
        return replace(own, pids_refused=self._hold.read_pids_refused())

    async def _settle_lost(self) -> Settled:
        """Gives a lost sandbox up, and decides by what was counted until it was gone."""
        given_up = self._overdue is not None or self._supervisor.gave_up
        died = not given_up and await _seen_gone(self._hold)
        self._supervisor.abort()
        self._hold.destroy()
        with suppress(SandboxError):  # whoever closes it is told that it does not go
            await self._hold.gone()
        last = self._hold.read_usage(reset_peak=False)
        after = self._after or last
        after = replace(after, oom_kills=max(after.oom_kills, last.oom_kills))
        ending = ending_of_lost(before=self._before, after=after, overdue=self._overdue, died=died)
        return self._told(ending, None, after)

    def _told(self, ending: Ending, raw: RawExit | None, after: Usage) -> Settled:
        cpu_s = _since(self._before.cpu_s, after.cpu_s)
        peak = after.memory_peak_bytes or 0
        if raw is not None and peak <= (self._before.memory_peak_bytes or 0):
            # An earlier peak, which not every kernel lets us start anew: the main process's own.
            peak = raw.memory_peak_bytes
        return Settled(
            ending=ending,
            raw=raw,
            cpu_s=cpu_s if cpu_s is not None else raw.cpu_s if raw else 0.0,
            memory_peak_bytes=peak,
            wall_s=raw.wall_s if raw else self._loop.time() - self._execution.started_s,
        )


def _since(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(after - before, 0.0)


async def _seen_gone(hold: Hold) -> bool:
    """Whether a sandbox is seen to have ended; silence alone does not show that."""
    try:
        async with asyncio.timeout(DEATH_SEEN_S):
            await hold.gone()
    except (TimeoutError, SandboxError):
        return False
    return True
