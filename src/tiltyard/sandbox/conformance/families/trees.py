"""Whole trees into a sandbox and out of it, while programs lay traps and change them.

What came out is read where it lies on the host, so a link that was followed shows as the host's
secret, and one that was taken along as no plain file. What went in and was led astray changes the
host's secret, which the host looks at.
"""

from dataclasses import replace

from tiltyard.core.execution import Limits
from tiltyard.sandbox.conformance.case import (
    SMALL,
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

ERRORS = ("SandboxFileError", "TreeError")
RACE_S = 2.0

_PLACES = """
target = os.path.dirname(os.environ["HOST_SECRET_PATH"])
for directory in ("tree/real", "tree/a/b"):
    os.makedirs(directory)
for path in ("tree/real/secret", "tree/a/b/secret", "tree/plain"):
    with open(path, "w") as file:
        file.write("own")
os.symlink(target, "outward")
end()
"""
_SWAPS = f"""
import shutil
target = os.path.dirname(os.environ["HOST_SECRET_PATH"])
def again():  # what the host has made in a place that was free for a moment is in the way
    shutil.rmtree("tree", ignore_errors=True)
    for left in ("tree", "aside"):
        if os.path.islink(left) or os.path.isfile(left):
            os.unlink(left)
    shutil.rmtree("aside", ignore_errors=True)
    for directory in ("tree/real", "tree/a/b"):
        os.makedirs(directory, exist_ok=True)
    for path in ("tree/real/secret", "tree/a/b/secret", "tree/plain"):
        with open(path, "w") as file:
            file.write("own")
stop, swaps = time.monotonic() + {RACE_S}, 0
while time.monotonic() < stop:
    for path, link in (("tree/a/b", target), ("tree/real", "/proc/self/root" + target),
                       ("tree/plain", os.environ["HOST_SECRET_PATH"]), ("tree", "outward")):
        try:
            os.rename(path, "aside")
            os.symlink(link, path)
            os.unlink(path)
            os.rename("aside", path)
            swaps += 1
        except OSError:
            try:
                again()
            except OSError:
                pass
fact("swaps", swaps)
end()
"""
_CHANGES_KIND = f"""
import socket
stop = time.monotonic() + {RACE_S}
kinds = [lambda path: os.mkfifo(path), lambda path: os.symlink("/dev/zero", path),
         lambda path: os.symlink("/proc/self/root" + os.environ["HOST_SECRET_PATH"], path),
         lambda path: socket.socket(socket.AF_UNIX).bind(path), lambda path: os.mkdir(path),
         lambda path: os.link("tree/plain", path), lambda path: os.mkfifo(path, 0)]
turn = 0
while time.monotonic() < stop:
    turn += 1
    for path in ("tree/a/b/secret", "tree/real/secret"):
        try:
            kinds[turn % len(kinds)]("next")
            if os.path.isdir("next") and not os.path.islink("next"):
                os.unlink(path)
            os.rename("next", path)
            hold(0.001)
            if os.path.isdir(path):
                os.rmdir(path)
            with open("next", "w") as file:
                file.write("own" * (turn % 9000))
            os.chmod("next", 0o6777)
            os.rename("next", path)
        except OSError as error:
            fact(path, error)
            for left in ("next", path):
                try:
                    os.rmdir(left) if os.path.isdir(left) else os.unlink(left)
                except OSError:
                    pass
end()
"""
_GROWS = f"""
stop = time.monotonic() + {RACE_S}
number = 0
os.mkdir("tree/wide")
while time.monotonic() < stop:
    number += 1
    try:
        with open(f"tree/wide/{{number % 700}}", "wb") as file:
            file.truncate(1 << 38)
        os.mkdir("tree/next")
        os.rename("tree/a", "tree/next/a")
        os.rename("tree/next", "tree/a")
    except OSError:
        try:
            os.truncate("tree/plain", (number % 5) << 18)
        except OSError:
            pass
end()
"""


def _download(path: str, times: int) -> FileRequest:
    return FileRequest(operation=FileOperation.DOWNLOAD, path=path, times=times)


def _upload(path: str, times: int) -> FileRequest:
    return FileRequest(
        operation=FileOperation.UPLOAD, path=path, content=b"of the host", times=times
    )


def _only_its_own(observed: Observed) -> Finding:
    """What came out is of the sandbox's own making."""
    for reply in observed.replies:
        strange = reply.content.replace(b"own", b"").replace(b"of the host", b"").strip(b"\0")
        if reply.request.operation is FileOperation.DOWNLOAD and strange:
            return escaped(f"something else came out: {strange[:80]!r}")
    names = sum(len(reply.names) for reply in observed.replies)
    return contained(f"{names} entries came out, all plain and its own")


def _race(
    name: str, tries: str, source: str, *requests: FileRequest, limits: Limits = SMALL
) -> Case:
    return Case(
        name=name,
        family=Family.FILES,
        tries=tries,
        safe="what comes out is plain and its own, what goes in stays inside, or it is refused",
        programs=(Program(source=_PLACES), Program(source=source)),
        requests=requests,
        racing=True,
        judge=together(
            program(0, succeeds()),
            succeeds(),
            answered(may={each.path for each in requests}, errors=ERRORS),
            _only_its_own,
        ),
        limits=limits,
        slow=True,
    )


CASES = (
    _race(
        "tree-out-swapped",
        "swaps directories and files for links to the host's while a tree is fetched",
        _SWAPS,
        _download("tree", 100),
        _download(".", 100),
    ),
    _race(
        "tree-in-swapped",
        "swaps directories for links to the host's while a tree is sent",
        _SWAPS,
        _upload("tree/a", 150),
        _upload("tree", 150),
    ),
    _race(
        "tree-out-traps",
        "pipes, sockets, endless devices and /proc/self/root in place of files that are fetched",
        _CHANGES_KIND,
        _download("tree", 120),
        FileRequest(operation=FileOperation.DOWNLOAD, path="/proc/self/root"),
        FileRequest(operation=FileOperation.DOWNLOAD, path="/dev"),
    ),
    _race(
        "tree-out-endless",
        "hundreds of sparse files of 256 GiB, and directories that sink deeper while fetched",
        _GROWS,
        _download("tree", 60),
        limits=replace(SMALL, inodes=4096),
    ),
)
"""What a tree may hold at the most is the host's own limit, so refusing it in time is enough."""
