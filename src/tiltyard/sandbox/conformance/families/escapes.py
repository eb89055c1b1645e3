"""The ways out that others' containers had, and the files of the kernel that lead out.

Known ones by their names: CVE-2019-5736 (the runtime's own program through /proc), CVE-2024-21626
(a working directory that leads out), CVE-2022-0492 (release_agent, in `calls`), CVE-2021-4034
(empty arguments, in `output`). Nothing is written: that a file opens for writing is the escape.
"""

from tiltyard.core.execution import Reason
from tiltyard.sandbox.conformance.case import (
    Case,
    Family,
    Finding,
    Language,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_of,
    ends_with,
    escaped,
    inconclusive,
    nothing_worked,
    ran,
    refuses_all,
    together,
)

_OWN_PROGRAM = """
for pid in ("1", "self", *(name for name in os.listdir("/proc") if name.isdigit())):
    attempt(f"program of {pid}", lambda: opens_for_writing(f"/proc/{pid}/exe"))
for name in ("/proc/1/exe", "/proc/1/task/1/exe"):
    attempt(name, lambda: os.readlink(name))
attempt("executing the supervisor's", lambda: os.execv("/proc/1/exe", ["x"]))
end()
"""
_DESCRIPTORS = """
kinds = ("pipe:", "/dev/null", "/memfd:", "socket:", "/dev/pts/", "anon_inode:", "/dev/urandom")
for fd in range(0, number_of("OPEN_FILES")):
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    fact(f"descriptor {fd}", target)
    if fd > 2:
        claim(f"descriptor {fd} beside the standard ones", True, target)
    else:
        claim(f"descriptor {fd} of another kind", not target.startswith(kinds), target)
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        attempt(f"out by descriptor {fd}",
                lambda: os.open("../../../../etc/shadow", os.O_RDONLY, dir_fd=fd))
attempt("the secret by a relative path",
        lambda: first_bytes("../" * 30 + os.environ["HOST_SECRET_PATH"].lstrip("/")))
end()
"""
_WHERE_AM_I = """
here = os.getcwd()
fact("here", here)
claim("a place outside the root", not here.startswith("/"), here)
attempt("the secret from here",
        lambda: first_bytes("../" * 30 + os.environ["HOST_SECRET_PATH"].lstrip("/")))
end()
"""
_PROC_LINKS = """
secret = os.environ["HOST_SECRET_PATH"]
paths = ["/proc/self/root", "/proc/self/cwd", "/proc/thread-self/root", "/proc/self/task/1/root"]
for pid in [name for name in os.listdir("/proc") if name.isdigit()] + [os.environ["HOST_PID"], "1"]:
    paths += [f"/proc/{pid}/root", f"/proc/{pid}/cwd/../../../../.."]
    paths += [f"/proc/{pid}/fd/{fd}" for fd in range(16)]
for path in paths:
    attempt(path, lambda: first_bytes(path + secret))
attempt("itself", lambda: first_bytes(secret))
end()
"""
_SETTINGS = """
count = 0
for top in ("/proc/sys", "/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi"):
    for directory, names, files in os.walk(top):
        for name in files:
            path = os.path.join(directory, name)
            count += 1
            try:
                opens_for_writing(path)
                claim(path, True)
            except OSError:
                pass
fact("files tried", count)
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
             "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register", "/proc/mtrr",
             "/proc/sys/kernel/sysrq", "/sys/kernel/uevent_helper", "/sys/power/state",
             "/proc/sys/vm/drop_caches", "/proc/timer_stats", "/proc/1/oom_score_adj",
             "/sys/kernel/debug/x", "/sys/kernel/security/x", "/sys/firmware/efi/efivars/x"):
    def opens():
        about = os.stat(path)
        if about.st_rdev == os.stat("/dev/null").st_rdev:
            raise OSError(13, "covered")
        return opens_for_writing(path)
    attempt(path, opens)
end()
"""
_REVEALING = """
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/modules", "/proc/iomem",
             "/proc/timer_list", "/proc/sched_debug", "/proc/keys", "/dev/mem",
             "/proc/interrupts", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/pagetypeinfo",
             "/proc/latency_stats", "/proc/kpagecount", "/dev/kmsg", "/sys/firmware/dmi/tables/DMI",
             "/sys/kernel/notes", "/sys/kernel/debug", "/boot/config", "/etc/shadow"):
    def reads():
        got = first_bytes(path)
        if path in ("/proc/kallsyms", "/proc/iomem", "/proc/modules") and "00000000" in got:
            raise ValueError("addresses hidden")
        return got
    attempt(path, reads)
end()
"""
_DEVICES = """
import stat
os.makedirs("/workspace/dev", exist_ok=True)
wanted = {"memory": (0o020000, 1, 1), "ports": (0o020000, 1, 4), "kernel log": (0o020000, 1, 11),
          "first disk": (0o060000, 8, 0), "virtual disk": (0o060000, 254, 0),
          "loop": (0o060000, 7, 0),
          "console": (0o020000, 5, 1), "fuse": (0o020000, 10, 229), "kvm": (0o020000, 10, 232)}
for name, (kind, major, minor) in wanted.items():
    path = f"/workspace/dev/{major}-{minor}"
    def opens():
        os.mknod(path, kind | 0o666, os.makedev(major, minor))
        return opens_for_writing(path)
    attempt(f"node of {name}", opens)
allowed = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
for top, names, files in os.walk("/dev"):
    for name in files:
        about = os.lstat(os.path.join(top, name))
        if stat.S_ISBLK(about.st_mode) or stat.S_ISCHR(about.st_mode):
            number = (os.major(about.st_rdev), os.minor(about.st_rdev))
            if number not in allowed and number[0] not in range(136, 144):
                claim(f"device {os.path.join(top, name)}", True, number)
end()
"""
_SETUID = """
import shutil
def status(path, *words):
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(into, 1)
        for change in (lambda: os.setgroups([]), lambda: os.setresgid(1000, 1000, 1000),
                       lambda: os.setresuid(1000, 1000, 1000)):
            try:
                change()
            except OSError:
                os._exit(9)  # where root is the only user there is
        try:
            os.execv(path, [path, *words])
        except OSError:
            os._exit(8)
    os.close(into)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return os.read(out, 100).decode().strip() if code == 0 else f"exit {code}"
try:
    shutil.copy("/usr/bin/id", "/workspace/id")
    os.chmod("/workspace/id", 0o6755)
except OSError as error:
    fact("copy", error)
fact("as another user", status("/workspace/id", "-u"))
claim("root by a copy with setuid", status("/workspace/id", "-u") == "0", "no")
for top in ("/usr/bin", "/usr/lib", "/usr/sbin"):
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name)
        if os.path.isfile(path) and os.stat(path).st_mode & 0o6000:
            attempt(f"hard link to {path}", lambda: os.link(path, "/workspace/" + name))
            fact(f"mounted without setuid: {path}", bool(os.statvfs(path).f_flag & os.ST_NOSUID))
every = bytes.fromhex("0100000200000020" + "00" * 12)
attempt("capabilities of a file",
        lambda: os.setxattr("/workspace/id", "security.capability", every))
with open("/proc/self/status") as file:
    lines = dict(line.split(":", 1) for line in file)
claim("gaining by exec", lines["NoNewPrivs"].strip() != "1", "NoNewPrivs")
end()
"""
_CAPABILITIES = """
with open("/proc/self/status") as file:
    lines = dict(line.split(":", 1) for line in file)
dangerous = {2: "DAC_READ_SEARCH", 9: "LINUX_IMMUTABLE", 12: "NET_ADMIN", 13: "NET_RAW",
             16: "SYS_MODULE", 17: "SYS_RAWIO", 19: "SYS_PTRACE", 20: "SYS_PACCT",
             21: "SYS_ADMIN", 22: "SYS_BOOT", 23: "SYS_NICE",
             24: "SYS_RESOURCE", 25: "SYS_TIME", 27: "MKNOD", 33: "MAC_ADMIN",
             34: "SYSLOG", 35: "WAKE_ALARM", 38: "PERFMON", 39: "BPF", 40: "CHECKPOINT_RESTORE"}
for field in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
    held = int(lines[field], 16)
    for number, name in dangerous.items():
        claim(f"{name} in {field}", bool(held >> number & 1), "not held")
header, every = (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)(*[0xffffffff] * 6)
claim("taking every capability", libc.capset(header, every) == 0, "EPERM")
claim("an ambient one", libc.prctl(47, 2, 21, 0, 0) == 0, "EPERM")
claim("no system-call filter", lines["Seccomp"].strip() != "2", "filtered")
end()
"""
_TERMINAL = """
import fcntl, pty, termios
for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs"):
    def types():
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        return fcntl.ioctl(fd, termios.TIOCSTI, b"x")
    attempt(f"typing into {path}", types)
try:
    ours, theirs = pty.openpty()
except OSError as error:
    fact("a terminal of its own", error)
else:
    for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541c), ("TIOCSETD", 0x5423),
                          ("TIOCCONS", 0x541d), ("TIOCSTI with high bits", 0x5412 | 1 << 40)):
        def asks():
            ctypes.set_errno(0)
            if libc.ioctl(theirs, ctypes.c_ulong(request), ctypes.create_string_buffer(b"x")) != 0:
                raise OSError(ctypes.get_errno(), name)
        attempt(name, asks)
for fd in (0, 1, 2):
    claim(f"descriptor {fd} is a terminal", os.isatty(fd), "no")
end()
"""
_CRASHES = """
import resource, signal
for wanted in (resource.RLIM_INFINITY, 1 << 20):
    attempt("a core file's size",
            lambda: resource.setrlimit(resource.RLIMIT_CORE, (wanted, wanted)))
child = os.fork()
if child == 0:
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(5)
status = os.waitpid(child, 0)[1]
claim("a core dump, and with it the host's own handler of crashes", os.WCOREDUMP(status), status)
for name in os.listdir("/workspace"):
    claim(f"the file {name}", "core" in name, name)
end()
"""
_FROM_MEMORY = """
fd = os.memfd_create("program", 0)
with open("/bin/cat", "rb") as file:
    os.write(fd, file.read())
out, into = os.pipe()
child = os.fork()
if child == 0:
    os.dup2(into, 1)
    os.execv(f"/proc/self/fd/{fd}", ["cat", "/proc/self/status"])
os.close(into)
with open(out) as file:
    lines = dict(line.split(":", 1) for line in file if ":" in line)
os.waitpid(child, 0)
if lines:
    claim("without the filter", lines["Seccomp"].strip() != "2", "filtered")
    claim("with new privileges", lines["NoNewPrivs"].strip() != "1", "none")
    claim("with a capability more", int(lines["CapEff"], 16) >> 21 & 1, "none")
else:
    claim("a program from memory", False, "not run")
end()
"""


