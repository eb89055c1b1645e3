"""Processes, threads and CPU time: too many, too long, too important."""

from dataclasses import replace

from tiltyard.core.execution import MIB, Limit, Reason
from tiltyard.sandbox.conformance.case import SMALL, Case, Family, Finding, Observed, Program
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_with,
    escaped,
    exits_with,
    fact_within,
    in_time,
    inconclusive,
    program,
    ran,
    refuses_all,
    tasks_reached,
    together,
)

ROOMY = replace(SMALL, memory_bytes=256 * MIB)
PROCESS_SPARE = 12
"""By which a provider may refuse later: its own processes count, and differently."""
SAFE = "refused at the limit on processes, and the neighbour goes on"

_FORKS = """
made = 0
try:
    while made < 4 * number_of("PIDS"):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError as error:
    fact("refused with", error)
fact("made", made)
hold()
end()
"""
_DOUBLES = """
for _ in range(8):  # 256 processes at the most
    try:
        os.fork()
    except OSError:
        pass
time.sleep(1.0)
os._exit(0)
"""
_THREADS = """
import _thread
_thread.stack_size(128 * 1024)
made = 0
try:
    while made < 4 * number_of("PIDS"):
        _thread.start_new_thread(time.sleep, (20,))
        made += 1
except RuntimeError as error:
    fact("refused with", error)
fact("made", made)
hold()
end()
"""
_ZOMBIES = """
made = 0
try:
    while made < 10_000:
        if os.fork() == 0:
            os._exit(0)
        made += 1
except OSError as error:
    fact("refused with", error)
fact("made", made)
hold()
end()
"""
_ORPHANS = """
made = 0
try:
    while made < 400:
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            os._exit(0)
        os.waitpid(child, 0)
        made += 1
except OSError as error:
    fact("refused with", error)
claim("filling the table with orphans", made < 400, made)
end()
"""
_SPINS = """
for _ in range(3):
    os.fork()
while True:
    pass
"""
_NO_LIMIT = """
import resource
for name in ("NPROC", "NOFILE", "CORE", "MEMLOCK", "MSGQUEUE", "AS", "CPU", "RTPRIO", "NICE"):
    numbers = {"RTPRIO": 14, "NICE": 13, "MSGQUEUE": 12}
    kind = numbers.get(name) or getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY:
        continue
    for wanted in (hard + 1, resource.RLIM_INFINITY):
        attempt(f"raising {name}", lambda: resource.setrlimit(kind, (soft, wanted)))
    fact(name, hard)
two = (ctypes.c_uint64 * 2)(16, 16)
attempt_call("prlimit64", 1, 7, two, None)
end()
"""
_IMPORTANT = """
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("round robin", lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
deadline = (ctypes.c_uint64 * 7)(48 | 6 << 32, 0, 0, 10**6, 10**7, 10**7, 0)
attempt("deadline", lambda: call("sched_setattr", 0, deadline, 0))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("priority of the supervisor", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
attempt("priority of all its user's", lambda: os.setpriority(os.PRIO_USER, 0, 10))
attempt("disk priority", lambda: call("ioprio_set", 1, 0, 1 << 13))
def score(path, value):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)
for value in (b"-1000", b"-1", b"0"):
    attempt("safe from the memory killer", lambda: score("/proc/self/oom_score_adj", value))
attempt("pushing the supervisor forward", lambda: score("/proc/1/oom_score_adj", b"1000"))
end()
"""


def _cpu_share(observed: Observed) -> Finding:
    results = ran(observed)
    if not results:
        return inconclusive("not run")
    done, cpus = results[0], observed.limits.cpus
    most = cpus * done.wall_s * 1.3 + 0.5
    if done.cpu_s > most:
        return escaped(f"{done.cpu_s:.1f} s of CPU in {done.wall_s:.1f} s, with {cpus} CPUs")
    return contained(f"{done.cpu_s:.1f} s of CPU in {done.wall_s:.1f} s, with {cpus} CPUs")


BOUNDED = together(
    ends_with(Reason.EXIT, Reason.PIDS, Reason.OOM, Reason.WALL_TIMEOUT),
    fact_within("made", lambda limits: limits.pids + PROCESS_SPARE),
    tasks_reached,
)

