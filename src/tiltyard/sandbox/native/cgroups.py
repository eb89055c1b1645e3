"""Cgroups by controller, v1 and v2 and hybrid: where they are, what to write, what to read.

Detection and planning are pure functions of the kernel's own tables; the launcher makes and removes
the directories, and only `read_usage`, `sweep` and `remove_owner` here touch files.
"""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiltyard.core.execution import Enforcement, Limit, Limits
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.native.counters import CounterFiles

PREFIX = "tiltyard-"
CPU_PERIOD_US = 100_000
SOCKET_BYTES_MAX = 64 * 1024 * 1024
"""Enough for a thousand busy connections. All sockets of the machine share some percents of its
memory, and when those are gone nobody's connections go on."""
GROUPED = frozenset({"memory", "cpuacct"})
"""What each execution has counted for itself. Only on v1: on v2 a cgroup that limits may not also
hold processes, so there the sandbox's own counters are all there is."""
FIRST_GROUP = "e1"
"""The same name as in native/owned.c."""
UNLIMITED = "9223372036854771712"
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
    missing = frozenset(_WANTED)
    for point, root, kind, options in _cgroup_mounts(mountinfo):
        if kind == "cgroup":
            controllers = missing.intersection(options)
            path = next((own[name] for name in sorted(controllers) if name in own), "/")
            base = _below(point, root, path)
            if controllers and writable(base):
                found.append(Hierarchy(version=1, controllers=controllers, base=base))
        else:
            base = _below(point, root, own.get("", "/"))
            for candidate in (base.parent if base != point else base, point):
                controllers = missing.intersection(read(candidate / "cgroup.controllers").split())
                free = candidate == point or not read(candidate / "cgroup.procs").strip()
                if controllers and free and writable(candidate):
                    found.append(Hierarchy(version=2, controllers=controllers, base=candidate))
                    break
        # A tree that is mounted twice is one tree still: the first place of it is used.
        missing -= {name for tree in found for name in tree.controllers}
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
        kind, _, rest = right.partition(" ")
        if kind in {"cgroup", "cgroup2"}:
            root, point = (_unescaped(field) for field in left.split(" ")[3:5])
            yield Path(point), root, kind, rest.partition(" ")[2].split(",")


def _unescaped(field: str) -> str:
    """The kernel writes a space, tab, newline and backslash of a path as an octal escape."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), field)


def _below(point: Path, root: str, path: str) -> Path:
    """Where a cgroup path shows below a mount that shows the tree from `root` on."""
    relative = os.path.relpath(path, root)
    return point if relative == "." or relative.startswith("..") else point / relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the launcher makes for one sandbox."""

    directories: tuple[str, ...]
    grouped: tuple[str, ...]
    """Those of them below which each execution gets its own; the launcher makes the first one's."""
    settings: tuple[tuple[str, str], ...]
    """Pairs of a file's path and what to write there, in order."""


def plan(
    hierarchies: Iterable[Hierarchy],
    *,
    owner: str,
    name: str,
    limits: Limits,
    swap: bool,
    networked: bool = False,
    kept: bool = False,
) -> Plan:
    """Plans the directories and limits that a sandbox gets, under a name.

    `swap` says whether swap is accounted here, `networked` whether the sandbox has a loopback,
    `kept` whether another one is to have them afterwards: then the first execution's are there.
    """
    directories: list[str] = []
    grouped: list[str] = []
    settings: list[tuple[str, str]] = []
    quota_us = max(1000, round(limits.cpus * CPU_PERIOD_US))
    for tree in hierarchies:
        directory = f"{tree.base}/{owner}/{name}"  # a Path would cost more than all the rest
        directories.append(directory)
        if tree.version == 1 and tree.controllers & GROUPED:
            grouped.append(directory)
        values: dict[str, str] = {}
        if "memory" in tree.controllers and tree.version == 1:
            values["memory.limit_in_bytes"] = str(limits.memory_bytes)
            if swap:
                values["memory.memsw.limit_in_bytes"] = str(limits.memory_bytes)
            if networked:
                # v1 counts what connections hold apart from all else, v2 with it.
                sockets = min(limits.memory_bytes // 4, SOCKET_BYTES_MAX)
                values["memory.kmem.tcp.limit_in_bytes"] = str(sockets)
                # And it counts only where there is a limit: the first execution's needs one too.
                if kept:
                    values[f"{FIRST_GROUP}/memory.kmem.tcp.limit_in_bytes"] = UNLIMITED
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
        settings += [(f"{directory}/{name}", value) for name, value in values.items()]
    return Plan(directories=tuple(directories), grouped=tuple(grouped), settings=tuple(settings))


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
        Limit.IDLE: Enforcement.SUPERVISOR,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The files that say what one sandbox used. An empty path: no cgroup counts it."""

    memory: str = ""
    peak: str = ""
    peak_reset: bool = False
    """True where writing to the file starts the peak anew."""
    oom: str = ""
    pids: str = ""
    pids_now: str = ""
    cpu: str = ""
    cpu_field: str = ""
    """The line of `cpu` that counts, in microseconds; empty: the file is one number, in ns."""

    def of_group(self, number: int) -> "Readings":
        """Where one execution's own counters are; only its CPU time, peak and kills."""
        return Readings(
            peak=_in_group(self.peak, number),
            oom=_in_group(self.oom, number),
            cpu=_in_group(self.cpu, number),
        )

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.memory, self.peak, self.oom, self.pids, self.pids_now, self.cpu)


