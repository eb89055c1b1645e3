"""Traps for what freezes and compares a sandbox's files, which is a process of the host's own.

It walks a tree that hostile programs made, outside of their sandbox and with more rights. So links,
pipes, endless files, depths and names are laid in its way, and changed while it walks.
"""

from tiltyard.sandbox.conformance.case import (
    Case,
    Family,
    FileOperation,
    FileRequest,
    Finding,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.judging import (
    answered,
    contained,
    escaped,
    program,
    succeeds,
    together,
)

ERRORS = ("SandboxError", "SandboxFileError", "SandboxRefused")
_DIFF = FileRequest(operation=FileOperation.DIFF, path="/")

_TRAPS = r"""
import socket
secret = os.environ["HOST_SECRET_PATH"]
os.mkdir("traps")
os.chdir("traps")
for name, target in (("link", secret), ("root", "/proc/1/root"), ("up", "../" * 40 + "etc"),
                     ("self", "self"), ("device", "/dev/zero"), ("own", "/proc/self/exe")):
    os.symlink(target, name)
os.mkfifo("pipe")
bound = socket.socket(socket.AF_UNIX)
bound.bind("socket")
with open("sparse", "wb") as file:
    try:
        file.truncate(1 << 40)
    except OSError as error:
        fact("sparse", error)
with open("many", "w") as file:
    file.write("x")
for number in range(200):
    os.link("many", f"many-{number}")
for name in (b"a\nb", b"\xff\xfe", b"-rf", b"x" * 255, b"\x1b[2J"):
    with open(name, "wb") as file:
        file.write(b"content")
os.mkdir("closed", 0)
with open("setuid", "w") as file:
    file.write("x")
os.chmod("setuid", 0o6777)
for name in ("user.overlay.opaque", "user.overlay.redirect", "user.x", "trusted.overlay.opaque"):
    for path in ("setuid", "closed"):
        try:
            os.setxattr(path, name, b"y" * 1000)
        except OSError as error:
            fact(f"{name} of {path}", error)
for path in ("/etc/passwd", "/etc/hosts"):
    os.unlink(path)
os.symlink(secret, "/etc/passwd")
os.mkdir("/etc/hosts")
with open("/workspace/kept", "w") as file:
    file.write("kept")
end()
"""
_DEPTHS = """
os.mkdir("deep")
os.chdir("deep")
try:
    for _ in range(2000):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
except OSError as error:
    fact("refused with", error)
end()
"""
_MOVES = """
target = os.path.dirname(os.environ["HOST_SECRET_PATH"])
os.makedirs("tree/a/b", exist_ok=True)
os.symlink(target, "tree/a/outward")
with open("kept", "w") as file:
    file.write("kept")
stop = time.monotonic() + 2.0
while time.monotonic() < stop:
    with open("tree/a/b/secret", "w") as file:
        file.write("x" * 5000)
    os.rename("tree/a/b", "tree/a/aside")
    os.rename("tree/a/outward", "tree/a/b")
    os.rename("tree/a/b", "tree/a/outward")
    os.rename("tree/a/aside", "tree/a/b")
    os.unlink("tree/a/b/secret")
end()
"""


def _names_the_traps(observed: Observed) -> Finding:
    names = {name for reply in observed.replies for name in reply.names}
    missing = {"/workspace/kept", "/workspace/traps/link", "/etc/passwd"} - names
    if missing:
        return escaped(f"changes were hidden: {', '.join(sorted(missing))}")
    return contained(f"{len(names)} changes named, and none followed")


CASES = (
    Case(
        name="frozen-traps",
        family=Family.FILES,
        tries="links outwards, pipes, a sparse terabyte, strange names and attributes, frozen",
        safe="compared and forked without following, blocking or hiding any",
        programs=(Program(source=_TRAPS),),
        requests=(
            _DIFF,
            FileRequest(operation=FileOperation.FORK, path="kept"),
            FileRequest(operation=FileOperation.FORK, path="traps/link"),
            FileRequest(operation=FileOperation.FORK, path="/etc/passwd"),
        ),
        judge=together(
            program(0, succeeds()), answered(may=("/", "kept"), errors=ERRORS), _names_the_traps
        ),
        slow=True,
    ),
    Case(
        name="frozen-depths",
        family=Family.FILES,
        tries="a tree deeper than any path, frozen and compared",
        safe="answered, or refused with a typed error",
        programs=(Program(source=_DEPTHS),),
        requests=(_DIFF, FileRequest(operation=FileOperation.FORK, path="deep/x")),
        judge=together(program(0, succeeds()), answered(may=("/",), errors=ERRORS)),
        slow=True,
    ),
    Case(
        name="frozen-race",
        family=Family.FILES,
        tries="moves directories and links about while its files are frozen and compared",
        safe="whatever is met is inside",
        programs=(Program(source="end()"), Program(source=_MOVES)),
        requests=(
            FileRequest(operation=FileOperation.DIFF, path="/", times=6),
            FileRequest(operation=FileOperation.FORK, path="tree/a/b/secret", times=3),
        ),
        racing=True,
        judge=together(succeeds(), answered(may=("/", "tree/a/b/secret"), errors=ERRORS)),
        slow=True,
    ),
)
