"""Reads from outside what the processes of a sandbox hold: /proc by their pids, as the host has
them.

The host's own /proc is read, by number, and only files that the kernel writes; a process chooses
nothing of their names. Works as root, and for an ordinary user, who owns the user namespaces of the
sandboxes. Blocks for as long as the kernel takes, so it is called beside the event loop.
"""

from collections.abc import Iterator
from pathlib import Path

from tiltyard.sandbox.footprint import Footprint

PROCESSES_MAX = 4096
"""More than a sandbox may have; a bound on the walk, whatever the kernel says meanwhile."""
_PROC = Path("/proc")
_PRIVATE = (b"Private_Clean:", b"Private_Dirty:", b"Private_Hugetlb:", b"SwapPss:")


def pid_of(pidfd: int) -> int | None:
    """The host's number of a process held by a pidfd; None when it has ended."""
    try:
        text = (_PROC / "self/fdinfo" / str(pidfd)).read_bytes()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(b"Pid:"):
            pid = int(line.split()[1])
            return pid if pid > 0 else None
    return None


def footprint_below(root: int, *, generations: int) -> Footprint:
    """Of all who descend from `root` by at least so many generations.

    An orphan becomes the child of its namespace's first process, so a daemon is still found. A
    process that ends meanwhile counts as not there.
    """
    processes = threads = descriptors = private = io = 0
    for pid in _descendants(root, generations):
        directory = _PROC / str(pid)
        try:
            rollup = (directory / "smaps_rollup").read_bytes()
            open_files = sum(1 for _ in (directory / "fd").iterdir())
            tasks = sum(1 for _ in (directory / "task").iterdir())
        except OSError:
            # Gone, or dead and not waited for: it holds nothing but its number.
            processes += directory.exists()
            continue
        processes += 1
        threads += tasks
        descriptors += open_files
        lines = (line for line in rollup.splitlines() if line.startswith(_PRIVATE))
        private += sum(int(line.split()[1]) * 1024 for line in lines)
        io += _io_bytes(directory)
    return Footprint(
        processes=processes,
        threads=threads,
        descriptors=descriptors,
        private_bytes=private,
        io_bytes=io,
    )


def _io_bytes(directory: Path) -> int:
    try:
        lines = (directory / "io").read_bytes().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(b": ", 1) for line in lines)
    return int(fields.get(b"rchar", 0)) + int(fields.get(b"wchar", 0))


def _descendants(root: int, generations: int) -> Iterator[int]:
    level = [root]
    seen = depth = 0
    while level and seen < PROCESSES_MAX:
        if depth >= generations:
            yield from level
        seen += len(level)
        level = [child for pid in level for child in _children(pid)]
        depth += 1


def _children(pid: int) -> Iterator[int]:
    try:
        tasks = tuple((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            text = (task / "children").read_bytes()
        except OSError:
            continue
        yield from map(int, text.split())
