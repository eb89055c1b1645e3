"""The disk: more of it than is given, and things on it that it was not meant for."""

from dataclasses import replace

from tiltyard.core.execution import MIB, Reason
from tiltyard.sandbox.conformance.case import (
    SMALL,
    Case,
    Family,
    FileOperation,
    FileRequest,
    Language,
    Program,
)
from tiltyard.sandbox.conformance.judging import (
    answered,
    ends_with,
    fact_within,
    program,
    refuses_all,
    succeeds,
    together,
)

_FILLS = """
block, most, taken = bytes(1 << 18), 2 * number_of("DISK_BYTES"), 0
for directory in ("/workspace", "/tmp", "/var/tmp", "/dev/shm", "/root", "/run", "/etc", "/"):
    try:
        with open(directory + "/fill", "wb", buffering=0) as file:
            while taken < most:
                taken += file.write(block)
    except OSError as error:
        fact(f"refused in {directory} with", error)
fact("taken", taken)
hold()
end()
"""
_FILLS_INODES = """
made, most = 0, 3 * number_of("INODES")
for directory in ("/workspace", "/tmp", "/dev/shm"):
    try:
        while made < most:
            os.close(os.open(f"{directory}/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError as error:
        fact(f"refused in {directory} with", error)
fact("made", made)
hold()
end()
"""
_SPARSE = """
import mmap
def grow():
    with open("/workspace/sparse", "wb") as file:
        file.truncate(1 << 40)
    return "a file of a terabyte"
try:
    fact("sparse", grow())
except OSError as error:
    fact("sparse", error)
with open("/workspace/sparse", "rb") as file:
    fact("read", len(file.read(8 << 20)))
end()
"""
_SPARSE_MAP = """
import mmap
taken, most = 0, 2 * number_of("DISK_BYTES")
with open("/workspace/sparse", "w+b") as file:
    file.truncate(most)
    area = mmap.mmap(file.fileno(), most)
    child = os.fork()
    if child == 0:
        for at in range(0, most, 4096):
            area[at] = 1
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    claim("a map larger than the disk", status == 0, status)
    fact("taken", os.fstat(file.fileno()).st_blocks * 512)
end()
"""
_DEEP = """
depth = 0
try:
    os.mkdir("deep")
    os.chdir("deep")
    while depth < 5000:
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        depth += 1
except OSError as error:
    fact("refused with", error)
fact("depth", depth)
end()
"""
_WIDE = """
os.mkdir("wide")
try:
    for number in range(6000):
        os.close(os.open(f"wide/{number:0250d}", os.O_CREAT | os.O_WRONLY))
except OSError as error:
    fact("refused with", error)
end()
"""
_DELETES = """
import shutil
for tree in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/etc"):
    if not os.path.isdir(tree) or os.path.islink(tree):
        continue
    if of_the_host(tree):
        claim(f"the host's own {tree} could be deleted", True)
        end()
    shutil.rmtree(tree, ignore_errors=True)
shutil.rmtree("/workspace", ignore_errors=True)
say("end")
os._exit(0)
"""
_CHANGES_IMAGE = """
env = "/usr/bin/env"
if of_the_host("/usr/bin"):
    claim("the host's own /usr/bin could be changed", True)
    end()
for name, action in (
    ("mode", lambda: os.chmod(env, 0o777)), ("owner", lambda: os.chown(env, 0, 0)),
    ("times", lambda: os.utime(env)), ("link", lambda: os.link(env, "/usr/bin/tiltyard-link")),
    ("attribute", lambda: os.setxattr(env, "user.x", b"y")),
    ("name", lambda: os.rename(env, "/usr/bin/tiltyard-env")),
    ("content", lambda: open("/usr/bin/tiltyard-env", "ab").write(b"x")),
    ("end", lambda: os.unlink("/usr/bin/tiltyard-env")),
    ("device times", lambda: os.utime("/dev/null")), ("device", lambda: os.remove("/dev/null")),
):
    try:
        action()
        fact(name, "changed in the sandbox's own view")
    except OSError as error:
        fact(name, error)
end()
"""
_IMMUTABLE = """
import fcntl, struct
with open("/workspace/file", "w") as file:
    attempt("immutable", lambda: fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x10)))
    attempt("append-only", lambda: fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x20)))
attempt("swap on it", lambda: call("swapon", b"/workspace/file", 0))
attempt("quota on it", lambda: call("quotactl", 0x80000200, b"/workspace/file", 0, b"/workspace/q"))
attempt("accounting on it", lambda: call("acct", b"/workspace/file"))
end()
"""
_OVERLAY = """
os.makedirs("/workspace/trap/below", exist_ok=True)
for name, value in (("redirect", b"/../../../../../../etc"), ("opaque", b"y"), ("metacopy", b""),
                    ("origin", b"x"), ("whiteout", b"y")):
    for kind in ("trusted", "user"):
        for path in ("/workspace/trap", "/usr", "/"):
            try:
                os.setxattr(path, f"{kind}.overlay.{name}", value)
                fact(f"{kind}.overlay.{name} of {path}", "set")
            except OSError as error:
                fact(f"{kind}.overlay.{name} of {path}", error)
def whiteout():
    os.mknod("/workspace/trap/white", 0o020000, os.makedev(0, 0))
try:
    whiteout()
except OSError as error:
    fact("whiteout", error)
for top, names, files in os.walk("/workspace"):
    for name in files:
        try:
            say(first_bytes(os.path.join(top, name)))
        except (OSError, ValueError):
            pass
attempt("the host's shadow file", lambda: first_bytes("/workspace/trap/shadow"))
attempt("the host's secret", lambda: first_bytes(os.environ["HOST_SECRET_PATH"]))
end()
"""
_AFTER = Program(source="echo x > /workspace/more && rm /workspace/more", language=Language.SHELL)


