"""System calls that a sandbox has no business with, each tried for real.

The numbers are in the prelude. An unknown call is as good as a refused one. What is tried is
harmless where it is not refused: no argument names anything of the host's that could be changed.
"""

from tiltyard.sandbox.conformance.case import Case, Family, Program
from tiltyard.sandbox.conformance.judging import refuses_all

_NAMESPACES = """
flags = {"mount": 0x20000, "user": 0x10000000, "pid": 0x20000000, "network": 0x40000000,
         "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
for name, flag in flags.items():
    attempt(f"unshare {name}", lambda: call("unshare", flag))
    if name == "time":
        continue
    def clone():
        child = call("clone", flag | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        return child
    def clone3():
        child = call("clone3", (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17), 88)
        if child == 0:
            os._exit(0)
        return child
    attempt(f"clone {name}", clone)
    attempt(f"clone3 {name}", clone3)
for kind in ("user", "mnt", "pid", "net"):
    own = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    attempt(f"setns {kind}", lambda: call("setns", own, 0))
end()
"""
_MOUNTS = """
only_inside("mnt")
os.makedirs("/workspace/point", exist_ok=True)
attempt("tmpfs", lambda: call("mount", b"tiltyard-hostile", b"/workspace/point", b"tmpfs", 0, 0))
attempt("proc", lambda: call("mount", b"tiltyard-hostile", b"/workspace/point", b"proc", 0, 0))
attempt("bind", lambda: call("mount", b"/", b"/workspace/point", b"", 4096, 0))
attempt("writable", lambda: call("mount", b"none", b"/usr", b"", 32 | 4096, 0))
attempt("shared", lambda: call("mount", b"none", b"/", b"", 1 << 20, 0))
attempt("unmount a mask", lambda: call("umount2", b"/proc/kcore", 2))
attempt("unmount proc", lambda: call("umount2", b"/proc", 2))
attempt("pivot_root", lambda: call("pivot_root", b"/", b"/workspace/point"))
attempt("chroot", lambda: call("chroot", b"/workspace"))
attempt("open_tree", lambda: call("open_tree", -100, b"/", 1))
attempt("fsopen", lambda: call("fsopen", b"tmpfs", 0))
attempt("fspick", lambda: call("fspick", -100, b"/", 0))
attempt("fsmount", lambda: call("fsmount", 0, 0, 0))
attempt("move_mount", lambda: call("move_mount", -100, b"/usr", -100, b"/workspace/point", 0))
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
attempt("mount_setattr", lambda: call("mount_setattr", -100, b"/usr", 0, attributes, 32))
end()
"""
_CGROUPS = """
only_inside("mnt")
os.makedirs("/workspace/point", exist_ok=True)
for kind, options in ((b"cgroup", b"memory"), (b"cgroup", b"rdma"), (b"cgroup", b"none,name=x"),
                      (b"cgroup2", b"")):
    attempt(f"mount {kind.decode()} {options.decode()}",
            lambda: call("mount", b"tiltyard-hostile", b"/workspace/point", kind, 0, options))
found = 0
for top, names, files in os.walk("/sys"):
    for name in files:
        if name in ("release_agent", "notify_on_release", "cgroup.procs", "tasks", "memory.max",
                    "devices.allow", "uevent_helper"):
            path = os.path.join(top, name)
            found += 1
            attempt(path, lambda: opens_for_writing(path))
    if found > 200 or top.count("/") > 8:
        names.clear()
end()
"""
_OTHERS_MEMORY = """
local = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
child = os.fork()
if child == 0:
    time.sleep(20)
    os._exit(0)
for name, pid in (("the supervisor", 1), ("a child", child)):
    attempt(f"ptrace {name}", lambda: call("ptrace", 16, pid, 0, 0))
    attempt(f"seize {name}", lambda: call("ptrace", 0x4206, pid, 0, 0))
    attempt(f"read {name}", lambda: call("process_vm_readv", pid, local, 1, local, 1, 0))
    attempt(f"write {name}", lambda: call("process_vm_writev", pid, local, 1, local, 1, 0))
    attempt(f"compare {name}", lambda: call("kcmp", os.getpid(), pid, 0, 0, 0))
    attempt(f"descriptor of {name}",
            lambda: call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0))
    attempt(f"advise {name}",
            lambda: call("process_madvise", call("pidfd_open", pid, 0), local, 1, 4, 0))
attempt("ptrace by a child", lambda: call("ptrace", 0, 0, 0, 0))
for name in ("mem", "environ", "maps", "fd/0", "exe", "root/etc/passwd", "cwd/x", "stack"):
    attempt(f"/proc/1/{name}", lambda: first_bytes(f"/proc/1/{name}"))
attempt("/proc/1/mem for writing", lambda: opens_for_writing("/proc/1/mem"))
os.kill(child, 9)
end()
"""
_KERNEL_SURFACE = """
attempt("bpf program", lambda: call("bpf", 5, ctypes.create_string_buffer(128), 128))
attempt("bpf map", lambda: call("bpf", 0, ctypes.create_string_buffer(128), 128))
attempt("perf", lambda: call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0))
attempt("userfaultfd", lambda: call("userfaultfd", 0))
attempt("userfaultfd for user mode", lambda: call("userfaultfd", 1))
attempt("io_uring", lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(120)))
attempt("io_uring enter", lambda: call("io_uring_enter", 0, 1, 0, 0, 0, 0))
attempt("io_uring register", lambda: call("io_uring_register", 0, 0, 0, 0))
table = ctypes.create_string_buffer(64)
attempt("local descriptor table", lambda: call("modify_ldt", 0, table, 64))
attempt("ports", lambda: call("ioperm", 0x80, 1, 1))
attempt("port level", lambda: call("iopl", 3))
attempt("memory policy", lambda: call("mbind", 0, 0, 0, 0, 0, 0))
attempt("moving pages", lambda: call("move_pages", 1, 0, 0, 0, 0, 0))
attempt("migrating pages", lambda: call("migrate_pages", 1, 0, 0, 0))
attempt("secret memory", lambda: call("memfd_secret", 0))
attempt("kernel log", lambda: call("syslog", 10, 0, 0))
for name in ("/dev/userfaultfd", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vhost-net"):
    attempt(name, lambda: opens_for_writing(name))
end()
"""
_SOCKET_FILTER = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
code = (ctypes.c_uint16 * 4)(6, 0, 0xffff, 0)
class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
try:
    one.setsockopt(socket.SOL_SOCKET, 26, bytes(Filter(1, ctypes.addressof(code))))
    fact("a classic filter on its own socket", "attached")