def _case(name: str, tries: str, source: str, safe: str = "every attempt is refused") -> Case:
    return Case(
        name=name,
        family=Family.ESCAPES,
        tries=tries,
        safe=safe,
        programs=(Program(source=source),),
        judge=refuses_all(),
    )


_ODD_WORD = "$(touch /tmp/x);`id`;%s%n -rf"


def _comes_back(observed: Observed) -> Finding:
    told = [each.stdout.text for each in ran(observed)]
    if told == [""]:
        return inconclusive(f"it said nothing: {ends_of(observed)}")
    if told != [_ODD_WORD]:
        return escaped(f"it came back as {told}")
    return contained("it came back as it was")


CASES = (
    _case("runtime-program", "the runtime's program by /proc (CVE-2019-5736)", _OWN_PROGRAM),
    _case("leaked-descriptors", "descriptors that it was not given, and out by them", _DESCRIPTORS),
    Case(
        name="leaked-working-directory",
        family=Family.ESCAPES,
        tries="a working directory behind a descriptor of the runtime's (CVE-2024-21626)",
        safe="not started, or started inside",
        programs=tuple(
            Program(source=_WHERE_AM_I, cwd=cwd)
            for cwd in (
                *("/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/7", "/proc/self/fd/10"),
                *("/proc/1/cwd", "/proc/self/root/../..", "../../../.."),
            )
        ),
        judge=together(
            ends_with(Reason.START_FAILED, Reason.EXIT),
            nothing_worked,
        ),
        slow=True,
    ),
    _case("links-in-proc", "the host's files by root, cwd and fd of every process", _PROC_LINKS),
    _case(
        "kernel-settings",
        "opens every setting of the kernel for writing: sysrq, core_pattern, modprobe and all",
        _SETTINGS,
    ),
    _case("revealing-files", "kernel memory, log, symbols, the host's shadow", _REVEALING),
    _case("device-nodes", "makes device nodes, and looks for any that are there", _DEVICES),
    _case("setuid", "setuid copies, hard links to setuid programs, file capabilities", _SETUID),
    _case("capabilities", "capabilities that reach outside, and taking them back", _CAPABILITIES),
    _case("terminals", "types into the host's terminal (TIOCSTI)", _TERMINAL),
    _case("core-dumps", "crashes, so that a piped core_pattern would run on the host", _CRASHES),
    _case("program-from-memory", "a program that is in no file", _FROM_MEMORY),
    Case(
        name="supervisor-as-program",
        family=Family.ESCAPES,
        tries="has the host start what /proc/self/exe and a descriptor are before its own program",
        safe="the supervisor's program, run as any other, does nothing",
        programs=(
            Program(
                language=Language.SHELL,
                source="printf '#!/proc/self/exe\\n' > run && chmod 755 run && echo end",
            ),
            *(
                Program(language=Language.ARGV, arguments=(path,), timeout_s=5.0)
                for path in ("/proc/self/exe", "./run", "/proc/self/fd/4", "/proc/self/fd/103")
            ),
        ),
        judge=ends_with(Reason.EXIT, Reason.START_FAILED, Reason.SIGNAL),
    ),
    Case(
        name="shell-in-a-name",
        family=Family.ESCAPES,
        tries="arguments that a shell, an option parser or a format would take for more",
        safe="they arrive as they are",
        programs=(
            Program(
                language=Language.ARGV,
                arguments=("printf", "%s", _ODD_WORD),
            ),
        ),
        judge=_comes_back,
    ),
)