def _where_it_may(case: Case) -> Case:
    """The same case in a sandbox whose root may change the image's own files."""
    return replace(case, name=f"{case.name}-writable", writable=True)


_CASES = (
    Case(
        name="disk-fill",
        family=Family.DISK,
        tries="fills every directory that it may write to",
        safe="refused at its disk limit, all directories together",
        programs=(Program(source=_FILLS),),
        judge=together(
            ends_with(Reason.DISK, Reason.EXIT),
            fact_within("taken", lambda limits: limits.disk_bytes + MIB),
        ),
        slow=True,
    ),
    Case(
        name="inode-fill",
        family=Family.DISK,
        tries="makes empty files until it is refused",
        safe="refused at its limit on inodes",
        programs=(Program(source=_FILLS_INODES),),
        judge=together(
            ends_with(Reason.DISK, Reason.EXIT),
            fact_within("made", lambda limits: limits.inodes),
        ),
        slow=True,
    ),
    Case(
        name="sparse-terabyte",
        family=Family.DISK,
        tries="a sparse file of a terabyte, which the host is then asked to read",
        safe="the host refuses to read it before its memory is gone",
        programs=(Program(source=_SPARSE),),
        requests=(FileRequest(operation=FileOperation.READ, path="sparse"),),
        judge=together(program(0, succeeds()), answered()),
        slow=True,
    ),
    Case(
        name="sparse-map",
        family=Family.DISK,
        tries="writes through a map of a file larger than its disk",
        safe="ended by a bus error at its disk limit",
        programs=(Program(source=_SPARSE_MAP),),
        judge=together(refuses_all(), fact_within("taken", lambda limits: limits.disk_bytes + MIB)),
    ),
    Case(
        name="deep-tree",
        family=Family.DISK,
        tries="directories in directories, deeper than any path reaches",
        safe="bounded by its inodes; listing and closing work as ever",
        programs=(Program(source=_DEEP),),
        requests=(
            FileRequest(operation=FileOperation.LIST, path="deep"),
            FileRequest(operation=FileOperation.READ, path="/".join(["deep", *["d" * 100] * 36])),
        ),
        judge=together(program(0, succeeds()), answered(may=("deep",))),
        slow=True,
    ),
    Case(
        name="wide-directory",
        family=Family.DISK,
        tries="thousands of long names in one directory, to burst the host's list",
        safe="bounded: the host gets a list or a refusal",
        programs=(Program(source=_WIDE),),
        requests=(FileRequest(operation=FileOperation.LIST, path="wide"),),
        judge=together(program(0, succeeds()), answered(may=("wide",))),
        limits=replace(SMALL, inodes=8192),
        slow=True,
    ),
    Case(
        name="deleted-system",
        family=Family.DISK,
        tries="deletes /bin, /sbin, /etc and its own working directory",
        safe="the host's and the neighbour's files are as they were; its supervisor lives on",
        programs=(Program(source=_DELETES),),
        requests=(
            FileRequest(operation=FileOperation.WRITE, path="again", content=b"x"),
            FileRequest(operation=FileOperation.READ, path="again"),
        ),
        judge=together(program(0, succeeds()), answered(may=("again",))),
        slow=True,
    ),
    Case(
        name="changed-image",
        family=Family.DISK,
        tries="changes mode, owner, name and content of the image's files and devices",
        safe="refused, or changed in its own view only",
        programs=(Program(source=_CHANGES_IMAGE),),
        judge=succeeds(),
        slow=True,
    ),
    Case(
        name="immutable-files",
        family=Family.DISK,
        tries="flags that would keep its files from being removed; swap, quota and accounting",
        safe="refused",
        programs=(Program(source=_IMMUTABLE),),
        judge=refuses_all(),
    ),
    Case(
        name="overlay-attributes",
        family=Family.DISK,
        tries="attributes and device nodes by which an overlay would show other files",
        safe="nothing of the host or of another layer comes to light",
        programs=(Program(source=_OVERLAY), _AFTER),
        judge=program(0, refuses_all()),
        slow=True,
    ),
)

_TWICE = {"deleted-system", "changed-image", "overlay-attributes"}
CASES = (*_CASES, *(_where_it_may(case) for case in _CASES if case.name in _TWICE))
