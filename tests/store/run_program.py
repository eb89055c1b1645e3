"""What the store's tests run in a process of its own: `write`, `follow`, `fill` or `deny` a run."""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import structlog

from sample_records import sample_trajectory
from tiltyard.core.errors import StoreError
from tiltyard.core.ids import RolloutId
from tiltyard.store import RunReader, RunStore

AT_ONCE = 8


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write(directory: Path, first: int) -> None:
    """Record samples for ever, saying each id once it is acknowledged."""
    store = RunStore.open(directory) if first else RunStore.create(directory)
    async with store, asyncio.TaskGroup() as group:
        for worker in range(AT_ONCE):
            group.create_task(_write_every(store, first + worker))


async def _write_every(store: RunStore, number: int) -> None:
    while True:
        trajectory = sample_trajectory(number)
        await store.append(trajectory)
        say(trajectory.id)
        number += AT_ONCE


def follow(directory: Path) -> None:
    """For each id on the standard input, say how many rollouts there are and that one's seed."""
    with RunReader(directory) as reader:
        for line in sys.stdin:
            found = reader.read(RolloutId(line.strip()))
            say(f"{sum(1 for _ in reader.iter_rows())} {found.seed}")


async def fill(directory: Path, padding_bytes: int, bytes_max: int) -> None:
    """Record until no file may grow, then twice more, then with the limit lifted again."""
    async with RunStore.create(directory) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))
        number = refused = 0
        while refused < 3:
            # Random letters, so that a record is as long compressed.
            padding = os.urandom(padding_bytes // 2).hex()
            try:
                await store.append(sample_trajectory(number, padding=padding))
                say(f"recorded {number}")
            except StoreError as error:
                say(f"refused {number} {error}")
                refused += 1
            number += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await store.append(sample_trajectory(number))
        say(f"recorded {number}")


def deny(directory: Path) -> None:
    """Open a run as a user who may read it and not write it."""
    if os.geteuid() == 0:
        os.setresuid(61735, 61735, 61735)
    with RunReader(directory) as reader:
        say(f"read {sum(1 for _ in reader.iter_trajectories())}")
    for opening, where in ((RunStore.open, directory), (RunStore.create, directory / "new")):
        try:
            opening(where)
        except StoreError as error:
            say(f"refused {error}")


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    action, directory, *rest = sys.argv[1:]
    path = Path(directory)
    match action:
        case "write":
            asyncio.run(write(path, int(rest[0]) if rest else 0))
        case "follow":
            follow(path)
        case "fill":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            asyncio.run(fill(path, int(rest[0]), int(rest[1])))
        case "deny":
            deny(path)


if __name__ == "__main__":
    main()
