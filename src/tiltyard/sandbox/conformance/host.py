"""The host as a witness: what it owns, who knocked at its doors, and what changed about it.

Everything here is read from the host's own kernel tables and files, never from what a program said.
A difference is harm. What changes all the time on a living machine (load, free memory, other
people's processes) is not looked at.
"""

import asyncio
import os
import resource
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tiltyard.sandbox.conformance.case import HostMarks

SETTINGS = (
    *("kernel/core_pattern", "kernel/modprobe", "kernel/sysrq", "kernel/hostname"),
    *("kernel/panic", "kernel/hotplug", "vm/panic_on_oom", "vm/overcommit_memory"),
    *("fs/suid_dumpable", "fs/protected_symlinks", "net/ipv4/ip_forward"),
)
"""Of /proc/sys: those that hostile programs reach for."""
SENTINELS = (
    *("/usr/bin/env", "/usr/bin", "/bin/sh", "/bin/cat", "/bin/sleep", "/etc/passwd", "/etc"),
    *("/usr", "/dev/null"),
)
PREFIX = "tiltyard-conformance-"
"""Of directories that the suite makes on the host."""
CLOCK_STEP_S = 30.0
"""More than a time service slews while a case runs."""
SETTLE_TRIES_MAX = 500
SETTLE_RETRY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The host at one moment."""

    changing: dict[str, str]
    """By name, what must be the same afterwards."""
    clock_offset_s: float
    knocks: int
    processes: frozenset[int]
    """Below this process."""
    descriptors: int
    mounts: frozenset[str]
    places: frozenset[str]
    """What the provider has on the host for its sandboxes, such as cgroups."""


class Host:
    """Doors and marks of the host's own. Use with `async with`."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix=PREFIX)
        self.secret_path = Path(self._directory.name) / "secret"
        self._secret = secrets.token_hex(16)
        self.knocks = 0
        """Connections and messages that arrived at the host's doors."""
        self._servers: list[asyncio.Server] = []
        self._datagrams: asyncio.DatagramTransport | None = None
        self.variables: dict[str, str] = {}
        """What programs are told of the host, as variables of their environment."""

    async def __aenter__(self) -> Self:
        self._write_secret()
        door = f"tiltyard-{secrets.token_hex(8)}"
        tcp = await asyncio.start_server(self._knock, "127.0.0.1", 0)
        unix = await asyncio.start_unix_server(self._knock, path=f"\0{door}")
        self._servers = [tcp, unix]
        self._datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Letterbox(self._count), local_addr=("127.0.0.1", 0)
        )
        self.variables = {
            "HOST_TCP": str(tcp.sockets[0].getsockname()[1]),
            "HOST_UDP": str(self._datagrams.get_extra_info("sockname")[1]),
            "HOST_DOOR": door,
            "HOST_SECRET_PATH": str(self.secret_path),
            "HOST_PID": str(os.getpid()),
            **{
                f"HOST_NS_{kind.upper()}": _namespace(kind) for kind in ("pid", "mnt", "net", "ipc")
            },
            "HOST_TREES": " ".join(_identity_of(Path(tree)) for tree in ("/", "/usr", "/usr/bin")),
        }
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        if self._datagrams is not None:
            self._datagrams.close()
        self._directory.cleanup()

    def marks(self, neighbour_secret: str) -> HostMarks:
        return HostMarks(
            secret=self._secret,
            neighbour_secret=neighbour_secret,
            hostname=socket.gethostname(),
            boot_id=_text(Path("/proc/sys/kernel/random/boot_id")),
            machine_id=_text(Path("/etc/machine-id")),
        )

    def read(self, places: frozenset[str]) -> Reading:
        """Looks at everything once."""
        changing = {f"/proc/sys/{name}": _text(Path("/proc/sys") / name) for name in SETTINGS}
        changing |= {name: _identity_of(Path(name), whole=True) for name in SENTINELS}
        changing["the host's secret"] = _text(self.secret_path)
        changing["this process's priority"] = str(os.getpriority(os.PRIO_PROCESS, 0))
        changing["this process's standing with the memory killer"] = _text(
            Path("/proc/self/oom_score_adj")
        )
        changing["this process's limits"] = str(
            [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
        )
        return Reading(
            changing=changing,
            clock_offset_s=time.time() - time.monotonic(),
            knocks=self.knocks,
            processes=frozenset(descendants(os.getpid())),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            mounts=_mounts(),
            places=places,
        )

    async def settled(self, before: Reading, places: Callable[[], frozenset[str]]) -> Reading:
        """Looks again, for a while, until nothing more is there than before."""
        after = self.read(places())
        for _ in range(SETTLE_TRIES_MAX):
            if not left_behind(before, after):
                break
            await asyncio.sleep(SETTLE_RETRY_S)
            after = self.read(places())
        return after

    def _write_secret(self) -> None:
        # Readable for all, in a directory that all may enter: only isolation hides it.
        self.secret_path.parent.chmod(0o755)
        self.secret_path.write_text(self._secret)
        self.secret_path.chmod(0o666)

    def _count(self) -> None:
        self.knocks += 1

    async def _knock(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count()
        writer.close()


class _Letterbox(asyncio.DatagramProtocol):
    """Counts what arrives."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002 - asyncio's
        self._count()


def harm_between(before: Reading, after: Reading) -> tuple[str, ...]:
    """What changed on the host that must not."""
    harm = [
        f"{name} changed from {old[:40]!r} to {after.changing[name][:40]!r}"
        for name, old in before.changing.items()
        if after.changing[name] != old
    ]
    if abs(after.clock_offset_s - before.clock_offset_s) > CLOCK_STEP_S:
        harm.append("the host's clock was set")
    if after.knocks > before.knocks:
        harm.append(f"{after.knocks - before.knocks} connections reached the host's own services")
    return tuple(harm)


def left_behind(before: Reading, after: Reading) -> tuple[str, ...]:
    """What is there that was not before."""
    left = [f"process {pid} {_text(Path(f'/proc/{pid}/comm'))}" for pid in _new(before, after)]
    left += sorted(f"mount {line}" for line in after.mounts - before.mounts)
    left += sorted(f"{place}" for place in after.places - before.places)
    if after.descriptors > before.descriptors:
        left.append(f"{after.descriptors - before.descriptors} descriptors")
    return tuple(left)


def descendants(pid: int) -> Iterator[int]:
    """Every process below one."""
    for child in _children(pid):
        yield child
        yield from descendants(child)


def tasks_below(pid: int) -> int:
    """Processes and threads below one."""
    count = 0
    for each in descendants(pid):
        with suppress(OSError):
            count += len(list(Path(f"/proc/{each}/task").iterdir()))
    return count


def shared_memory_bytes() -> int:
    """What the machine holds in memory file systems and shared memory, everybody's together."""
    for line in _text(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "Shmem":
            return int(value.split()[0]) * 1024
    return 0


def _new(before: Reading, after: Reading) -> list[int]:
    return sorted(after.processes - before.processes)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return []


def _mounts() -> frozenset[str]:
    """Only what bears our name, or that of an attempt: others may mount what they like."""
    lines = _text(Path("/proc/self/mountinfo")).splitlines()
    return frozenset(line for line in lines if "tiltyard" in line)


def _identity_of(path: Path, *, whole: bool = False) -> str:
    """Device and inode, and with `whole` also what a change would leave a trace in."""
    try:
        about = path.stat()
    except OSError:
        return "none"
    name = f"{about.st_dev}:{about.st_ino}"
    if not whole:
        return name
    parts = [about.st_mode, about.st_uid, about.st_gid]
    if path.is_file():  # what lies in a directory, others may change meanwhile
        parts += [about.st_size, about.st_mtime_ns, about.st_nlink]
    return f"{name} {parts}"


def _namespace(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
