"""Snapshots and their forks: what is frozen by hand, what is the same in two forks, what it costs.

A fork stands on a layer that another sandbox wrote. So a program prepares what would mean more to
an overlay below than it did above, and the forks, whose programs are asked apart, must not see it.
"""

from tiltyard.core.execution import MIB, ExecResult
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
    evidence_of,
    inconclusive,
    program,
    succeeds,
    tasks_reached,
    together,
)

ERRORS = ("SandboxError", "SandboxFileError", "SandboxRefused")
GROWN_BYTES_MAX = 256 * MIB
"""Far over the 16 MiB that the sandbox may write, because others use the machine's memory too."""

FORKS_MIN = 2
CHANCES_MIN = 7

_SAVES_CHANCE = """
import random
with open("seed", "wb") as file:
    file.write(os.urandom(64))
random.seed(1)
end()
"""
_CHANCE = """
import random, uuid
fact("kernel", os.urandom(16).hex())
fact("call", os.getrandom(16).hex())
with open("/dev/urandom", "rb") as file:
    fact("device", file.read(16).hex())
with open("/proc/sys/kernel/random/uuid") as file:
    fact("uuid", file.read().strip())
fact("random", random.getrandbits(128))
fact("hash", hash("seed of this process"))
fact("address", id(object()))
with open("/proc/self/auxv", "rb") as file:
    words = memoryview(file.read()).cast("N")
    at = dict(zip(words[::2], words[1::2]))
    fact("sixteen bytes of the kernel's", ctypes.string_at(at[25], 16).hex())  # AT_RANDOM
end()
"""
_BY_HAND = r"""
import shutil
secret = os.environ["HOST_SECRET_PATH"]
shutil.copy("/bin/sh", "raised")
os.chmod("raised", 0o6755)
able = bytes.fromhex("01000002" + "00000020" + "00" * 12)
for name, value in (("security.capability", able), ("trusted.overlay.opaque", b"y")):
    try:
        os.setxattr("raised", name, value)
    except OSError as error:
        fact(name, error)
def owned(uid):
    with open(f"owned-{uid & 0xffffffff}", "w") as file:
        file.write("own")
    os.chown(file.name, uid, uid)
for uid in (1234, 65534, 65535, 65536, 2_000_000_000, 2**32 - 2):
    try:
        owned(uid)
    except (OSError, OverflowError) as error:
        fact(f"owner {uid}", error)
for place in ("/workspace/white", "/etc/passwd-", "/tmp/white", "/dev/shm/white", "/white"):
    try:
        os.mknod(place, 0o020000, os.makedev(0, 0))
        fact(f"whiteout {place}", "made")
    except OSError as error:
        fact(f"whiteout {place}", error)
for name, kind, number in (("zero", 0o020666, (1, 5)), ("memory", 0o020666, (1, 1)),
                           ("disk", 0o060666, (8, 0)), ("kvm", 0o020666, (10, 232))):
    try:
        os.mknod(name, kind, os.makedev(*number))
        fact(f"device {name}", "made")
    except OSError as error:
        fact(f"device {name}", error)
def moved(old, new):
    if libc.renameat2(-100, old, -100, new, 4):  # RENAME_WHITEOUT
        raise OSError(ctypes.get_errno(), "renameat2")
with open("left", "w") as file:
    file.write("own")
try:
    moved(b"left", b"moved")
    fact("a whiteout by renaming", "made")
except OSError as error:
    fact("a whiteout by renaming", error)
os.mkdir("opaque")
os.mkdir("/etc/own")
for name in (".wh.plain", ".wh..wh..opq", ".wh..wh.aufs", "#1", "work", "index", "incompat"):
    os.mkdir(f"opaque/{name}")
with open("plain", "w") as file:
    file.write("own")
end()
"""
_LOOKS_AT_IT = """
import stat
about = os.stat("raised")
claim("a device that was made", any(
    stat.S_ISCHR(os.lstat(name).st_mode) or stat.S_ISBLK(os.lstat(name).st_mode)
    for name in os.listdir(".")), "none")
for name in sorted(os.listdir(".")):
    if name.startswith("owned-"):
        is_own = os.stat(name).st_uid in {int(name[6:]), 0, 65534}
        claim(f"owner of {name}", not is_own, os.stat(name).st_uid)
for path in ("plain", "opaque/.wh.plain", "/etc/own", "/bin/sh", "/etc/passwd", "raised"):
    claim(f"hiding {path}", not os.path.exists(path), "there")
reads, writes = os.pipe()
if os.fork() == 0:
    os.dup2(writes, 1)
    try:
        os.setgroups([])
        os.setresgid(1234, 1234, 1234)
        os.setresuid(1234, 1234, 1234)
        os.execv("raised", ["sh", "-p", "-c",
                            "while read -r a b c d; do case $a in Uid:|Gid:|CapEff:) echo $a $c;;"
                            " esac; [ $a = CapEff: ] && echo $a $b; done < /proc/self/status"])
    except OSError as error:
        os.write(1, f"refused {error}".encode())
    os._exit(0)
os.close(writes)
os.wait()
said = os.read(reads, 4096).decode().split("\\n")
fact("as another user", said)
claim("the rights of the owner", "Uid: 0" in said or "Gid: 0" in said, said[:2])
end()
"""
_ATTRIBUTES = r"""
secret = os.environ["HOST_SECRET_PATH"]
os.makedirs("redirected/below")
os.mkdir("opaque")
os.mkdir("/etc/opaque")
for name in ("meta", "origin", "white", "redirected/below/plain", "opaque/plain"):
    with open(name, "w") as file:
        file.write("own")
values = {"redirect": [b"/etc", b"/", b"..", b"/proc/1/root", os.path.dirname(secret).encode(),
                       b"../" * 30 + b"etc", b"/" + b"x" * 3000],
          "metacopy": [b"", b"\0\x24\0\1" + bytes(32)], "opaque": [b"y", b"x"],
          "origin": [b"", b"\0\xfb\x1d\0\1" + bytes(24), b"\xff" * 200], "whiteout": [b"y"],
          "impure": [b"y"], "nlink": [b"U+9"], "upper": [b"\0\xfb\x1d\0\1" + bytes(24)],
          "uuid": [bytes(16)], "protattr": [b"ia"], "overlay.redirect": [b"/etc"],
          "overlay.opaque": [b"y"], "overlay.overlay.opaque": [b"y"]}
made = 0
for path in ("redirected", "redirected/below", "opaque", "meta", "origin", "white", "/etc", "/usr",
             "/etc/opaque", "/", "/workspace", "/tmp"):
    for name, contents in values.items():
        for value in contents:
            for prefix in ("user.overlay.", "trusted.overlay."):
                try:
                    os.setxattr(path, prefix + name, value)
                    made += 1
                except OSError:
                    pass
fact("attributes that were taken", made)
end()
"""
_LOOKS_BELOW = """
for path, names in (("redirected", {"below"}), ("redirected/below", {"plain"}),
                    ("opaque", {"plain"})):
    found = set(os.listdir(path))
    claim(f"what {path} holds", found != names, found)
for path in ("meta", "origin", "white", "redirected/below/plain", "opaque/plain"):
    with open(path) as file:
        content = file.read()
    claim(f"what {path} says", content != "own", content[:80])
attempt("another tree below", lambda: first_bytes("redirected/passwd"))
attempt("a layer's own directory", lambda: os.listdir("/work"))
end()
"""
_BOMB = """
stop = time.monotonic() + 4
made = 0
while time.monotonic() < stop and made < 20_000:
    try:
        made += 1
        if os.fork() == 0:
            with open(f"/workspace/file-{os.getpid() % 200}", "w") as file:
                file.write("x" * 2000)
            os.fork()
            os._exit(0)
        os.waitpid(-1, os.WNOHANG)
    except OSError:
        hold(0.001)
end()
"""
_FAT = """
for number in range(8):
    with open(f"sparse-{number}", "wb") as file:
        file.truncate(512 << 20)
        for at in range(0, 512 << 20, 64 << 20):
            file.seek(at)
            file.write(b"x")
with open("hole", "wb") as file:
    file.truncate(1 << 40)
with open("many", "w") as file:
    file.write("own" * 100_000)
for number in range(500):
    os.link("many", f"many-{number}")
end()
"""
_FORK = FileRequest(operation=FileOperation.FORK, path="plain")


