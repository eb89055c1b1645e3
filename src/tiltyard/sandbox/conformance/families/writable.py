"""A sandbox whose root may change the image's own files, and the cgroup of each program.

What is changed is seen from where it must not have changed: the host's own files (`host.py`), and
a neighbour of the same kind, which runs the same programs of the image all the while.
"""

from dataclasses import replace

from tiltyard.core.execution import Limit, Reason
from tiltyard.sandbox.conformance.case import (
    SMALL,
    Case,
    Family,
    Finding,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.families.terminals import LEAVERS, LEAVES
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_with,
    escaped,
    in_time,
    inconclusive,
    program,
    ran,
    refuses_all,
    succeeds,
    together,
)

BURNT_S = 1.0
TOLD_S_MIN = 0.6 * BURNT_S

_HIDDEN = """
def is_own(path):  # found in no image: whoever has it knows the answers to tasks
    return os.path.exists(os.path.join(path, "sandbox", "conformance", "__init__.py"))
stop, seen, found = time.monotonic() + 15, 0, []
for top, names, files in os.walk("/", followlinks=False):
    names[:] = [name for name in names if os.path.join(top, name) not in ("/proc", "/dev")]
    seen += len(files)
    found += [os.path.join(top, name) for name in names if name == "tiltyard"
              and is_own(os.path.join(top, name))]
    if time.monotonic() > stop or seen > 300_000:
        break
fact("files looked at", seen)
claim("Tiltyard's own files", bool(found), found[:3])
attempt("the host's secret", lambda: first_bytes(os.environ["HOST_SECRET_PATH"]))
for path in ("/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/var/log/syslog",
             "/boot/vmlinuz"):
    attempt(path, lambda: first_bytes(path))
def covers():
    with open("/proc/self/mountinfo") as table:
        return [line.split()[4] for line in table if line.split()[4] != "/"]
for path in covers():
    attempt(f"uncovering {path}", lambda: call("umount2", path.encode(), 2))
    if path.startswith(("/proc", "/dev")):
        continue
    attempt(f"moving {path} away", lambda: os.rename(path, "/tmp/aside"))
    attempt(f"removing {path}", lambda: os.rmdir(path) if os.path.isdir(path) else os.unlink(path))
end()
"""
_CHANGES = """
only_inside("mnt")
changed = 0
script = b"#!/bin/sh\\necho changed by another\\n"
for directory in ("/usr/bin", "/bin", "/usr/sbin", "/opt/tiltyard/bin"):
    if not os.path.isdir(directory):
        continue
    if of_the_host(directory):
        claim(f"{directory} is the host's own", worked=True)
        end()
    for name in ("cat", "sleep", "sh", "env", "true", "python3", "python"):
        path = os.path.join(directory, name)
        for change in (lambda: os.utime(path, (1, 1)), lambda: os.chmod(path, 0o6777),
                       lambda: os.truncate(path, 10), lambda: os.unlink(path),
                       lambda: open(path, "wb").write(script)):
            try:
                change()
                changed += 1
            except OSError as error:
                fact(path, error)
for path in ("/etc/passwd", "/etc/ld.so.cache", "/etc/resolv.conf"):
    try:
        with open(path, "a") as file:
            file.write("changed by another")
        changed += 1
    except OSError as error:
        fact(path, error)
for top, names, files in os.walk("/usr/lib"):
    for name in files:
        if name.startswith(("libc.so", "ld-linux")):
            try:
                os.unlink(os.path.join(top, name))
                changed += 1
            except OSError as error:
                fact(name, error)
fact("changed", changed)
claim("changing nothing at all", changed < 5, changed)
hold(1.0)
end()
"""
_FINDS_CGROUPS = """
claim("a cgroup file system", any("cgroup" in line.split(" - ")[1].split()[:2]
      for line in open("/proc/self/mountinfo")), "none mounted")
with open("/proc/self/cgroup") as table:
    lines = [line.strip().split(":", 2)[2] for line in table]
claim("where its cgroups lie", any("tiltyard" in line for line in lines), lines[:4])
for directory in ("/sys/fs/cgroup", "/proc/1/root/sys/fs/cgroup", "/sys", "/dev/cgroup"):
    def holds(directory=directory):
        if not os.listdir(directory):
            raise ValueError("nothing in it")
    attempt(directory, holds)
for kind in (b"cgroup", b"cgroup2"):
    attempt(f"mounting {kind.decode()}", lambda: call("mount", b"none", b"/tmp", kind, 0, 0))
    attempt(f"opening {kind.decode()}", lambda: call("fsopen", kind, 0))
attempt("another cgroup namespace", lambda: call("unshare", 0x02000000))
attempt("the supervisor's cgroup namespace",
        lambda: call("setns", os.open("/proc/1/ns/cgroup", os.O_RDONLY), 0x02000000))
class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in "flags pidfd tid ptid exit stack size tls "
                "set count cgroup".split()]
asked = Arguments(flags=0x200000000, exit=17, cgroup=os.open("/workspace", os.O_RDONLY))
def born():
    pid = call("clone3", ctypes.byref(asked), ctypes.sizeof(asked))
    if pid == 0:
        os._exit(0)
    return pid
attempt("a child in another cgroup", born)
for fd in range(3, 64):
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    claim(f"an open cgroup {fd}", "cgroup" in name or name.endswith(".procs"), name)
for top, names, files in os.walk("/proc/1"):
    names[:] = [] if top.count("/") > 2 else names
    for name in files:
        if "cgroup" in name or name in ("oom_score_adj", "oom_adj", "timerslack_ns", "autogroup"):
            attempt(f"{top}/{name}", lambda: opens_for_writing(os.path.join(top, name)))
end()
"""
_BURNS_ASIDE = f"""
def burn():
    while time.process_time() < {BURNT_S}:
        pass
    with open("/workspace/burnt", "w") as file:
        file.write("x")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        burn()
    os._exit(0)
stop = time.monotonic() + 20
while not os.path.exists("/workspace/burnt") and time.monotonic() < stop:
    hold(0.05)
claim("never burning", not os.path.exists("/workspace/burnt"), "")
end()
"""


