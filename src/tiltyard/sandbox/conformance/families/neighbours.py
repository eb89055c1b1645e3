"""From one sandbox into another: by name, by number, by what both of them see.

The neighbour is asked first (`beside`), then the attack runs, then the neighbour tells what it
noticed (`witness`). Two sandboxes that work together are not the enemy here, one that works alone
against another is; what two together can signal to each other is told in docs/security.md.
"""

from dataclasses import replace

from tiltyard.core.execution import MIB, Reason
from tiltyard.sandbox.conformance.case import SMALL, Case, Family, Finding, Observed, Program
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_with,
    escaped,
    evidence_of,
    inconclusive,
    refuses_all,
    succeeds,
    together,
)

SHARED_INODES = "sandboxes that are shown one file of the host can signal to each other by it"
ONE_USER = "an ordinary user's sandboxes share that user's quotas of the kernel"
USER_RUNG = frozenset({"user-namespace"})

_LEAVES = """
import socket
if os.fork():
    os._exit(0)
os.closerange(0, 3)
NUMBERS["shmget"], NUMBERS["msgget"], NUMBERS["semget"] = (29, 194), (68, 186), (64, 190)
kept = socket.socket(socket.AF_UNIX)
kept.bind("\\0tiltyard-neighbour")
kept.listen()
for make in (lambda: call("shmget", 46173, 4096, 0o1666), lambda: call("msgget", 46173, 0o1666),
             lambda: call("semget", 46173, 1, 0o1666),
             lambda: call("mq_open", b"tiltyard-neighbour", 0o102, 0o666,
                          (ctypes.c_long * 8)(0, 2, 16)),
             lambda: open("/dev/shm/tiltyard-neighbour", "w").close(),
             lambda: open("/tmp/tiltyard-neighbour", "w").close()):
    try:
        make()
    except OSError:
        pass
time.sleep(60)
"""
_FINDS = """
import socket
NUMBERS["shmget"], NUMBERS["msgget"], NUMBERS["semget"] = (29, 194), (68, 186), (64, 190)
attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0tiltyard-neighbour"))
attempt("shared memory", lambda: call("shmget", 46173, 4096, 0))
attempt("message queue", lambda: call("msgget", 46173, 0))
attempt("semaphore", lambda: call("semget", 46173, 1, 0))
attempt("POSIX queue", lambda: call("mq_open", b"tiltyard-neighbour", 0, 0, 0))
attempt("POSIX shared memory", lambda: os.stat("/dev/shm/tiltyard-neighbour"))
attempt("file in /tmp", lambda: os.stat("/tmp/tiltyard-neighbour"))
attempt("file of its own", lambda: first_bytes("/workspace/own"))
with open("/proc/net/unix") as table:
    claim("its name in a table", "tiltyard-neighbour" in table.read(), "not there")
for name in ("shm", "msg", "sem"):
    with open(f"/proc/sysvipc/{name}") as table:
        claim(f"its {name} in a table", len(table.readlines()) > 1, "not there")
for name in os.listdir("/dev/pts"):
    if name.isdigit():
        attempt(f"terminal {name}", lambda: opens_for_writing(f"/dev/pts/{name}"))
end()
"""
_LOCKS_SHOWN = """
import fcntl
for path in ("/usr/bin/env", "/usr/bin", "/bin/sh", "/usr/lib"):
    try:
        fd = os.open(path, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fact(path, "locked")
    except OSError as error:
        fact(path, error)
if os.fork():
    end()
os.closerange(0, 3)
time.sleep(5)
"""
_SEES_LOCKS = """
import fcntl
for path in ("/usr/bin/env", "/usr/bin", "/bin/sh", "/usr/lib"):
    try:
        fd = os.open(path, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        claim(f"a lock on {path} that another sandbox notices", False, "free")
    except BlockingIOError:
        claim(f"a lock on {path} that another sandbox notices", True)
    except OSError as error:
        claim(f"a lock on {path} that another sandbox notices", False, error)
end()
"""
_WATCHES = """
import select
try:
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for path in (b"/usr/bin/env", b"/bin/cat", b"/usr/bin/cat", b"/usr/bin/sleep"):
        libc.inotify_add_watch(watch, path, 0x21)  # IN_ACCESS, IN_OPEN
    if watch < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    # What it does itself would show as well, so it only waits.
    seen = select.select([watch], [], [], 1.5)[0]
    claim("noticing which programs others start", bool(seen), seen)
except OSError as error:
    claim("noticing which programs others start", False, error)
end()
"""
_TAKES_QUOTAS = """
instances, most = [], 400
while len(instances) < most:
    fd = libc.inotify_init1(0)
    if fd < 0:
        break
    instances.append(fd)
fact("inotify instances", len(instances))
if os.fork():
    end()
os.closerange(0, 3)
time.sleep(5)
"""
_NEEDS_QUOTAS = """
fd = libc.inotify_init1(0)
claim("the neighbour's own quota is used up", fd < 0, fd)
end()
"""
_FLIGHT = """
import array, socket
kept, sent = [], 0
payload = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1] * 250))]
try:
    while sent < 100_000:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        kept.append(pair)
        pair[0].setblocking(False)
        try:
            while True:
                pair[0].sendmsg([b"x"], payload)
                sent += 250
        except BlockingIOError:
            pass
except OSError as error:
    fact("refused with", error)
fact("descriptors in flight", sent)
hold(1.0)
if os.fork():
    end()
os.closerange(0, 3)
time.sleep(5)
"""
_PASSES = """
import array, socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
    claim("the neighbour can pass no descriptor", False, "")
except OSError as error:
    claim("the neighbour can pass no descriptor", True, error)
end()
"""
_DESCRIPTORS = """
kept = []
try:
    while len(kept) < 100_000:
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    fact("refused with", error)
claim("more descriptors than its limit", len(kept) > number_of("OPEN_FILES"), len(kept))
for _ in range(20):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
    except OSError:
        break
hold()
end()
"""
_TERMINALS = """
import pty
kept = []
try:
    while len(kept) < 6000:
        kept += pty.openpty()
except OSError as error:
    fact("refused with", error)
fact("terminals", len(kept) // 2)
hold()
end()
"""
_OPENS_TERMINAL = """
import pty
try:
    pty.openpty()
    claim("the neighbour gets no terminal", False, "")
except OSError as error:
    claim("the neighbour gets no terminal", True, error)
end()
"""