def _forks_say(observed: Observed) -> Finding:
    """What the programs in the forks found."""
    for forked in observed.forked:
        if not isinstance(forked, ExecResult):
            return inconclusive(f"not run in a fork: {forked.error}: {forked.message}")
        evidence = evidence_of(forked.stdout.text)
        if evidence.worked:
            return escaped("; ".join(f"{name}: {what}" for name, what in evidence.worked.items()))
        if not evidence.ends:
            return inconclusive(f"a fork's program did not end: {forked.stderr.text[-150:]}")
    if not observed.forked:
        return inconclusive("there was no fork")
    return contained(f"nothing of it took effect in {len(observed.forked)} forks")


def _chance_differs(observed: Observed) -> Finding:
    """No number that comes of chance is the same in two forks."""
    told = [
        evidence_of(forked.stdout.text).facts
        for forked in observed.forked
        if isinstance(forked, ExecResult)
    ]
    if len(told) < FORKS_MIN:
        return inconclusive("there were not two forks")
    first, other = told[:FORKS_MIN]
    if len(first) < CHANCES_MIN or first.keys() != other.keys():
        return inconclusive(f"not all was told: {sorted(first)}, {sorted(other)}")
    same = [name for name, value in first.items() if other[name] == value and name != "address"]
    if same:
        return escaped(f"the same in two forks: {', '.join(same)}")
    return contained(f"{len(first)} kinds of chance differ")