except OSError as error:
    fact("a classic filter on its own socket", error)
attempt("an extended filter", lambda: one.setsockopt(socket.SOL_SOCKET, 50, 0))
attempt("a filter of a group", lambda: one.setsockopt(socket.SOL_SOCKET, 52, 0))
end()
"""
_KEYS = """
own = ctypes.create_string_buffer(b"payload")
for ring in (-1, -2, -3, -4, -5):
    attempt(f"key in ring {ring}", lambda: call("add_key", b"user", b"tiltyard", own, 7, ring))
    attempt(f"ring {ring}", lambda: call("keyctl", 0, ring, 1))
attempt("a key by name", lambda: call("request_key", b"user", b"tiltyard", 0, 0))
attempt("joining a session", lambda: call("keyctl", 1, b"tiltyard"))
attempt("/proc/keys", lambda: first_bytes("/proc/keys"))
attempt("/proc/key-users", lambda: first_bytes("/proc/key-users"))
end()
"""
_CLOCK = """
# Whoever has the right is told that the values are wrong, and has changed nothing all the same.
attempt("time zone", lambda: call("settimeofday", 0, (ctypes.c_int * 2)(100_000, 0)))
tick = ctypes.create_string_buffer(256)
ctypes.c_uint.from_buffer(tick).value = 0x4000  # ADJ_TICK, of zero
attempt("tick", lambda: call("adjtimex", tick))
attempt("tick of a clock", lambda: call("clock_adjtime", 0, tick))
timer = ctypes.byref(ctypes.c_int())
attempt("alarm that wakes the machine", lambda: call("timer_create", 8, 0, timer))
for name in ("/dev/rtc", "/dev/rtc0", "/dev/ptp0"):
    attempt(name, lambda: opens_for_writing(name))
end()
"""
_MACHINE = """
only_inside("pid")
# As with clocks, no argument here would do anything for whoever had the right.
attempt("module", lambda: call("init_module", ctypes.create_string_buffer(8), 8, b""))
attempt("module file", lambda: call("finit_module", 0, b"", 0))
attempt("no module", lambda: call("delete_module", 0, 0))
attempt("other kernel", lambda: call("kexec_load", 0, 1000, 0, 0))
attempt("other kernel's file", lambda: call("kexec_file_load", -1, -1, 0, b"", 0))
attempt("reboot", lambda: call("reboot", 0xfee1dead, 672274793, 1, 0))
attempt("swap", lambda: call("swapoff", b"/"))
attempt("host name", lambda: call("sethostname", b"hostile", 1000))
attempt("hang-up", lambda: call("vhangup"))
attempt("quota", lambda: call("quotactl", 0x80000200, b"/", 0, 0))
attempt("accounting", lambda: call("acct", b"/usr"))
end()
"""
_HANDLES = """
handle = ctypes.create_string_buffer(136)
ctypes.c_uint.from_buffer(handle).value = 128
mount = ctypes.byref(ctypes.c_int())
attempt("naming a handle", lambda: call("name_to_handle_at", -100, b"/", handle, mount, 0))
for kind, number in ((1, 2), (0x81, 2), (1, 128)):
    raw = (ctypes.c_uint * 4)(8, kind, number, 0)
    for path in ("/", "/usr", "/workspace"):
        attempt(f"opening handle {kind} of {path}",
                lambda: call("open_by_handle_at", os.open(path, os.O_RDONLY), raw, 0))
