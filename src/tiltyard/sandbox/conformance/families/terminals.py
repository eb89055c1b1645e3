"""Terminals, programs left in the background, and input that nobody reads.

The host holds an end of each: of a terminal the one that a person would type at, of a program in
the background its id, of an input what has not been taken yet.
"""

from dataclasses import replace

from tiltyard.core.execution import MIB, Reason
from tiltyard.sandbox.conformance.case import (
    SMALL,
    Case,
    Family,
    FileOperation,
    FileRequest,
    Finding,
    Judge,
    Language,
    NotRun,
    Observed,
    Program,
    Stays,
)
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_of,
    ends_with,
    escaped,
    exits_with,
    fact_within,
    in_time,
    inconclusive,
    program,
    refuses_all,
    tasks_reached,
    together,
)

KIB = 1024
TERMINALS_MAX = 256
INPUT_BYTES_MAX = 512 * KIB
"""What a pipe and the way to it may hold of an input that nobody reads, with some to spare."""
KEPT_BYTES_MAX = 256 * KIB
CGROUPS_NEEDED = "found beside other programs only where each has a cgroup of its own"
CGROUPS_USED_UP = "128 programs that left something running have used up the cgroups for programs"
LEAVERS = 140
"""More than the programs for which a provider may keep something."""
LEAVES = Program(source="sleep 120 >/dev/null 2>&1 </dev/null &", language=Language.SHELL)

_TYPES = """
import fcntl, pty, select, termios, tty
fact("a terminal", os.isatty(0) and os.ttyname(0))
tty.setraw(0)
own, other = pty.openpty()
for name, fd in (("its own", 0), ("another one", other), ("the other end", own)):
    for number in (0x5412, 0x5412 | 1 << 32):  # TIOCSTI
        attempt(f"typing into {name} {number:#x}", lambda: call("ioctl", fd, number, b"x"))
    attempt(f"pasting into {name}", lambda: fcntl.ioctl(fd, 0x541C, b"\\x03" + bytes(64)))
    attempt(f"console to {name}", lambda: fcntl.ioctl(fd, 0x541D))
    attempt(f"line discipline of {name}",
            lambda: fcntl.ioctl(fd, 0x5423, (99).to_bytes(4, "little")))
    attempt(f"locking the settings of {name}", lambda: fcntl.ioctl(fd, 0x5457, bytes(60)))
attempt("taking another's terminal", lambda: fcntl.ioctl(other, termios.TIOCSCTTY, 1))
attempt("hanging up", lambda: call("vhangup"))
for path in ("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs", "/dev/pts/ptmx/x"):
    attempt(path, lambda: opens_for_writing(path))
claim("something typed by itself", bool(select.select([0], [], [], 0.2)[0]), "nothing to read")
end()
"""
_CLOSES = """
import fcntl, signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
try:
    fcntl.ioctl(0, 0x5422)  # TIOCNOTTY
except OSError:
    pass
os.closerange(0, 64)
if os.fork() == 0:
    os.setsid()
time.sleep(60)
"""
_FLOODS = """
import tty
tty.setraw(0)
block = b"\\x1b[2J\\x1b]0;title\\x07\\x1b[6n\\x1bP\\x00\\xff\\r" * 2000
for _ in range(1500):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
end()
"""
_MANY = """
import pty
kept = []
try:
    while len(kept) < 4000:
        kept += pty.openpty()
except OSError as error:
    fact("refused with", error)
fact("terminals", len(kept) // 2 + 1)
hold()
end()
"""
_SLEEPS = "exec sleep 60"
_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        for turn in range(3000):
            with open("/workspace/next", "w") as file:
                file.write(str(turn))
            os.rename("/workspace/next", "/workspace/ticks")
            time.sleep(0.01)
    os._exit(0)
time.sleep(60)
"""
_AWAITS_DAEMON = """
while not os.path.exists("/workspace/ticks"):
    time.sleep(0.01)
end()
"""
_DAEMONS = """
made, stop = 0, time.monotonic() + 5
while made < 400 and time.monotonic() < stop:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(20)
            os._exit(0)
        made += 1
    except OSError:
        time.sleep(0.01)
