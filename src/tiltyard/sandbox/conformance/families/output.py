"""What a program says and what it is told: endless, unreadable, unread, or far too long."""

from tiltyard.core.execution import MIB, Reason
from tiltyard.sandbox.conformance.case import (
    Case,
    Family,
    Finding,
    Language,
    NotRun,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_with,
    escaped,
    exits_with,
    in_time,
    inconclusive,
    ran,
    succeeds,
    together,
)

KEPT_BYTES_MAX = MIB
"""More than any provider keeps of one stream."""

_ENDLESS = "while :; do echo yes; done"
_GIGABYTE = """
block = b"x" * (1 << 20)
for _ in range(1024):
    os.write(1, block)
end()
"""
_NO_TEXT = r"""
os.write(1, bytes(range(256)) * 64 + b"\xed\xa0\x80\xf0\x28\x8c\x28\xff")
os.write(2, b"\x1b]0;title\x07\x1b[2J\x1b[31m" * 100 + b"\xc3")
"""
_BOTH = """
import threading
def flood(fd):
    for _ in range(400):
        os.write(fd, b"y" * 65536)
threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""
_CLOSES = """
os.closerange(0, 3)
time.sleep(0.2)
os._exit(3)
"""
_ARGUMENTS = """
def executes(arguments, variables):
    child = os.fork()
    if child == 0:
        try:
            os.execve("/bin/sh", arguments, variables)
        except OSError as error:
            os._exit(error.errno)
        os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
fact("2 MiB in one argument", executes(["sh", "-c", ":", "x" * (2 << 20)], {}))
fact("2 MiB of arguments", executes(["sh", "-c", ":"] + ["x" * 1000] * 2000, {}))
fact("2 MiB of environment", executes(["sh", "-c", ":"], {str(n): "x" * 1000 for n in range(2000)}))
words, names = (ctypes.c_char_p * 1)(None), (ctypes.c_char_p * 1)(None)
child = os.fork()
if child == 0:
    os.closerange(0, 3)
    libc.execve(b"/bin/true", words, names)
    os._exit(ctypes.get_errno() or 254)
fact("no argument at all", os.waitpid(child, 0)[1])
end()
"""
_FRAMES = r"""
import struct
frame = struct.pack("<IBBHI", 4, 69, 0, 0, 1) + b"\0\0\0\0"
for fd in range(0, number_of("OPEN_FILES")):
    try:
        os.write(fd, frame * 3)
        fact(f"descriptor {fd}", "written")
    except OSError:
        pass
say("")
os._exit(5)
"""


def _bounded(observed: Observed) -> Finding:
    results = ran(observed)
    if not results:
        return inconclusive("not run")
    kept = max(len(s.head) + len(s.tail) for each in results for s in (each.stdout, each.stderr))
    if kept > KEPT_BYTES_MAX:
        return escaped(f"the host kept {kept} bytes of one stream")
    total = max(each.stdout.total_bytes + each.stderr.total_bytes for each in results)
    return contained(f"{total} bytes came, {kept} were kept")


def _decodes(observed: Observed) -> Finding:
    results = ran(observed)
    if not results:
        return inconclusive("not run")
    stream = results[0].stdout
    if stream.total_bytes != 256 * 64 + 8 or not stream.text:
        return escaped(f"{stream.total_bytes} bytes were counted")
    return contained("counted to the byte, and shown as text all the same")


def _refused_typed(observed: Observed) -> Finding:
    for each in observed.results:
        if isinstance(each, NotRun) and each.error not in {"ValueError", "UsageError"}:
            return escaped(f"it raised {each.error}: {each.message}")
        if not isinstance(each, NotRun) and each.reason is not Reason.START_FAILED:
            return escaped(f"it was run: {each.reason}")
    return contained("refused with a typed error")


def _exits_five(observed: Observed) -> Finding:
    done = ran(observed)
    if len(done) != 1 or done[0].exit_code != 5:
        return escaped(f"its end came back as {done}")
    return contained("what it wrote is output and nothing else")


CASES = (
    Case(
        name="endless-output",
        family=Family.OUTPUT,
        tries="writes for ever",
        safe="ended at its output limit or deadline; the host keeps head and tail",
        programs=(Program(source=_ENDLESS, language=Language.SHELL, output_bytes_max=MIB),),
        judge=together(ends_with(Reason.OUTPUT), _bounded),
        slow=True,
    ),
    Case(
        name="gigabyte-without-a-newline",
        family=Family.OUTPUT,
        tries="a line of a gigabyte",
        safe="ended at its output limit; the host keeps head and tail",
        programs=(Program(source=_GIGABYTE),),
        judge=together(ends_with(Reason.OUTPUT), _bounded),
        slow=True,
    ),
    Case(
        name="two-streams-at-once",
        family=Family.OUTPUT,
        tries="floods standard output and standard error from two threads",
        safe="both count against one limit",
        programs=(Program(source=_BOTH, output_bytes_max=4 * MIB),),
        judge=together(ends_with(Reason.OUTPUT), _bounded),
        slow=True,
    ),
    Case(
        name="no-text",
        family=Family.OUTPUT,
        tries="bytes that are no UTF-8, half characters, and commands to a terminal",
        safe="captured as bytes, and readable as text",
        programs=(Program(source=_NO_TEXT),),
        judge=together(ends_with(Reason.EXIT), _decodes),
    ),
    Case(
        name="unread-input",
        family=Family.OUTPUT,
        tries="never reads the megabyte that it is given as input",
        safe="its end does not wait for that",
        programs=(Program(source="exit 0", language=Language.SHELL, stdin=b"x" * MIB),),
        judge=together(exits_with(0), in_time()),
    ),
    Case(
        name="closed-streams",
        family=Family.OUTPUT,
        tries="closes its input and outputs and goes on",
        safe="its result comes with its end",
        programs=(Program(source=_CLOSES),),
        judge=together(exits_with(3), in_time()),
        slow=True,
    ),
    Case(
        name="arguments-from-the-host",
        family=Family.OUTPUT,
        tries="2 MiB of arguments, a NUL byte and no argument at all, asked of the host",
        safe="refused with a typed error, and nothing is started",
        programs=(
            Program(language=Language.ARGV, arguments=("true", "x" * (2 * MIB))),
            Program(language=Language.ARGV, arguments=("true", "a\0b")),
            Program(language=Language.ARGV, arguments=()),
        ),
        judge=_refused_typed,
    ),
    Case(
        name="arguments-inside",
        family=Family.OUTPUT,
        tries="2 MiB of arguments and environment, and an empty argument list, inside",
        safe="refused by the kernel, or run as any other program",
        programs=(Program(source=_ARGUMENTS),),
        judge=succeeds(),
        slow=True,
    ),
    Case(
        name="forged-frames",
        family=Family.OUTPUT,
        tries="writes the supervisor's own protocol into every descriptor it has",
        safe="taken for output",
        programs=(Program(source=_FRAMES),),
        judge=together(ends_with(Reason.EXIT), _exits_five),
        slow=True,
    ),
    Case(
        name="missing-program",
        family=Family.OUTPUT,
        tries="is not there, is a directory, or is no program",
        safe="told as not started",
        programs=(
            Program(language=Language.ARGV, arguments=("/nowhere/program",)),
            Program(language=Language.ARGV, arguments=("/usr",)),
            Program(language=Language.ARGV, arguments=("/etc/passwd",)),
            Program(language=Language.ARGV, arguments=("true",), cwd="/nowhere"),
        ),
        judge=ends_with(Reason.START_FAILED),
        slow=True,
    ),
)
