"""The kernel's own memory, taken by what a program has it keep: pipes, sockets, tables, locks."""

from dataclasses import replace

from tiltyard.core.execution import MIB
from tiltyard.sandbox.conformance.case import SMALL, Case, Family, Program
from tiltyard.sandbox.conformance.families.memory import BOUNDED, MANY_FILES, SAFE, WHOLE
from tiltyard.sandbox.conformance.judging import refuses_all

_PIPES = """
import fcntl
block, most, taken, kept = bytes(4096), 2 * number_of("MEMORY_BYTES"), 0, []
try:
    while taken < most:
        out, into = os.pipe()
        kept += [out, into]
        os.set_blocking(into, False)
        try:
            fcntl.fcntl(into, 1031, 1 << 20)  # F_SETPIPE_SZ
        except OSError:
            pass  # a smaller one then
        try:
            while True:
                taken += os.write(into, block)
        except BlockingIOError:
            pass
        fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_SOCKETS = """
import socket
block, most, taken, kept = bytes(65536), 2 * number_of("MEMORY_BYTES"), 0, []
try:
    while taken < most:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        kept.append(pair)
        for one in pair:
            one.setblocking(False)
            try:
                while True:
                    taken += one.send(block)
            except BlockingIOError:
                pass
        fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_PAGE_TABLES = """
import mmap
step, touches = 2 << 20, 2 * number_of("MEMORY_BYTES") // 8192
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
try:
    area = mmap.mmap(-1, step * touches, flags=flags)
    area.madvise(15)  # MADV_NOHUGEPAGE: a touch is to cost two small pages, not a large one
    for turn in range(touches):
        area[turn * step] = 1
        if turn % 1024 == 0:
            fact("taken", turn * 8192)
except (OSError, MemoryError, ValueError) as error:
    fact("refused with", error)
hold()
end()
"""
_XATTRS = """
value, most, taken = bytes(60000), 2 * number_of("MEMORY_BYTES"), 0
try:
    for number in range(900):
        open(f"/tmp/{number}", "w").close()
        for turn in range(16):
            if taken > most:
                break
            os.setxattr(f"/tmp/{number}", f"user.{turn}", value)
            taken += len(value)
        fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_TIMERS = """
made, most = 0, 200_000
event = ctypes.create_string_buffer(64)
ctypes.c_int.from_buffer(event, 12).value = 1  # SIGEV_NONE
try:
    while made < most:
        call("timer_create", 1, event, ctypes.byref(ctypes.c_int()))
        made += 1
except OSError as error:
    fact("refused with", error)
fact("timers", made)
hold()
end()
"""
_MESSAGES = """
NUMBERS["msgget"], NUMBERS["msgsnd"] = (68, 186), (69, 189)
text = ctypes.create_string_buffer(8008)
ctypes.c_long.from_buffer(text).value = 1
most, taken = 2 * number_of("MEMORY_BYTES"), 0
try:
    while taken < most:
        queue = call("msgget", 0, 0o1600)
        try:
            while True:
                call("msgsnd", queue, text, 8000, 0o4000)
                taken += 8000
        except BlockingIOError:
            fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_FILE_LOCKS = """
import fcntl
ranges, bytes_each, made = 350, 192, 0
most = 2 * number_of("MEMORY_BYTES") // bytes_each
kept = []
try:
    while made < most:
        kept.append(open(f"/workspace/{len(kept)}", "w"))
        for turn in range(ranges):  # apart, because neighbours would become one
            fcntl.lockf(kept[-1], fcntl.LOCK_EX, 1, 2 * turn)
            made += 1
except OSError as error:
    fact("refused with", error)
fact("locks", made)
fact("taken", made * bytes_each)
hold()
end()
"""
_LOCKS = """
block = ctypes.create_string_buffer(1 << 20)
def lock(name, *args):
    ctypes.set_errno(0)
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)
attempt("mlockall", lambda: lock("mlockall", 3))
attempt("mlock", lambda: lock("mlock", block, ctypes.c_size_t(1 << 20)))
for name in ("a", "b", "c"):
    attempt_call("mq_open", f"tiltyard-{name}".encode(), 0o102, 0o600, None)
end()
"""

CASES = (
    Case(
        name="memory-full-pipes",
        family=Family.MEMORY,
        tries="hundreds of pipes, each of the largest size, filled and never read",
        safe="the kernel's own memory counts too: refused or ended at the limit",
        programs=(Program(source=_PIPES),),
        judge=BOUNDED,
        limits=MANY_FILES,
        needs=WHOLE,
        slow=True,
    ),
    Case(
        name="memory-full-sockets",
        family=Family.MEMORY,
        tries="hundreds of socket pairs, filled and never read",
        safe="the kernel's own memory counts too: refused or ended at the limit",
        programs=(Program(source=_SOCKETS),),
        judge=BOUNDED,
        limits=MANY_FILES,
        needs=WHOLE,
        slow=True,
    ),
    Case(
        name="memory-page-tables",
        family=Family.MEMORY,
        tries="touches one page in each two MiB, so that page tables cost as much",
        safe=SAFE,
        programs=(Program(source=_PAGE_TABLES),),
        judge=BOUNDED,
        needs=WHOLE,
        slow=True,
    ),
    Case(
        name="memory-xattrs",
        family=Family.MEMORY,
        tries="attributes of files, which are no part of their size",
        safe="refused, or counted as its memory",
        programs=(Program(source=_XATTRS),),
        judge=BOUNDED,
        needs=WHOLE,
        ends_sandbox=True,
        slow=True,
    ),
    Case(
        name="memory-timers",
        family=Family.MEMORY,
        tries="as many kernel timers as it is given",
        safe="refused, or counted as its memory",
        programs=(Program(source=_TIMERS),),
        judge=BOUNDED,
        slow=True,
    ),
    Case(
        name="memory-messages",
        family=Family.MEMORY,
        tries="System V message queues, thousands of them, filled and never read",
        safe="the kernel's own memory counts too: refused or ended at the limit",
        programs=(Program(source=_MESSAGES),),
        judge=BOUNDED,
        needs=WHOLE,
        ends_sandbox=True,
        slow=True,
    ),
    Case(
        name="memory-file-locks",
        family=Family.MEMORY,
        tries="locks on hundreds of thousands of parts of its files",
        safe="refused, or counted as its memory",
        programs=(Program(source=_FILE_LOCKS),),
        judge=BOUNDED,
        limits=replace(SMALL, memory_bytes=32 * MIB, open_files=1024, inodes=2048),
        known="Linux counts locks on files into no cgroup",
        slow=True,
    ),
    Case(
        name="memory-locks-and-queues",
        family=Family.MEMORY,
        tries="memory that is locked, and message queues, which are memory as well",
        safe="refused",
        programs=(Program(source=_LOCKS),),
        judge=refuses_all(),
    ),
)
