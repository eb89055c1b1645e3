"""Kept interpreters: from one run into the interpreter, and through it into the next run.

Here `runs` are executed one after another by one cell, so that what a run leaves behind would show
in the next. As root each has another user, and each a pid, mount and IPC namespace of its own.
"""

from tiltyard.sandbox.conformance.case import Case, Family, Finding, Observed
from tiltyard.sandbox.conformance.judging import (
    contained,
    escaped,
    evidence_of,
    inconclusive,
    refuses_all,
    succeeds,
)

_WRITES_MEMORY = """
MARKS.append("run one was here")
import builtins, random
builtins.tiltyard_mark = "run one was here"
random.tiltyard_mark = "run one was here"
with open("/proc/self/maps") as file:
    shared = [line for line in file if line.split()[1].endswith("s") and "rw" in line]
for line in shared:
    claim(f"memory shared with others: {line.split()[-1]}", True)
parent = os.getppid()
for pid in {parent, 1, 2} - {os.getpid(), 0}:
    attempt(f"memory of {pid}", lambda: opens_for_writing(f"/proc/{pid}/mem"))
    attempt(f"trace of {pid}", lambda: call("ptrace", 16, pid, 0, 0))
claim("a parent that can be named", parent != 0, parent)
end()
"""
_READS_MEMORY = """
import builtins, random
claim("a mark of the run before", bool(MARKS), MARKS)
claim("a mark in a module", hasattr(random, "tiltyard_mark") or hasattr(builtins, "tiltyard_mark"))
end()
"""
_LEAVES_FILES = """
import socket
NUMBERS["shmget"] = (29, 194)
for directory in ("/workspace", "/tmp", "/dev/shm", "/root", "/run", "/var/tmp", "/", "/usr",
                  "/run/tiltyard", "/opt/tiltyard", "/etc", "/home"):
    try:
        with open(directory + "/tiltyard-left", "w") as file:
            file.write("of run one")
        fact(directory, "written")
    except OSError as error:
        fact(directory, error)
try:
    call("shmget", 46173, 4096, 0o1666)
except OSError as error:
    fact("shmget", error)
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 5)
    kept = socket.socket(socket.AF_UNIX)
    kept.bind("\\0tiltyard-left")
    kept.listen()
    time.sleep(60)
end()
"""
_FINDS_FILES = """
import socket
NUMBERS["shmget"] = (29, 194)
for top, names, files in os.walk("/"):
    if top == "/":
        names[:] = set(names) - {"proc", "usr", "opt", "sys"}
    for name in files:
        claim(os.path.join(top, name), True) if "tiltyard-left" in name else None
for path in ("/usr/tiltyard-left", "/opt/tiltyard/tiltyard-left"):
    attempt(path, lambda: os.stat(path))
attempt("shared memory", lambda: call("shmget", 46173, 4096, 0))
attempt("a process's socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0tiltyard-left"))
try:
    with open("/proc/net/unix") as table:
        claim("its name in a table", "tiltyard-left" in table.read(), "not there")
except OSError as error:
    claim("its name in a table", False, error)
count = sum(name.isdigit() for name in os.listdir("/proc"))
claim("a process of the run before", count > 2, count)
end()
"""
_DRAWS = """
import random, secrets, tempfile, uuid
fact("random", random.random())
fact("numbers", [random.randrange(10**9) for _ in range(3)])
fact("urandom", os.urandom(8).hex())
fact("secrets", secrets.token_hex(8))
fact("uuid", uuid.uuid4())
fact("file", os.path.basename(tempfile.mkdtemp()))
fact("address", id(object()))
end()
"""
_DESCRIPTORS = """
allowed = {0, 1, 2, 3}
for name in os.listdir("/proc/self/fd"):
    fd = int(name)
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    claim(f"descriptor {fd}", fd not in allowed and not target.startswith("/proc/"), target)
    if os.path.isdir(f"/proc/self/fd/{fd}") and not target.startswith("/proc/"):
        attempt(f"out by {fd}", lambda: os.open("../../../etc/shadow", os.O_RDONLY, dir_fd=fd))
attempt("the secret", lambda: first_bytes("/tmp/secret"))
end()
"""
_KILLS_PARENT = """
only_inside("pid")
for target in (0, -1, 1):
    if target == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.kill(target, 15 if target == 0 else 9)
    except OSError:
        pass
for pid in range(2, 64):
    try:
        os.kill(pid, 9)
    except OSError:
        pass
end()
"""
_LIVES = "claim('a run after it does not work', False)\nend()\n"
_STATUS = """
with open("/proc/self/status") as file:
    lines = dict(line.split(":", 1) for line in file)
claim("no filter", lines["Seccomp"].strip() != "2", "filtered")
claim("new privileges", lines["NoNewPrivs"].strip() != "1", "none")
for field in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
    claim(f"capabilities in {field}", int(lines[field], 16) != 0, "none")
for name, flag in (("mount", 0x20000), ("user", 0x10000000), ("pid", 0x20000000)):
    attempt(f"unshare {name}", lambda: call("unshare", flag))
attempt("mount", lambda: call("mount", b"tiltyard-hostile", b"/tmp", b"tmpfs", 0, 0))
for path in ("/run/tiltyard/zygote.py", "/run/tiltyard/runs.py", "/opt/tiltyard/env/bin/python",
             "/etc/passwd", "/usr/bin/env", "/proc/sys/kernel/core_pattern"):
    attempt(path, lambda: opens_for_writing(path))
end()
"""