CASES = (
    Case(
        name="fork-bomb",
        family=Family.PROCESSES,
        tries="forks until it is refused",
        safe=SAFE,
        programs=(Program(source=_FORKS),),
        judge=BOUNDED,
        limits=ROOMY,
        slow=True,
    ),
    Case(
        name="fork-bomb-doubling",
        family=Family.PROCESSES,
        tries="every process forks, and so does every child of it",
        safe=SAFE,
        programs=(Program(source=_DOUBLES, timeout_s=3.0),),
        judge=together(
            ends_with(Reason.EXIT, Reason.PIDS, Reason.OOM, Reason.WALL_TIMEOUT), tasks_reached
        ),
        limits=ROOMY,
        slow=True,
    ),
    Case(
        name="thread-bomb",
        family=Family.PROCESSES,
        tries="starts threads until it is refused",
        safe="threads count as processes: refused at the same limit",
        programs=(Program(source=_THREADS),),
        judge=BOUNDED,
        limits=ROOMY,
        slow=True,
    ),
    Case(
        name="zombies",
        family=Family.PROCESSES,
        tries="10,000 children that it never waits for",
        safe=SAFE,
        programs=(Program(source=_ZOMBIES),),
        judge=BOUNDED,
        limits=ROOMY,
        slow=True,
    ),
    Case(
        name="orphans",
        family=Family.PROCESSES,
        tries="hundreds of grandchildren whose parents are gone, to fill the table",
        safe="its supervisor reaps every one",
        programs=(Program(source=_ORPHANS),),
        judge=refuses_all(),
        slow=True,
    ),
    Case(
        name="spinning-processes",
        family=Family.PROCESSES,
        tries="eight busy loops, to starve supervisor, neighbour and host",
        safe="ended at the deadline, while everybody else is answered",
        programs=(Program(source=_SPINS, timeout_s=1.5),),
        judge=together(ends_with(Reason.WALL_TIMEOUT), in_time()),
        slow=True,
    ),
    Case(
        name="cpu-share",
        family=Family.PROCESSES,
        tries="eight busy loops, to use more CPU than its share",
        safe="its share is held, as read from outside",
        programs=(Program(source=_SPINS, timeout_s=1.5),),
        judge=together(ends_with(Reason.WALL_TIMEOUT), _cpu_share),
        limits=replace(SMALL, cpus=0.5),
        needs=frozenset({Limit.CPU}),
        slow=True,
    ),
    Case(
        name="cpu-time",
        family=Family.PROCESSES,
        tries="a busy loop with a limit of one second of CPU, and SIGXCPU ignored",
        safe="ended for its CPU time",
        programs=(
            Program(
                source="import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
                "while True: pass\n",
                cpu_s=1,
            ),
        ),
        judge=ends_with(Reason.CPU_TIMEOUT),
        slow=True,
    ),
    Case(
        name="raised-limits",
        family=Family.PROCESSES,
        tries="raises its own limits, and lowers the supervisor's",
        safe="refused",
        programs=(Program(source=_NO_LIMIT, cpu_s=20),),
        judge=refuses_all(),
    ),
    Case(
        name="more-important-than-others",
        family=Family.PROCESSES,
        tries="real-time scheduling, priorities, and a place safe from the memory killer",
        safe="refused, for itself and for the supervisor",
        programs=(Program(source=_IMPORTANT),),
        judge=refuses_all(),
    ),
    Case(
        name="forged-out-of-memory",
        family=Family.PROCESSES,
        tries="exits with 137, to look as if it had run out of memory",
        safe="it is told as what it is: an exit",
        programs=(Program(source="os._exit(137)"),),
        judge=exits_with(137),
    ),
    Case(
        name="forged-timeout",
        family=Family.PROCESSES,
        tries="kills itself, to look like a timeout or a kill of ours",
        safe="it is told as what it is: a signal",
        programs=(Program(source="os.kill(os.getpid(), 9)\ntime.sleep(9)"),),
        judge=program(0, ends_with(Reason.SIGNAL)),
    ),
)
