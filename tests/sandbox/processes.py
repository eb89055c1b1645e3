"""The processes below this one, from the kernel's own lists, so that a test ends only its own."""

import os
from collections.abc import Iterator
from pathlib import Path


def children(pid: int) -> list[int]:
    """The direct children of a process; none when it is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def name(pid: int) -> str:
    """A process's command name; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def launchers(pid: int | None = None) -> list[int]:
    """The launchers of a process; of this one when none is named."""
    return [
        child
        for child in children(os.getpid() if pid is None else pid)
        if name(child).startswith("tiltyard-launch")
    ]


def supervisors(pid: int | None = None) -> list[int]:
    """The first processes of the sandboxes of a process."""
    return [child for launcher in launchers(pid) for child in children(launcher)]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def frozen_layers() -> list[str]:
    """The mounts of all snapshots of this process."""
    (launcher,) = launchers()
    mounts = Path(f"/proc/{launcher}/mountinfo").read_text().splitlines()
    return [mount for mount in mounts if "/snapshot-" in mount]
