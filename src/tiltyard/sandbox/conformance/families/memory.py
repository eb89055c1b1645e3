"""Memory, by every way a program can take it. None takes more than twice its limit."""

from dataclasses import replace

from tiltyard.core.execution import MIB, Enforcement, Limit, Reason
from tiltyard.sandbox.conformance.case import SMALL, Case, Family, Finding, Observed, Program
from tiltyard.sandbox.conformance.judging import (
    ends_with,
    memory_within,
    refuses_all,
    together,
    tried_all,
)

WHOLE = frozenset({Limit.MEMORY})
LARGE_DISK = replace(SMALL, memory_bytes=64 * MIB, disk_bytes=512 * MIB)
MANY_FILES = replace(SMALL, memory_bytes=64 * MIB, open_files=512)

_ALLOCATES = """
blocks, most, taken = [], 2 * number_of("MEMORY_BYTES"), 0
try:
    while taken < most:
        blocks.append(b"x" * (4 << 20))
        taken += 4 << 20
        fact("taken", taken)
except MemoryError:
    fact("refused at", taken)
hold()
end()
"""
_FORKS_AND_ALLOCATES = """
share = number_of("MEMORY_BYTES") * 2 // 5
for _ in range(5):
    if os.fork() == 0:
        block = b"x" * share
        hold(1.0)
        os._exit(0)
ends = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(5)]
claim("together over the limit", not any(ends), ends)
end()
"""
_WRITES_FILE = """
import sys
block, most, taken = bytes(1 << 20), 2 * number_of("MEMORY_BYTES"), 0
try:
    with open(sys.argv[1], "wb", buffering=0) as file:
        while taken < most:
            taken += file.write(block)
            if not taken % (8 << 20):
                fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_SYSV = """
libc.shmat.restype = ctypes.c_void_p
size, most, taken = 8 << 20, 2 * number_of("MEMORY_BYTES"), 0
while taken < most:
    segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
    at = libc.shmat(segment, None, 0) if segment >= 0 else None
    if at in (None, 2**64 - 1):
        fact("refused with", os.strerror(ctypes.get_errno()))
        break
    ctypes.memset(at, 1, size)
    libc.shmdt(ctypes.c_void_p(at))
    taken += size
    fact("taken", taken)
hold()
end()
"""
_MEMFD = """
block, most, taken, kept = bytes(1 << 20), 2 * number_of("MEMORY_BYTES"), 0, []
try:
    while taken < most:
        kept.append(os.memfd_create("x"))
        for _ in range(8):
            taken += os.write(kept[-1], block)
        fact("taken", taken)
except OSError as error:
    fact("refused with", error)
hold()
end()
"""
_PAGE_CACHE = """
most, done = 2 * number_of("MEMORY_BYTES"), 0
for top, _, names in os.walk("/usr"):
    for name in names:
        path = os.path.join(top, name)
        if done < most and os.path.isfile(path) and not os.path.islink(path):
            try:
                with open(path, "rb") as file:
                    while block := file.read(1 << 20):
                        done += len(block)
            except OSError:
                pass
fact("read", done)
end()
"""


def _named(observed: Observed) -> Finding:
    """It was refused memory and came to its end, or is told as out of memory.

    Where a cgroup counts the kernel's kills, no other name will do. Where none does, memory is the
    address space of each process, and a program may fall over an allocation that fails.
    """
    if observed.enforced.get(Limit.MEMORY) is Enforcement.CGROUP:
        return ends_with(Reason.OOM, Reason.EXIT)(observed)
    return ends_with(Reason.OOM, Reason.EXIT, Reason.SIGNAL)(observed)


BOUNDED = together(_named, tried_all, memory_within)
SAFE = "it is refused or ended at its memory limit, and named as out of memory"

CASES = (
    Case(
        name="memory-malloc",
        family=Family.MEMORY,
        tries="one process takes twice its memory limit",
        safe=SAFE,
        programs=(Program(source=_ALLOCATES),),
        judge=BOUNDED,
        slow=True,
    ),
    Case(
        name="memory-of-many-processes",
        family=Family.MEMORY,
        tries="five processes, each below the limit, take twice of it together",
        safe=SAFE,
        programs=(Program(source=_FORKS_AND_ALLOCATES),),
        judge=together(_named, refuses_all(killed=True), memory_within),
        needs=WHOLE,
        slow=True,
    ),
    Case(
        name="memory-tmpfs",
        family=Family.MEMORY,
        tries="a file in /tmp over the memory limit, on a disk that would hold it",
        safe="its files count as memory: ended at the limit, if need be with its sandbox",
        programs=(Program(source=_WRITES_FILE, arguments=("/tmp/file",)),),  # noqa: S108
        judge=BOUNDED,
        limits=LARGE_DISK,
        needs=WHOLE,
        ends_sandbox=True,
        slow=True,
    ),
    Case(
        name="memory-dev-shm",
        family=Family.MEMORY,
        tries="a file in /dev/shm over the memory limit",
        safe="shared memory is part of the sandbox's disk and memory: ended at the limit",
        programs=(Program(source=_WRITES_FILE, arguments=("/dev/shm/file",)),),  # noqa: S108
        judge=BOUNDED,
        limits=LARGE_DISK,
        needs=WHOLE,
        ends_sandbox=True,
        slow=True,
    ),
    Case(
        name="memory-sysv",
        family=Family.MEMORY,
        tries="System V shared memory that no process has mapped",
        safe="ended at the limit, if need be with its sandbox, since no program's end frees it",
        programs=(Program(source=_SYSV),),
        judge=BOUNDED,
        needs=WHOLE,
        ends_sandbox=True,
        slow=True,
    ),
    Case(
        name="memory-memfd",
        family=Family.MEMORY,
        tries="anonymous files in memory",
        safe=SAFE,
        programs=(Program(source=_MEMFD),),
        judge=BOUNDED,
        needs=WHOLE,
        slow=True,
    ),
    Case(
        name="memory-page-cache",
        family=Family.MEMORY,
        tries="reads twice its memory limit of the image's files",
        safe="what is cached for it is given back: it ends well, within its limit",
        programs=(Program(source=_PAGE_CACHE),),
        judge=together(ends_with(Reason.EXIT), tried_all, memory_within),
        limits=MANY_FILES,
        slow=True,
    ),
)