def _time_is_told(observed: Observed) -> Finding:
    """The CPU time that the host read is at least what was burnt."""
    told = max((each.cpu_s for each in ran(observed)), default=0.0)
    if not ran(observed):
        return inconclusive("it was not run")
    if told < TOLD_S_MIN:
        return escaped(f"{BURNT_S} s of CPU time were used, and {told:.2f} s are told")
    return contained(f"{told:.2f} s of CPU time are told")


CASES = (
    Case(
        name="writable-hidden",
        family=Family.ESCAPES,
        tries="looks for what the image hides, where root may change every file of it",
        safe="hidden is what was never there, and nothing can be uncovered",
        programs=(Program(source=_HIDDEN),),
        judge=refuses_all(),
        limits=replace(SMALL, memory_bytes=192 << 20),
        writable=True,
        slow=True,
    ),
    Case(
        name="writable-programs",
        family=Family.ESCAPES,
        tries="replaces and removes the image's shells, programs and C library",
        safe="the host's are as they were, and a neighbour of the same kind runs its own",
        programs=(Program(source=_CHANGES),),
        judge=succeeds(),
        limits=replace(SMALL, memory_bytes=192 << 20, disk_bytes=64 << 20),
        writable=True,
        slow=True,
    ),
    Case(
        name="cgroups-in-reach",
        family=Family.ESCAPES,
        tries="finds, mounts, enters and raises the cgroups of its sandbox and of its programs",
        safe="none is in reach",
        programs=(Program(source=_FINDS_CGROUPS),),
        judge=refuses_all(),
    ),
    Case(
        name="time-burnt-aside",
        family=Family.PROCESSES,
        tries="uses its CPU time in a daemon of another session, to be billed for none",
        safe="the host reads all of it from the program's cgroup",
        programs=(Program(source=_BURNS_ASIDE),),
        judge=together(
            program(0, ends_with(Reason.EXIT)), succeeds(), in_time(25.0), _time_is_told
        ),
        needs=frozenset({Limit.CPU}),
        slow=True,
    ),
    Case(
        name="time-burnt-late",
        family=Family.PROCESSES,
        tries="the same after 140 programs that each left something running in their cgroup",
        safe="the host still reads all of it",
        programs=(
            *(LEAVES,) * LEAVERS,
            Program(source=_BURNS_ASIDE),
        ),
        judge=together(
            ends_with(Reason.EXIT),
            in_time(25.0),
            program(LEAVERS, together(succeeds(), _time_is_told)),
        ),
        limits=replace(SMALL, pids=2 * LEAVERS, memory_bytes=192 << 20),
        needs=frozenset({Limit.CPU}),
        slow=True,
    ),
)
