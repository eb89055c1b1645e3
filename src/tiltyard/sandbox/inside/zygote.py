"""A kept interpreter: forks one isolated run per order. Runs inside; imports no Tiltyard.

Theory of operation. The supervisor starts this once, as the sandbox's root, with a SOCK_SEQPACKET
socket as descriptor 3. It loads the module that its first argument names, so that imports are paid
for once, and then serves orders (`struct fork_order` in native/forks.c). For each it moves its next
child into a new pid namespace, forks, and moves back. The child, pid 1 of that namespace, takes
further namespaces, a private disk, another user, no capabilities, limits and the system-call
filter, in this order, and only then calls `serve` of the module. The parent never runs what a child
was given, reads nothing that a child writes, and holds no secret; it only waits, and reports.

A run thus shares with the next one: the network namespace (no interface of it is up), the cgroup
(empty again, since killing pid 1 of a namespace kills all in it), and read-only files.
"""

import ctypes
import gc
import importlib.machinery
import os
import resource
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

Order = tuple[int, ...]
ORDER = struct.Struct("<IIIIQ")
REPORT = struct.Struct("<IIiIQQQ")
STARTED, EXITED, FAILED, READY = 1, 2, 3, 4

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x0002_0000, 0x0800_0000, 0x2000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP = 1, 38, 24, 22
SECCOMP_MODE_FILTER = 2
RLIMIT_NICE, RLIMIT_RTPRIO = 13, 14
CAPABILITIES = 64
DESCRIPTORS_MAX = 2**31 - 1
PRIVATE = "/run/tiltyard/own"  # mount point of a run's own disk
PRIVATE_DIRECTORIES = (("workspace", "/workspace"), ("tmp", "/tmp"), ("shm", "/dev/shm"))
USERS = 50_000
FIRST_USER = 1_000

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def check(result: int, call: str) -> None:
    """Raises OSError when a C function failed."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    """mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    check(
        libc.mount(*encoded, ctypes.c_ulong(flags), options.encode() if options else None),
        f"mount {target}",
    )


