"""What the host reads and writes of a sandbox, while hostile programs lay traps for it."""

from tiltyard.core.execution import Reason
from tiltyard.sandbox.conformance.case import (
    Case,
    Family,
    FileOperation,
    FileRequest,
    Finding,
    Language,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.judging import (
    answered,
    contained,
    ends_with,
    escaped,
    inconclusive,
    program,
    succeeds,
    together,
)

_LINKS = """
secret = os.environ["HOST_SECRET_PATH"]
os.symlink(secret, "link")
os.symlink("../" * 40 + secret.lstrip("/"), "upward")
os.symlink("/proc/1/root" + secret, "through-proc")
os.symlink("/proc/self/root" + secret, "through-self")
os.symlink("/proc/self/cwd/../../../.." + secret, "through-cwd")
os.symlink(os.path.dirname(secret), "directory")
end()
"""
_SPECIAL = """
import socket
os.mkfifo("fifo")
bound = socket.socket(socket.AF_UNIX)
bound.bind("socket")
os.symlink("loop", "loop")
os.symlink("/dev/zero", "zero")
os.symlink("/proc/self/mem", "memory")
os.symlink("/proc/1/environ", "environment")
os.symlink("/proc/self/fd/1", "descriptor")
end()
"""
_NAMES = r"""
os.mkdir(b"names")
for name in (b"a\nb", b"\xff\xfe", b"-rf", b"x" * 255, b"...", b" ", b"\x1b[2J", b"$(id)", b"*"):
    with open(b"names/" + name, "wb") as file:
        file.write(b"content")
end()
"""
_PLACES = """
target = os.path.dirname(os.environ["HOST_SECRET_PATH"])
for directory in ("real", "a/b/c"):
    os.makedirs(directory)
for path in ("real/secret", "a/b/c/secret"):
    with open(path, "w") as file:
        file.write("own")
os.symlink("real", "spot")
os.symlink(target, "a/outward")
end()
"""
_SWAPS_LINKS = """
target = os.path.dirname(os.environ["HOST_SECRET_PATH"])
stop = time.monotonic() + 1.5
while time.monotonic() < stop:
    os.symlink("real", "next")
    os.rename("next", "spot")
    os.symlink(target, "next")
    os.rename("next", "spot")
end()
"""
_SWAPS_DIRECTORIES = """
moves = (("b", "aside"), ("outward", "b"), ("b", "outward"), ("aside", "b"))
stop = time.monotonic() + 1.5
while time.monotonic() < stop:
    for old, new in moves:
        try:
            os.rename(f"a/{old}", f"a/{new}")
        except OSError:
            pass  # the host has just made a directory there
end()
"""
_LEASES = """
import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
for name in ("leased", "locked"):
    with open(name, "w") as file:
        file.write("x")
leased = os.open("leased", os.O_RDWR)
try:
    fcntl.fcntl(leased, 1024, fcntl.F_WRLCK)  # F_SETLEASE
except OSError as error:
    fact("lease", error)
locked = os.open("locked", os.O_RDWR)
fcntl.flock(locked, fcntl.LOCK_EX)
fcntl.lockf(locked, fcntl.LOCK_EX)
hold(2.0)
end()
"""
_GROWS = """
stop = time.monotonic() + 1.5
while time.monotonic() < stop:
    with open("moving", "wb") as file:
        file.write(bytes(3 << 20))
        file.truncate(10)
end()
"""
NAMES = {
    *("a\nb", "\udcff\udcfe", "-rf", "x" * 255, "...", " ", "\x1b[2J", "$(id)", "*"),
}
BOTH = (FileOperation.READ, FileOperation.WRITE)


def _requests(*paths: str, times: int = 1) -> tuple[FileRequest, ...]:
    return tuple(
        FileRequest(operation=operation, path=path, content=b"of the host", times=times)
        for path in paths
        for operation in BOTH
    )


def _reads(*paths: str) -> tuple[FileRequest, ...]:
    return tuple(FileRequest(operation=FileOperation.READ, path=path) for path in paths)


def _names_come_back(observed: Observed) -> Finding:
    if not observed.replies:
        return inconclusive("nothing was asked")
    listed, *contents = observed.replies
    if set(listed.names) != NAMES:
        return escaped(f"the names came back as {sorted(listed.names)!r} {listed.error}")
    wrong = [reply for reply in contents if reply.content != b"content"]
    if wrong:
        return escaped(f"{wrong[0].request.path[:60]!r} was not found again: {wrong[0].error}")
    return contained(f"{len(listed.names)} names came back as they were")


CASES = (
    Case(
        name="links-to-the-host",
        family=Family.FILES,
        tries="links and paths that lead the host to a file of its own",
        safe="every path is the sandbox's own; the file is neither read nor changed",
        programs=(Program(source=_LINKS),),
        requests=(
            *_reads("link", "upward", "through-proc", "through-self", "through-cwd"),
            *_reads("directory/secret", "{secret}", "../../../../../..{secret}"),
            *_reads("/proc/self/root{secret}", "/proc/1/cwd{secret}"),
            FileRequest(operation=FileOperation.LIST, path="directory"),
            *(
                FileRequest(operation=FileOperation.WRITE, path=path, content=b"hostile")
                for path in ("through-proc", "through-self", "/proc/self/root{secret}")
            ),
        ),
        judge=together(program(0, succeeds()), answered()),
    ),
    Case(
        name="special-files",
        family=Family.FILES,
        tries="pipes, sockets, devices and kernel files where the host expects a file",
        safe="refused at once: nothing blocks, nothing endless is read",
        programs=(Program(source=_SPECIAL),),
        requests=_requests(
            *("fifo", "socket", "loop", "zero", "memory", "environment", "descriptor"),
            *("/dev/zero", "/dev/tty", "/dev/ptmx", "/proc/self/mem", "/proc/kmsg", "/proc/1/maps"),
            *("/proc/sys/kernel/hostname", "/dev/fd/0", "/workspace"),
        ),
        judge=together(program(0, succeeds()), answered()),
    ),
    Case(
        name="strange-names",
        family=Family.FILES,
        tries="names with newlines, invalid UTF-8, 255 bytes, options, escapes and shell code",
        safe="they come back as they are, and nothing reads more into them",
        programs=(Program(source=_NAMES),),
        requests=(
            FileRequest(operation=FileOperation.LIST, path="names"),
            *_reads(*(f"names/{name}" for name in sorted(NAMES))),
        ),
        judge=together(program(0, succeeds()), _names_come_back),
    ),
    Case(
        name="no-paths",
        family=Family.FILES,
        tries="paths that are none: empty, with a NUL, too long, upwards for ever",
        safe="refused with a typed error, or resolved inside",
        programs=(Program(source="true", language=Language.SHELL),),
        requests=(
            *_requests("", "a\0b", "x" * 300, "y/" * 3000 + "z", "/"),
            *_reads("../" * 200 + "etc/shadow", "etc/passwd/x", "/etc/passwd/."),
        ),
        judge=together(ends_with(Reason.EXIT), answered()),
    ),
    Case(
        name="link-race",
        family=Family.FILES,
        tries="swaps a link between its own and a host's directory while the host reads and writes",
        safe="whatever is hit is inside",
        programs=(Program(source=_PLACES), Program(source=_SWAPS_LINKS)),
        requests=_requests("spot/secret", times=150),
        racing=True,
        judge=together(succeeds(), answered(may=("spot/secret",))),
        slow=True,
    ),
    Case(
        name="rename-race",
        family=Family.FILES,
        tries="moves directories away under the host's feet, with a link in their place",
        safe="whatever is hit is inside",
        programs=(Program(source=_PLACES), Program(source=_SWAPS_DIRECTORIES)),
        requests=_requests("a/b/c/secret", "a/b/../../a/b/c/secret", times=100),
        racing=True,
        judge=together(succeeds(), answered(may=("a/b/c/secret", "a/b/../../a/b/c/secret"))),
        slow=True,
    ),
    Case(
        name="leases-and-locks",
        family=Family.FILES,
        tries="a lease and locks on files, for which an opener would wait 45 seconds",
        safe="the host is answered at once",
        programs=(Program(source=_LEASES),),
        requests=_requests("leased", "locked", times=20),
        racing=True,
        judge=together(succeeds(), answered(may=("leased", "locked"))),
        slow=True,
    ),
    Case(
        name="growing-file",
        family=Family.FILES,
        tries="a file that grows and shrinks while it is read",
        safe="the host gets something bounded",
        programs=(Program(source=_GROWS),),
        requests=(FileRequest(operation=FileOperation.READ, path="moving", times=10),),
        racing=True,
        judge=together(succeeds(), answered(may=("moving",))),
        slow=True,
    ),
)