def _memory_is_bounded(observed: Observed) -> Finding:
    grown = max((reply.grown_bytes for reply in observed.replies), default=0)
    if grown > GROWN_BYTES_MAX:
        return escaped(f"{grown / MIB:.0f} MiB more were held for a snapshot")
    return contained(f"{grown / MIB:.0f} MiB more were held at the most")


CASES = (
    Case(
        name="forks-chance",
        family=Family.SNAPSHOTS,
        tries="learns the random numbers of one fork from another one of the same snapshot",
        safe="they differ, as the host compares them",
        programs=(Program(source=_SAVES_CHANCE),),
        in_forks=Program(source=_CHANCE),
        judge=together(program(0, succeeds()), _chance_differs),
        slow=True,
    ),
    Case(
        name="frozen-by-hand",
        family=Family.SNAPSHOTS,
        tries="setuid programs, file capabilities, owners, devices and whiteouts made by hand",
        safe="a fork gets files without power, and nothing is hidden in it",
        programs=(Program(source=_BY_HAND),),
        requests=(_FORK,),
        in_forks=Program(source=_LOOKS_AT_IT),
        judge=together(program(0, succeeds()), answered(may=("plain",), errors=ERRORS), _forks_say),
        slow=True,
    ),
    Case(
        name="frozen-attributes",
        family=Family.SNAPSHOTS,
        tries="attributes that an overlay reads: redirections, metadata copies, origins, whiteouts",
        safe="a fork sees the files as they were, and no other tree",
        programs=(Program(source=_ATTRIBUTES),),
        requests=(FileRequest(operation=FileOperation.FORK, path="redirected/passwd"),),
        in_forks=Program(source=_LOOKS_BELOW),
        judge=together(program(0, succeeds()), answered(errors=ERRORS), _forks_say),
        slow=True,
    ),
    Case(
        name="frozen-fork-bomb",
        family=Family.SNAPSHOTS,
        tries="multiplies, and writes from every process, while its files are frozen",
        safe="snapshots are made or refused in time; the programs go on",
        programs=(
            Program(source="with open('plain', 'w') as file:\n    file.write('own')\nend()"),
            Program(source=_BOMB),
        ),
        requests=(
            FileRequest(operation=FileOperation.FORK, path="plain", times=5),
            FileRequest(operation=FileOperation.DIFF, path="/", times=3),
        ),
        racing=True,
        judge=together(
            program(0, succeeds()),
            answered(may=("plain", "/"), errors=ERRORS),
            tasks_reached,
        ),
        slow=True,
    ),
    Case(
        name="frozen-sparse",
        family=Family.SNAPSHOTS,
        tries="terabytes of holes and hundreds of links to one file, frozen again and again",
        safe="what is held is what was written, as the machine's memory tells",
        programs=(Program(source=_FAT),),
        requests=(FileRequest(operation=FileOperation.FORK, path="many-3", times=3),),
        judge=together(
            program(0, succeeds()),
            answered(may=("many-3",), errors=ERRORS),
            _memory_is_bounded,
        ),
        slow=True,
    ),
)