class Zygote:
    """The loop, and what a child does before it serves."""

    def __init__(
        self, serve: Callable[[socket.socket], None], filter_bytes: bytes, disk_bytes: int
    ) -> None:
        self.serve = serve
        self.control = socket.socket(fileno=3)
        self.own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.filter = ctypes.create_string_buffer(filter_bytes, len(filter_bytes))
        self.program = Program(len(filter_bytes) // 8, ctypes.addressof(self.filter))
        self.disk_bytes = disk_bytes
        # As an ordinary user's sandbox only one id is mapped, and there is no other to become.
        with open("/proc/self/uid_map") as ids:
            self.many_users = int(ids.read().split()[2]) > FIRST_USER + USERS
        self.runs: dict[int, tuple[int, int]] = {}  # pidfd -> (run id, pid)
        self.count = 0

    def prepare(self) -> None:
        """Makes the tree read-only for all runs, and a place for each one's disk."""
        os.makedirs(PRIVATE, exist_ok=True)
        mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, None)
        # The bounding set only limits what a later exec could gain; the zygote execs nothing, and
        # what it drops here every run has dropped.
        for capability in range(CAPABILITIES):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
                break
        gc.collect()
        gc.freeze()

    def loop(self) -> None:
        """Serves until the supervisor ends."""
        self.control.send(REPORT.pack(READY, 0, 0, 0, 0, 0, 0))
        polled = select.poll()
        polled.register(self.control, select.POLLIN)
        while True:
            for fd, _ in polled.poll():
                if fd == self.control.fileno():
                    order, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 3)
                    if not order:
                        return
                    self.start(polled, ORDER.unpack(order), fds)
                else:
                    self.finish(polled, fd)

    def start(self, polled: select.poll, order: Order, fds: list[int]) -> None:
        run_id = order[0]
        try:
            check(libc.unshare(CLONE_NEWPID), "unshare")
            try:
                pid = os.fork()
                if pid == 0:
                    self.child(order, fds)
            finally:
                check(libc.setns(self.own_namespace, CLONE_NEWPID), "setns")
            self.count += 1
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            self.control.send(REPORT.pack(FAILED, run_id, error.errno or 1, 0, 0, 0, 0))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self.runs[pidfd] = (run_id, pid)
        polled.register(pidfd, select.POLLIN)
        self.control.send(REPORT.pack(STARTED, run_id, pid, 0, 0, 0, 0))

    def finish(self, polled: select.poll, pidfd: int) -> None:
        run_id, pid = self.runs.pop(pidfd)
        polled.unregister(pidfd)
        os.close(pidfd)
        _, status, used = os.wait4(pid, 0)
        self.control.send(
            REPORT.pack(
                EXITED,
                run_id,
                status,
                0,
                int(used.ru_utime * 1e6),
                int(used.ru_stime * 1e6),
                used.ru_maxrss,
            )
        )

    def child(self, order: Order, fds: list[int]) -> NoReturn:
        """Becomes a run. Never returns."""
        try:
            channel = self.take_descriptors(fds)
            self.isolate()
            self.restrict(order)
        except BaseException as error:  # noqa: BLE001 - reported by its exit, on our own stderr
            os.write(2, f"zygote: {error}\n".encode())
            os._exit(70)
        code = 1
        try:
            reseed()
            self.serve(channel)
            code = 0
        except BaseException:  # noqa: BLE001 - told on the run's stderr, and by its code
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(code)

    def take_descriptors(self, fds: list[int]) -> socket.socket:
        # Out of the zygote's process group: `kill(0)` reaches a group across pid namespaces.
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDONLY)
        out, err, channel = fds
        for source, target in ((nowhere, 0), (out, 1), (err, 2), (channel, 3)):
            os.dup2(source, target, inheritable=target < 3)
        self.control.detach()
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.closerange(4, DESCRIPTORS_MAX)
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 3)

    def isolate(self) -> None:
        check(libc.unshare(CLONE_NEWNS | CLONE_NEWIPC), "unshare")
        flags = MS_NOSUID | MS_NODEV
        mount("run", PRIVATE, "tmpfs", flags, f"size={self.disk_bytes},nr_inodes=16384,mode=0755")
        os.umask(0)
        for name, target in PRIVATE_DIRECTORIES:
            source = f"{PRIVATE}/{name}"
            os.mkdir(source, 0o1777)
            mount(source, target, None, MS_BIND, None)
        mount("proc", "/proc", "proc", flags | MS_NOEXEC | MS_RDONLY, "subset=pid")
        os.umask(0o022)
        os.chdir("/workspace")

    def restrict(self, order: Order) -> None:
        _, cpu_s, open_files, processes, address_space_bytes = order
        limits = [
            (resource.RLIMIT_CORE, 1, 1),  # these three as in native/restrict.c
            (RLIMIT_RTPRIO, 0, 0),
            (RLIMIT_NICE, 0, 0),
            (resource.RLIMIT_MEMLOCK, 0, 0),
            (resource.RLIMIT_MSGQUEUE, 65536, 65536),
            (resource.RLIMIT_NOFILE, open_files, open_files),
            (resource.RLIMIT_NPROC, processes, processes),
        ]
        if cpu_s:
            # pid 1 of a namespace ignores SIGXCPU, so the hard limit, a SIGKILL, is the limit.
            limits.append((resource.RLIMIT_CPU, cpu_s, cpu_s))
        if address_space_bytes:
            limits.append((resource.RLIMIT_AS, address_space_bytes, address_space_bytes))
        for kind, soft, hard in limits:
            resource.setrlimit(kind, (soft, hard))
        if self.many_users:
            user = FIRST_USER + self.count % USERS
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        else:
            header = struct.pack("<Ii", 0x2008_0522, 0)
            check(libc.capset(header, bytes(24)), "capset")
        check(libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PDEATHSIG)")
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
        program = ctypes.byref(self.program)
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def reseed() -> None:
    """Has a run draw its own random numbers. Python's `random` reseeds itself at a fork."""
    numpy_random = sys.modules.get("numpy.random")  # keeps a generator of its own, and does not
    if numpy_random is not None:
        numpy_random.seed()


def load(path: str) -> ModuleType:
    """Loads the module whose `serve` every run calls."""
    loader = importlib.machinery.SourceFileLoader("tiltyard_run", path)
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


def main() -> None:
    path, filter_path, disk_bytes, packages = sys.argv[1:5]
    sys.path.append(packages)
    with open(filter_path, "rb") as file:
        filter_bytes = file.read()
    sys.path.insert(0, os.path.dirname(path))
    module = load(path)
    sys.path.pop(0)
    sys.argv = ["python"]
    zygote = Zygote(module.serve, filter_bytes, int(disk_bytes))
    zygote.prepare()
    zygote.loop()


main()