def _in_group(path: str, number: int) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/e{number}/{name}" if path else ""


def readings(hierarchies: Iterable[Hierarchy], *, owner: str, name: str) -> Readings:
    """Where the counters of the directories under a name are."""
    paths: dict[str, str] = {}
    first_memory = second_cpu = False
    for tree in hierarchies:
        at = f"{tree.base}/{owner}/{name}"
        first = tree.version == 1
        if "memory" in tree.controllers:
            first_memory = first
            paths["memory"] = f"{at}/{'memory.usage_in_bytes' if first else 'memory.current'}"
            paths["peak"] = f"{at}/{'memory.max_usage_in_bytes' if first else 'memory.peak'}"
            paths["oom"] = f"{at}/{'memory.oom_control' if first else 'memory.events'}"
        if "pids" in tree.controllers:
            paths["pids"] = f"{at}/pids.events"
            paths["pids_now"] = f"{at}/pids.current"
        if "cpuacct" in tree.controllers:
            paths["cpu"] = f"{at}/cpuacct.usage"
        elif "cpu" in tree.controllers and not first:
            second_cpu = True
            paths["cpu"] = f"{at}/cpu.stat"
    return Readings(**paths, peak_reset=first_memory, cpu_field="usage_usec" if second_cpu else "")


def restart_peak(files: Readings, *, counters: CounterFiles) -> int | None:
    """Starts the peak anew, and says what it starts from. Only v1 can."""
    counters.write(files.peak, b"0")
    return read_number(files.peak, counters=counters)


def read_usage(files: Readings, *, reset_peak: bool, counters: CounterFiles) -> Usage:
    """Reads a sandbox's counters; what has gone or does not exist reads as None or 0."""
    if reset_peak and files.peak_reset:
        counters.write(files.peak, b"0")
    cpu_s: float | None = None
    cpu = counters.read(files.cpu)
    if cpu and files.cpu_field:
        cpu_s = _field(cpu, files.cpu_field.encode()) / 1e6
    elif cpu:
        cpu_s = int(cpu) / 1e9
    return Usage(
        cpu_s=cpu_s,
        memory_peak_bytes=read_number(files.peak, counters=counters),
        oom_kills=read_oom_kills(files, counters=counters),
        pids_refused=read_pids_refused(files, counters=counters),
    )


def read_oom_kills(files: Readings, *, counters: CounterFiles) -> int:
    """How many processes were killed for want of memory; 0 when it cannot be read."""
    return _field(counters.read(files.oom), b"oom_kill")


def read_pids_refused(files: Readings, *, counters: CounterFiles) -> int:
    """How often a process was refused; 0 when it cannot be read."""
    return _field(counters.read(files.pids), b"max")


def read_number(path: str, *, counters: CounterFiles) -> int | None:
    """A file that is one number; None when it has gone or does not exist."""
    number = counters.read(path)
    return int(number) if number else None


def enable_controllers(directory: Path, tree: Hierarchy) -> None:
    """On v2, hands a directory's controllers on to those below it. Raises OSError."""
    if controllers := handed_on(tree):
        (directory / "cgroup.subtree_control").write_text(controllers)


def handed_on(tree: Hierarchy) -> str:
    """What a directory of ours has to let those below it have; on v1 they have all anyway."""
    if tree.version == 1:
        return ""
    return " ".join(f"+{name}" for name in sorted(tree.controllers))


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
            removed += _remove(owner)
    return removed


def remove_owner(hierarchies: Iterable[Hierarchy], owner: str) -> bool:
    """Removes one owner's cgroups. True when nothing is left of them."""
    return all(_remove(tree.base / owner) for tree in hierarchies)


def directories_of(hierarchies: Iterable[Hierarchy], owner: str) -> frozenset[str]:
    """Every cgroup that an owner has for its sandboxes now."""
    return frozenset(str(path) for tree in hierarchies for path in (tree.base / owner).glob("*/"))


def start_time_of(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def read_or_empty(path: Path) -> str:
    """A file's text, or an empty string when it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _remove(owner: Path) -> bool:
    """True when the directory and those in it are gone; a dying process may keep them a moment."""
    for directory in (*owner.glob("*/*/"), *owner.glob("*/"), owner):
        with suppress(OSError):
            directory.rmdir()
    return not owner.exists()


def _field(table: bytes, name: bytes) -> int:
    for line in table.splitlines():
        key, _, value = line.partition(b" ")
        if key == name:
            return int(value)
    return 0
