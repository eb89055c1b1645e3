"""Cgroups by controller, v1 and v2 and hybrid: where they are, what to write, what to read.

Detection and planning are pure functions of the kernel's own tables; the launcher makes and removes
the directories, and only `read_usage` and `sweep` here touch files.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tiltyard.core.execution import Enforcement, Limit, Limits
from tiltyard.sandbox.ending import Usage

PREFIX = "tiltyard-"
CPU_PERIOD_US = 100_000
_WANTED = ("memory", "pids", "cpu", "cpuacct")
_OWN_NAME = re.compile(rf"{PREFIX}(\d+)-(\d+)-\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One cgroup tree in which this process may make directories."""

    version: int
    controllers: frozenset[str]
    base: Path
    """The directory below which ours are made."""


def detect(
    mountinfo: str,
    own_cgroups: str,
    *,
    writable: Callable[[Path], bool],
    read: Callable[[Path], str],
) -> tuple[Hierarchy, ...]:
    """Finds, for each wanted controller, a hierarchy where directories can be made.

    `mountinfo` and `own_cgroups` are /proc/self/mountinfo and /proc/self/cgroup. `read` returns a
    file's text, empty when it cannot be read. On v1 ours are made below this process's own cgroup,
    so that limits set on it go on holding. On v2 a cgroup with processes in it cannot hand out
    controllers, so ours are made beside it, or at the root.
    """
    own = dict(_own_paths(own_cgroups))
    found: list[Hierarchy] = []
    for point, root, kind, options in _cgroup_mounts(mountinfo):
        if kind == "cgroup":
            controllers = frozenset(options) & frozenset(_WANTED)
            if not controllers:
                continue
            path = next((own[name] for name in controllers if name in own), "/")
            base = _below(point, root, path)
            if writable(base):
                found.append(Hierarchy(version=1, controllers=controllers, base=base))
        else:
            base = _below(point, root, own.get("", "/"))
            for candidate in (base.parent if base != point else base, point):
                available = frozenset(read(candidate / "cgroup.controllers").split())
                wanted = available & frozenset(_WANTED)
                free = candidate == point or not read(candidate / "cgroup.procs").strip()
                if wanted and free and writable(candidate):
                    found.append(Hierarchy(version=2, controllers=wanted, base=candidate))
                    break
    return tuple(found)


def _own_paths(own_cgroups: str) -> Iterable[tuple[str, str]]:
    for line in own_cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield "", path
        for name in controllers.split(","):
            if name:
                yield name, path


def _cgroup_mounts(mountinfo: str) -> Iterable[tuple[Path, str, str, list[str]]]:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            fields = left.split(" ")
            yield Path(fields[4]), fields[3], kind, options.split(",")


def _below(point: Path, root: str, path: str) -> Path:
    """Where a cgroup path shows below a mount that shows the tree from `root` on."""
    relative = os.path.relpath(path, root)
    return point if relative == "." or relative.startswith("..") else point / relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the launcher makes for one sandbox."""

    directories: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    """Pairs of a file's path and what to write there, in order."""


def plan(
    hierarchies: Iterable[Hierarchy], *, owner: str, sandbox: str, limits: Limits, swap: bool
) -> Plan:
    """Plans a sandbox's directories and limits. `swap` says whether swap is accounted here."""
    directories: list[str] = []
    settings: list[tuple[str, str]] = []
    quota_us = max(1000, round(limits.cpus * CPU_PERIOD_US))
    for tree in hierarchies:
        directory = tree.base / owner / sandbox
        directories.append(str(directory))
        values: dict[str, str] = {}
        if "memory" in tree.controllers and tree.version == 1:
            values["memory.limit_in_bytes"] = str(limits.memory_bytes)
            if swap:
                values["memory.memsw.limit_in_bytes"] = str(limits.memory_bytes)
        elif "memory" in tree.controllers:
            values["memory.max"] = str(limits.memory_bytes)
            if swap:
                values["memory.swap.max"] = "0"
        if "pids" in tree.controllers:
            # The supervisor itself is counted too.
            values["pids.max"] = str(limits.pids + 1)
        if "cpu" in tree.controllers and tree.version == 1:
            values["cpu.cfs_period_us"] = str(CPU_PERIOD_US)
            values["cpu.cfs_quota_us"] = str(quota_us)
        elif "cpu" in tree.controllers:
            values["cpu.max"] = f"{quota_us} {CPU_PERIOD_US}"
        settings += [(str(directory / name), value) for name, value in values.items()]
    return Plan(directories=tuple(directories), settings=tuple(settings))


