"""Several systems measured against each other, in turns, so that the machine's noise hits all.

Theory of operation. The systems take short slices in a new random order each round. In a slice
some workers repeat one operation; its latency is what its caller waited. A system may have work
left when an operation has returned (a pool makes the next sandbox). That work is waited for before
the next system's slice, so it disturbs nobody else, and it counts into the operations a second. In
a *paced* race it is waited for after every operation, so that each meets a system at rest.
"""

import random
import time
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from board import Board

Act = Callable[[], Awaitable[None]]

SLICE_S = 0.2
SLICES_MIN = 3
"""A shorter race gets shorter slices, so that it still has about this many rounds."""


class PeerFailed(Exception):
    """A system that is not ours cannot do it on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One of the systems of a race, ready to work."""

    name: str
    once: Act
    """One whole operation. Raises unless it did what it should; a peer raises PeerFailed."""
    settle: Act | None = None
    """Waits for what `once` leaves to be done; None when it leaves nothing."""
    peer: bool = False


@dataclass(slots=True)
class _Samples:
    latencies_s: list[float] = field(default_factory=list)
    busy_s: float = 0.0


async def race(
    board: Board,
    bench: str,
    systems: Sequence[System],
    *,
    concurrency: int = 1,
    paced: bool = False,
    slice_s: float = SLICE_S,
) -> None:
    """Measures the systems for the board's seconds each, together, and adds a row for each.

    A round is always finished, so every system has the same number of slices. Cancelled, it adds
    what it has. A peer that fails is left out, and the board says why; an error of our own is
    raised in an ExceptionGroup.
    """
    slice_s = min(slice_s, board.seconds / SLICES_MIN)
    suffix = "" if paced else f"/c{concurrency}"
    rng = random.Random(f"{bench}{suffix}")  # noqa: S311 - the order of the slices
    samples = {system.name: _Samples() for system in systems}
    running = list(systems)
    try:
        for system in systems:  # once unmeasured: what is only slow the first time is not the topic
            await _turn(board, bench, system, running, _Samples(), 1, paced=True, slice_s=0.0)
        started, budget_s = time.perf_counter(), board.seconds * len(running)
        passed_s = 0.0
        while running and passed_s < budget_s:
            for system in rng.sample(running, len(running)):
                await _turn(
                    *(board, bench, system, running, samples[system.name], concurrency),
                    paced=paced,
                    slice_s=slice_s,
                )
            passed_s = time.perf_counter() - started
            board.advance(f"{bench}{suffix}", passed_s / budget_s)
    finally:
        for system in running:
            taken = samples[system.name]
            if taken.latencies_s:
                board.add(
                    f"{bench}/{system.name}{suffix}",
                    [latency * 1000 for latency in taken.latencies_s],
                    unit="ms",
                    per_s=len(taken.latencies_s) / taken.busy_s,
                    peer=system.peer,
                )


async def _turn(
    board: Board,
    bench: str,
    system: System,
    running: list[System],
    samples: _Samples,
    concurrency: int,
    *,
    paced: bool,
    slice_s: float,
) -> None:
    """One slice of one system, added to its samples; removes a peer that fails."""
    try:
        await _slice(system, samples, concurrency=concurrency, paced=paced, slice_s=slice_s)
    except* PeerFailed as failed:
        running.remove(system)
        board.leave_out(f"{bench}/{system.name}", str(failed.exceptions[0]))


async def _slice(
    system: System, samples: _Samples, *, concurrency: int, paced: bool, slice_s: float
) -> None:
    started = time.perf_counter()

    async def work() -> None:
        while True:
            before = time.perf_counter()
            await system.once()
            samples.latencies_s.append(time.perf_counter() - before)
            if paced and system.settle is not None:
                await system.settle()
            if time.perf_counter() - started >= slice_s:
                return

    try:
        async with TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
        if system.settle is not None:
            await system.settle()
    finally:
        samples.busy_s += time.perf_counter() - started