time.sleep(60)
"""
_DAEMON_BESIDE = (
    Program(source=_SLEEPS, language=Language.SHELL, stays=Stays.BESIDE),
    Program(source=_DAEMON, stays=Stays.UNTIL_KILLED),
    Program(source=_AWAITS_DAEMON),
    Program(source="true", language=Language.SHELL),
)
_TICKS = FileRequest(operation=FileOperation.READ, path="ticks")


def _daemon_is_gone(observed: Observed) -> Finding:
    """Its file stays as it is, as the host reads it twice."""
    first, later = observed.replies
    if first.error or later.error or not first.content:
        return inconclusive(f"it did not begin: {ends_of(observed)}")
    if first.content != later.content:
        return escaped(f"it lives on after its program was killed: {later.content!r}")
    return contained("it ended with the program that was killed")


def _input_is_bounded(observed: Observed) -> Finding:
    taken = observed.fed_bytes
    if not taken:
        return inconclusive(f"nothing was written to it: {ends_of(observed)}")
    if taken > INPUT_BYTES_MAX:
        return escaped(f"{taken / MIB:.1f} MiB were taken for a program that reads nothing")
    return contained(f"{taken // KIB} KiB were taken before the writer had to wait")


def _output_is_bounded(observed: Observed) -> Finding:
    for each in observed.results:
        if isinstance(each, NotRun):
            return inconclusive(f"not run: {each.error}: {each.message}")
        kept = len(each.stdout.head) + len(each.stdout.tail) + len(each.stderr.head)
        if kept > KEPT_BYTES_MAX:
            return escaped(f"the host keeps {kept // KIB} KiB of it")
    return contained(f"bounded on the host: {ends_of(observed)}")


def _daemon_beside(first: int) -> tuple[Judge, ...]:
    """Both were killed and the one that waited ended by itself; `first` is the sleeper's place."""
    return (
        program(first, ends_with(Reason.KILLED)),
        program(first + 1, ends_with(Reason.KILLED)),
        program(first + 2, ends_with(Reason.EXIT)),
        _daemon_is_gone,
    )


def _killed_at_its_deadline(name: str, tries: str, made: Program) -> Case:
    return Case(
        name=name,
        family=Family.SESSIONS,
        tries=tries,
        safe="killed at its deadline, and the host is not kept",
        programs=(made,),
        judge=together(ends_with(Reason.WALL_TIMEOUT), in_time()),
        slow=True,
    )


CASES = (
    Case(
        name="typing-at-terminals",
        family=Family.SESSIONS,
        tries="types into its own terminal and into others, takes them, changes what they are",
        safe="refused",
        programs=(Program(source=_TYPES, terminal=True),),
        judge=refuses_all(),
        slow=True,
    ),
    _killed_at_its_deadline(
        "terminal-closed",
        "closes its terminal, ignores every hang-up and leaves its session",
        Program(source=_CLOSES, terminal=True, timeout_s=1.0),
    ),
    Case(
        name="terminal-flooded",
        family=Family.SESSIONS,
        tries="endless control sequences, titles and questions to whoever looks at its terminal",
        safe="ended for its output; the host keeps a bounded part as bytes",
        programs=(Program(source=_FLOODS, terminal=True, output_bytes_max=MIB),),
        judge=together(ends_with(Reason.OUTPUT), _output_is_bounded),
        slow=True,
    ),
    Case(
        name="terminals-at-once",
        family=Family.SESSIONS,
        tries="more terminals than 256, from a program on one",
        safe="held at that number, of which the neighbour's are none",
        programs=(Program(source=_MANY, terminal=True),),
        judge=fact_within("terminals", lambda _: TERMINALS_MAX),
        limits=replace(SMALL, open_files=8192, memory_bytes=192 * MIB),
        slow=True,
    ),
    _killed_at_its_deadline(
        "typing-never-read",
        "reads nothing of what the host types at its terminal",
        Program(
            source=_SLEEPS, language=Language.SHELL, terminal=True, timeout_s=1.0, fed_bytes=4 * MIB
        ),
    ),
    Case(
        name="input-never-read",
        family=Family.SESSIONS,
        tries="reads nothing of an input that the host streams to it",
        safe="the host waits with a bounded part on the way, until the deadline",
        programs=(
            Program(source=_SLEEPS, language=Language.SHELL, timeout_s=1.0, fed_bytes=4 * MIB),
        ),
        judge=together(ends_with(Reason.WALL_TIMEOUT), in_time(), _input_is_bounded),
        slow=True,
    ),
    Case(
        name="daemon-in-the-background",
        family=Family.PROCESSES,
        tries="a double fork in a new session, from a program beside another one",
        safe="gone when its program is killed, and the other one is not",
        programs=_DAEMON_BESIDE,
        requests=(_TICKS, replace(_TICKS, after_s=0.5)),
        judge=together(*_daemon_beside(0)),
        known=CGROUPS_NEEDED,
        known_rungs=frozenset({"user-namespace"}),
        slow=True,
    ),
    Case(
        name="daemon-after-many",
        family=Family.PROCESSES,
        tries="the same after 140 programs that each left something running",
        safe="gone when its program is killed",
        programs=(*(LEAVES,) * LEAVERS, *_DAEMON_BESIDE),
        requests=(_TICKS, replace(_TICKS, after_s=0.5)),
        judge=together(*_daemon_beside(LEAVERS)),
        limits=replace(SMALL, pids=2 * LEAVERS, memory_bytes=192 * MIB),
        known=CGROUPS_USED_UP,
        slow=True,
    ),
    Case(
        name="daemons-in-the-background",
        family=Family.PROCESSES,
        tries="hundreds of daemons in sessions of their own, left behind beside another program",
        safe="held at the limit of processes, and the sandbox can still be used",
        programs=(
            Program(source=_SLEEPS, language=Language.SHELL, stays=Stays.BESIDE),
            Program(source=_DAEMONS, stays=Stays.UNTIL_KILLED),
            Program(source="hold(1.5)\nend()"),
            Program(source="true", language=Language.SHELL),
        ),
        judge=together(program(3, exits_with(0)), in_time(), tasks_reached),
        slow=True,
    ),
)