def _draws_differ(observed: Observed) -> Finding:
    drawn = [evidence_of(answer).facts for answer in observed.answers]
    if len(drawn) < 2 or any("urandom" not in each for each in drawn):
        return inconclusive("the runs did not say what they drew")
    same = [
        name
        for name in ("random", "numbers", "urandom", "secrets", "uuid", "file")
        if len({each.get(name) for each in drawn}) < len(drawn)
    ]
    if same:
        return escaped(f"two runs drew the same: {', '.join(same)}")
    return contained(f"{len(drawn)} runs drew different numbers and names")


CASES = (
    Case(
        name="zygote-memory",
        family=Family.ZYGOTES,
        tries="writes into the kept interpreter's memory, by every shared page and by its parent",
        safe="the next run finds nothing of it",
        runs=(_WRITES_MEMORY, _READS_MEMORY),
        judge=refuses_all(),
        slow=True,
    ),
    Case(
        name="zygote-leftovers",
        family=Family.ZYGOTES,
        tries="leaves files, shared memory, a socket and a process behind for the next run",
        safe="the next run finds nothing of it",
        runs=(_LEAVES_FILES, _FINDS_FILES),
        judge=refuses_all(),
        slow=True,
    ),
    Case(
        name="zygote-randomness",
        family=Family.ZYGOTES,
        tries="counts on the numbers that the run before it drew",
        safe="every run draws its own",
        runs=(_DRAWS, _DRAWS, _DRAWS),
        judge=_draws_differ,
        slow=True,
    ),
    Case(
        name="zygote-descriptors",
        family=Family.ZYGOTES,
        tries="descriptors of the interpreter's, and out by them",
        safe="it has its own four",
        runs=(_DESCRIPTORS,),
        judge=refuses_all(),
        slow=True,
    ),
    Case(
        name="zygote-kill",
        family=Family.ZYGOTES,
        tries="kills everything that it can name: parent, group, every number",
        safe="the interpreter lives on, and the next run works",
        runs=(_KILLS_PARENT, _LIVES),
        judge=succeeds(),
        slow=True,
    ),
    Case(
        name="zygote-rights",
        family=Family.ZYGOTES,
        tries="capabilities, namespaces, mounts and files that belong to the interpreter",
        safe="a run has none of them",
        runs=(_STATUS,),
        judge=refuses_all(),
        slow=True,
    ),
)
