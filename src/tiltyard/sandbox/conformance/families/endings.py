"""Not ending: programs that outlive their deadline, their parent, or the supervisor."""

from tiltyard.core.execution import Reason
from tiltyard.sandbox.conformance.case import Case, Family, Language, Program
from tiltyard.sandbox.conformance.judging import (
    ends_with,
    exits_with,
    in_time,
    program,
    refuses_all,
    succeeds,
    together,
)

_DAEMON = """
libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        for turn in range(3000):
            with open("/workspace/ticks", "w") as file:
                file.write(str(turn))
            time.sleep(0.01)
    os._exit(0)
time.sleep(60)
"""
_HYDRA = """
os.setsid()
for turn in range(20_000):  # each one lives only until it has made the next
    if turn % 20 == 0:
        with open("/workspace/ticks", "w") as file:
            file.write(str(turn))
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        pass
"""
_WITH_HYDRA = f"""
if os.fork() == 0:
    os.closerange(0, 3)
    exec({_HYDRA!r})
    os._exit(0)
time.sleep(60)
"""
_STILL_TICKING = """
def ticks():
    with open("/workspace/ticks") as file:
        return file.read()
first = ticks()
hold(0.5)
claim("living on after the deadline", ticks() != first, first)
end()
"""
_DEAF = """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
time.sleep(60)
"""
_STOPS_ALL = """
only_inside("pid")
os.fork()  # with nobody else to reach, it would be an error
os.kill(-1, 19)
time.sleep(60)
"""
_KILLS_ALL = """
only_inside("pid")
if os.fork() == 0:
    time.sleep(60)
os.kill(-1, 9)
end()
"""
_KILLS_FIRST = """
import signal
only_inside("pid")
first = os.pidfd_open(1) if hasattr(os, "pidfd_open") else -1
for number in range(1, 65):
    for send in (lambda: os.kill(1, number), lambda: call("tkill", 1, number),
                 lambda: call("pidfd_send_signal", first, number, None, 0)):
        try:
            send()
        except OSError:
            pass
end()
"""
_KILLS_MANY = """
only_inside("pid")
for pid in range(2, 400):
    if pid != os.getpid():
        try:
            os.kill(pid, 9)
        except OSError:
            pass
import signal
signal.signal(15, signal.SIG_IGN)
os.kill(0, 15)
end()
"""
_STOP_SELF = "os.kill(os.getpid(), 19)\ntime.sleep(60)\n"
_ENDED = together(ends_with(Reason.WALL_TIMEOUT), in_time())

CASES = (
    Case(
        name="daemon",
        family=Family.PROCESSES,
        tries="a double fork in a session of its own, to live on after the deadline",
        safe="it ends with the program that started it",
        programs=(Program(source=_DAEMON, timeout_s=1.0), Program(source=_STILL_TICKING)),
        judge=together(program(0, ends_with(Reason.WALL_TIMEOUT)), program(1, refuses_all())),
        slow=True,
    ),
    Case(
        name="hydra",
        family=Family.PROCESSES,
        tries="a process that is another one before it can be killed, again and again",
        safe="it ends with the program that started it",
        programs=(Program(source=_WITH_HYDRA, timeout_s=1.0), Program(source=_STILL_TICKING)),
        judge=together(program(0, ends_with(Reason.WALL_TIMEOUT)), program(1, refuses_all())),
        slow=True,
    ),
    Case(
        name="child-holds-output",
        family=Family.PROCESSES,
        tries="ends, but leaves a child that holds its output open",
        safe="its result comes when it ends, not when the child does",
        programs=(Program(source="sleep 60 & echo started", language=Language.SHELL),),
        judge=together(exits_with(0), in_time()),
    ),
    Case(
        name="deaf-to-signals",
        family=Family.PROCESSES,
        tries="ignores every signal that can be ignored",
        safe="killed at its deadline",
        programs=(Program(source=_DEAF, timeout_s=0.5),),
        judge=_ENDED,
        slow=True,
    ),
    Case(
        name="stops-itself",
        family=Family.PROCESSES,
        tries="stops itself with SIGSTOP, so that it never gets on",
        safe="killed at its deadline",
        programs=(Program(source=_STOP_SELF, timeout_s=0.5),),
        judge=_ENDED,
        slow=True,
    ),
    Case(
        name="stops-everybody",
        family=Family.PROCESSES,
        tries="sends SIGSTOP to every process it can reach",
        safe="the supervisor cannot be stopped, and ends it at its deadline",
        programs=(Program(source=_STOPS_ALL, timeout_s=0.5),),
        judge=_ENDED,
        slow=True,
    ),
    Case(
        name="kills-everybody",
        family=Family.PROCESSES,
        tries="kill(-1, SIGKILL)",
        safe="the supervisor and everything outside lives on",
        programs=(Program(source=_KILLS_ALL),),
        judge=succeeds(),
    ),
    Case(
        name="signals-to-the-first-process",
        family=Family.PROCESSES,
        tries="every signal to process 1, by number, thread and descriptor",
        safe="the supervisor lives on",
        programs=(Program(source=_KILLS_FIRST),),
        judge=succeeds(),
    ),
    Case(
        name="signals-to-every-number",
        family=Family.PROCESSES,
        tries="kills process numbers as the host has them, and its own group",
        safe="none of them is outside",
        programs=(Program(source=_KILLS_MANY),),
        judge=succeeds(),
    ),
)