def _neighbour_says(observed: Observed) -> Finding:
    """What the neighbour found after the attack."""
    done = observed.witness
    if done is None:
        return inconclusive("the neighbour was not asked")
    evidence = evidence_of(done.stdout.text)
    if evidence.worked:
        return escaped("; ".join(f"{name} {what}" for name, what in evidence.worked.items()))
    if not evidence.ends:
        return inconclusive(f"the neighbour did not say: {done.reason} {done.stderr.text[-100:]}")
    return contained("the neighbour noticed nothing")


MANY = replace(SMALL, open_files=1024, memory_bytes=192 * MIB)
UNNOTICED = "the neighbour does not notice"

CASES = (
    Case(
        name="names-of-the-neighbour",
        family=Family.NEIGHBOURS,
        tries="sockets, shared memory, queues, semaphores, files and terminals of the neighbour",
        safe="none of its names exists here",
        programs=(Program(source=_FINDS),),
        beside=Program(source=_LEAVES),
        judge=refuses_all(),
        slow=True,
    ),
    Case(
        name="descriptor-exhaustion",
        family=Family.NEIGHBOURS,
        tries="opens files until it is refused, in many processes",
        safe="refused at its limit; host and neighbour open theirs as before",
        programs=(Program(source=_DESCRIPTORS),),
        judge=refuses_all(may=()),
        limits=replace(SMALL, open_files=512),
        slow=True,
    ),
    Case(
        name="descriptors-in-flight",
        family=Family.NEIGHBOURS,
        tries="sends descriptors that nobody receives, which count for the user as a whole",
        safe=f"{UNNOTICED}, and new sandboxes are made",
        programs=(Program(source=_FLIGHT),),
        witness=Program(source=_PASSES),
        judge=together(ends_with(Reason.EXIT, Reason.OOM), _neighbour_says),
        limits=MANY,
        known=ONE_USER,
        known_rungs=USER_RUNG,
        slow=True,
    ),
    Case(
        name="watch-exhaustion",
        family=Family.NEIGHBOURS,
        tries="takes every inotify instance that its user may have",
        safe=UNNOTICED,
        programs=(Program(source=_TAKES_QUOTAS),),
        witness=Program(source=_NEEDS_QUOTAS),
        judge=together(succeeds(), _neighbour_says),
        limits=MANY,
        slow=True,
    ),
    Case(
        name="terminal-exhaustion",
        family=Family.NEIGHBOURS,
        tries="opens pseudo-terminals until it is refused",
        safe=UNNOTICED,
        programs=(Program(source=_TERMINALS),),
        witness=Program(source=_OPENS_TERMINAL),
        judge=together(ends_with(Reason.EXIT, Reason.OOM), _neighbour_says),
        limits=replace(MANY, open_files=4096),
        slow=True,
    ),
    Case(
        name="locks-on-shown-files",
        family=Family.NEIGHBOURS,
        tries="locks files of the image, which another sandbox would notice",
        safe=UNNOTICED,
        programs=(Program(source=_LOCKS_SHOWN),),
        witness=Program(source=_SEES_LOCKS),
        judge=together(succeeds(), _neighbour_says),
        known=SHARED_INODES,
        slow=True,
    ),
    Case(
        name="watches-on-shown-files",
        family=Family.NEIGHBOURS,
        tries="watches the image's programs, to learn which ones others start",
        safe="it learns of its own only",
        programs=(Program(source=_WATCHES),),
        judge=refuses_all(),
        known=SHARED_INODES,
        slow=True,
    ),
)