def enforcement(hierarchies: Iterable[Hierarchy]) -> dict[Limit, Enforcement]:
    """By what each limit is held on this machine."""
    held = {name for tree in hierarchies for name in tree.controllers}

    def by_cgroup(controller: str, otherwise: Enforcement) -> Enforcement:
        return Enforcement.CGROUP if controller in held else otherwise

    return {
        Limit.MEMORY: by_cgroup("memory", Enforcement.RLIMIT),
        Limit.PIDS: by_cgroup("pids", Enforcement.RLIMIT),
        Limit.CPU: by_cgroup("cpu", Enforcement.NONE),
        Limit.CPU_TIME: Enforcement.RLIMIT,
        Limit.OPEN_FILES: Enforcement.RLIMIT,
        Limit.DISK: Enforcement.TMPFS,
        Limit.INODES: Enforcement.TMPFS,
        Limit.OUTPUT: Enforcement.SUPERVISOR,
        Limit.WALL: Enforcement.SUPERVISOR,
    }


def read_usage(
    hierarchies: Iterable[Hierarchy], *, owner: str, sandbox: str, reset_peak: bool
) -> Usage:
    """Reads a sandbox's counters; what has gone or does not exist reads as None or 0."""
    cpu_s: float | None = None
    peak: int | None = None
    oom = pids = 0
    for tree in hierarchies:
        at = tree.base / owner / sandbox
        first = tree.version == 1
        if "memory" in tree.controllers:
            peak_file = at / ("memory.max_usage_in_bytes" if first else "memory.peak")
            if reset_peak and first:
                _write(peak_file, "0")
            peak = _number(_read(peak_file))
            oom = _field(
                _read(at / ("memory.oom_control" if first else "memory.events")), "oom_kill"
            )
        if "pids" in tree.controllers:
            pids = _field(_read(at / "pids.events"), "max")
        if "cpuacct" in tree.controllers:
            used_ns = _number(_read(at / "cpuacct.usage"))
            cpu_s = None if used_ns is None else used_ns / 1e9
        elif "cpu" in tree.controllers and not first:
            cpu_s = _field(_read(at / "cpu.stat"), "usage_usec") / 1e6
    return Usage(cpu_s=cpu_s, memory_peak_bytes=peak, oom_kills=oom, pids_refused=pids)


def enable_controllers(directory: Path, tree: Hierarchy) -> None:
    """On v2, hands a directory's controllers on to those below it. Raises OSError."""
    if tree.version == 2:
        names = " ".join(f"+{name}" for name in sorted(tree.controllers))
        (directory / "cgroup.subtree_control").write_text(names)


def sweep(hierarchies: Iterable[Hierarchy], *, start_time_of: Callable[[int], int | None]) -> int:
    """Removes the cgroups of owners that no longer live; never one of a live owner.

    An owner's directory is named by its pid and that process's start time, so that a reused pid is
    not mistaken for it. Returns how many owners' directories were removed.
    """
    removed = 0
    for tree in hierarchies:
        for owner in tree.base.glob(f"{PREFIX}*"):
            named = _OWN_NAME.match(owner.name)
            if named is None or start_time_of(int(named[1])) == int(named[2]):
                continue
            for directory in (*owner.glob("*/"), owner):
                _remove(directory)
            removed += not owner.exists()
    return removed


def start_time_of(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def read_or_empty(path: Path) -> str:
    """A file's text, or an empty string when it cannot be read."""
    return _read(path) or ""


def _remove(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # still in use by a process that is dying: the next sweep takes it


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError:
        return  # the sandbox has just gone; its readings are then None


def _number(value: str | None) -> int | None:
    return int(value) if value and value.strip().isdigit() else None


def _field(table: str | None, name: str) -> int:
    for line in (table or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