attempt("fanotify", lambda: call("fanotify_init", 0, 0))
attempt("fanotify without rights", lambda: call("fanotify_init", 0x200, 0))
end()
"""
_OTHER_TABLE = """
import mmap
code = {"x86_64": "b814000000cd80c3"}.get(platform.machine())  # getpid by int 0x80
if code is None:
    fact("32-bit calls", "none on this machine")
    claim("32-bit calls", False, "ENOSYS")
    end()
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex(code))
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
attempt("32-bit calls", lambda: ctypes.CFUNCTYPE(ctypes.c_int)(at)())
end()
"""
_X32 = """
def x32(number):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(0x40000000 + number))
    if got == -1:
        raise OSError(ctypes.get_errno(), "x32")
    return got
attempt("x32 calls", lambda: x32(39))
attempt("x32 exec", lambda: x32(520))
end()
"""
_LOOSENS = """
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
allow = (ctypes.c_uint16 * 4)(6, 0, 0, 0x7fff)  # return SECCOMP_RET_ALLOW
program = Program(1, ctypes.addressof(allow))
try:
    call("seccomp", 1, 0, ctypes.byref(program))
    fact("a filter that allows all", "added")
except OSError as error:
    fact("a filter that allows all", error)
attempt("namespace behind it", lambda: call("unshare", 0x10000000))
attempt("mount behind it",
        lambda: call("mount", b"tiltyard-hostile", b"/workspace", b"tmpfs", 0, 0))
claim("new privileges", libc.prctl(38, 0, 0, 0, 0) == 0, "EPERM")
end()
"""
_PERSONALITY = """
for name, value in (("everything executable", 0x0400000), ("page zero", 0x0100000)):
    attempt(name, lambda: call("personality", value))
for number in (600, 1000, 4000, 2**29):
    NUMBERS["unknown"] = (number, number)
    attempt(f"unknown call {number}", lambda: call("unknown"))
end()
"""


POLICY = frozenset(
    {
        *("EPERM", "EACCES", "ENOSYS", "EROFS", "EOPNOTSUPP", "ENOTSUP"),
        *("ENOENT", "ENOTDIR", "ENXIO", "ENODEV", "ValueError"),
    }
)
"""What a refusal looks like. Any other error comes from a kernel that has looked at the request."""


_SYNC = """
NUMBERS["syncfs"] = (306, 267)
# For a call that reaches the kernel, this descriptor is none.
try:
    call("syncfs", -1)
    claim("flushing the machine's disks", False, "it is nothing")
except OSError as error:
    claim("flushing the machine's disks", error.errno == errno.EBADF, error)
end()
"""


def _case(name: str, tries: str, source: str, *, killed: bool = False, policy: bool = True) -> Case:
    return Case(
        name=name,
        family=Family.CALLS,
        tries=tries,
        safe="every call is refused" + (", or kills the program" if killed else ""),
        programs=(Program(source=source),),
        judge=refuses_all(killed=killed, by=POLICY if policy else None),
    )


CASES = (
    _case("namespaces", "new namespaces, by every call that makes or enters one", _NAMESPACES),
    _case("mounts", "mounts of every kind, the old calls and the new ones", _MOUNTS),
    _case("cgroups", "cgroup mounts, release_agent, and any control file in /sys", _CGROUPS),
    _case("others-memory", "ptrace, other processes' memory and descriptors", _OTHERS_MEMORY),
    _case("kernel-surface", "bpf, perf, userfaultfd, io_uring, ports, kernel log", _KERNEL_SURFACE),
    _case("socket-filters", "extended filters on a socket", _SOCKET_FILTER, policy=False),
    _case("keyrings", "keys and keyrings, which namespaces do not fully separate", _KEYS),
    _case("clocks", "setting clocks, and alarms that wake the machine", _CLOCK),
    _case("machine", "modules, kexec, reboot, swap, host name", _MACHINE),
    _case("sync", "flushes the disks of the whole machine, again and again", _SYNC, policy=False),
    _case("file-handles", "files by handle, past the root directory; fanotify", _HANDLES),
    _case("other-call-table", "32-bit calls, whose numbers differ", _OTHER_TABLE, killed=True),
    _case("x32-calls", "x32 calls, whose numbers differ", _X32, killed=True),
    _case("loosened-filter", "a filter of its own that allows everything", _LOOSENS),
    _case("personalities", "executable data, page zero, and calls that do not exist", _PERSONALITY),
)
