"""Programs that swap names under the file interface: it never waits for them and never leaves.

The sandbox's own `/etc/passwd` stands for "elsewhere inside". What must never come is content of
the host, of /proc, or of a device; what must never happen is a supervisor that waits for a program.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.errors import SandboxFileError, TreeError
from tiltyard.core.execution import ExecResult, Limits, Reason
from tiltyard.core.files import Links, Specials
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]
ROUNDS = 300
SWAP = """
import itertools, os, socket
os.makedirs("real", exist_ok=True)
open("real/f", "w").write("real")

def plain(name):
    open(name, "w").write("plain")

makers = [
    plain,
    lambda name: os.symlink("/etc/passwd", name),
    lambda name: os.symlink("/proc/self/root/etc/passwd", name),
    lambda name: os.symlink("/proc/1/environ", name),
    lambda name: os.symlink("/dev/zero", name),
    lambda name: os.symlink("../" * 30 + "etc/passwd", name),
    os.mkfifo,
    os.mkdir,
    lambda name: socket.socket(socket.AF_UNIX).bind(name),
    lambda name: os.symlink(name, name),
]
os.mkdir("d")
for turn in itertools.count():
    try:
        makers[turn % len(makers)]("next")
        try:
            os.rename("next", "d/x")
        except OSError:  # a directory and something else do not replace each other
            if os.path.isdir("d/x") and not os.path.islink("d/x"):
                os.rmdir("d/x")
            else:
                os.unlink("d/x")
            os.rename("next", "d/x")
    except OSError:
        try:
            os.unlink("next")
        except OSError:
            pass
    if turn == 20:
        open("started", "w").close()
"""


@asynccontextmanager
async def running(sandbox: Sandbox, source: str) -> AsyncIterator[None]:
    """A program that goes on until it is killed, known to have begun by the file `started`."""
    async with asyncio.TaskGroup() as group:
        program = group.create_task(
            sandbox.run(["python3", "-I", "-S", "-c", source], timeout_s=100)
        )
        while True:
            with suppress(SandboxFileError):
                await sandbox.files.stat("started")
                break
            if program.done():
                pytest.fail(f"the program ended: {program.result().stderr.text}")
        yield
        assert not program.done(), program.result().stderr.text
        await sandbox.kill()


@pytest.mark.slow
async def test_reading_a_name_that_changes(sandbox: Sandbox) -> None:
    elsewhere = await sandbox.read("/etc/passwd")
    seen: set[bytes] = set()
    rounds = 0
    async with running(sandbox, SWAP):
        while rounds < ROUNDS or not {b"plain", elsewhere} <= seen:
            rounds += 1
            with suppress(SandboxFileError):
                seen.add(await sandbox.read("d/x"))
            with suppress(SandboxFileError):
                await sandbox.files.stat("d/x")
    assert seen - {b""} == {b"plain", elsewhere}


@pytest.mark.slow
async def test_writing_to_a_name_that_changes(sandbox: Sandbox) -> None:
    async with running(sandbox, SWAP):
        for _ in range(ROUNDS):
            for call in (
                sandbox.files.write("d/x", "written"),
                sandbox.files.append("d/x", "added"),
                sandbox.files.chmod("d/x", 0o644),
                sandbox.files.rename("d/x", "d/y"),
                sandbox.files.symlink("d/x", "nowhere"),
                sandbox.files.mkdir("d/x/y", parents=True),
            ):
                with suppress(SandboxFileError):
                    await call
    assert (await sandbox.run(["true"])).ok


@pytest.mark.slow
async def test_trees_that_change(sandbox: Sandbox, tmp_path: Path) -> None:
    plain = tmp_path / "in"
    plain.mkdir()
    (plain / "x").write_bytes(b"sent")
    fetched = uploaded = 0
    allowed = {b"plain", b"", b"sent"}
    number = 0
    async with running(sandbox, SWAP):
        while number < ROUNDS or not fetched or not uploaded:
            number += 1
            out = tmp_path / f"out-{number}"
            with suppress(TreeError):
                await sandbox.files.download("d", out, links=Links.SKIP, specials=Specials.SKIP)
                fetched += 1
                assert {path.read_bytes() for path in out.rglob("*") if path.is_file()} <= allowed
            with suppress(TreeError):
                await sandbox.files.upload(plain, "d")
                uploaded += 1
            with suppress(SandboxFileError):
                await sandbox.files.remove("d/x", recursive=True)
    assert await sandbox.read("real/f") == b"real"


MOVE = """
import itertools, os
os.makedirs("t/a/b/c")
os.makedirs("outside/keep")
open("outside/keep/f", "w").write("kept")
for turn in itertools.count():
    try:
        os.makedirs("t/a/b/c", exist_ok=True)
        for n in range(20):
            open(f"t/a/b/c/{n}", "w").close()
        os.rename("t/a/b", "t/moved")
        os.symlink("../../outside", "t/a/b")
        os.unlink("t/a/b")
        os.rename("t/moved", "t/a/b")
    except OSError:
        pass
    if turn == 20:
        open("started", "w").close()
"""


@pytest.mark.slow
async def test_removing_a_tree_that_moves(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, MOVE):
        for number in range(ROUNDS):
            with suppress(SandboxFileError):
                await sandbox.files.remove("t", recursive=True, timeout_s=0.05)
            with suppress(TreeError):
                await sandbox.files.download(
                    "t", tmp_path / f"out-{number}", links=Links.SKIP, specials=Specials.SKIP
                )
    assert await sandbox.read("outside/keep/f") == b"kept", "no link was followed"
    with suppress(SandboxFileError):
        await sandbox.files.remove("t", recursive=True)
    assert {entry.name for entry in await sandbox.list()} <= {"outside", "started"}


async def test_a_tree_that_only_grows_is_given_up(sandbox: Sandbox) -> None:
    source = """
import itertools, os
os.mkdir("t")
for turn in itertools.count():
    try:
        open(f"t/{turn % 900}", "w").close()
    except OSError:
        os.makedirs("t", exist_ok=True)
    if turn == 20:
        open("started", "w").close()
"""
    async with running(sandbox, source):
        with suppress(SandboxFileError):  # it may win the race for a moment
            await sandbox.files.remove("t", recursive=True, timeout_s=0.2)
        await sandbox.ping()


async def test_a_lease_keeps_nobody_waiting(sandbox: Sandbox, python: RunPython) -> None:
    source = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = os.open("leased", os.O_RDWR | os.O_CREAT)
try:
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    pass  # the sandbox's file system gives none, which is as good
open("started", "w").close()
time.sleep(100)
"""
    async with running(sandbox, source):
        async with asyncio.timeout(20):  # a lease is broken by force after 45 s
            for call in (sandbox.read("leased"), sandbox.write("leased", "x")):
                with suppress(SandboxFileError):
                    await call


class TestDeadlines:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(inodes=60_000)

    @pytest.mark.slow
    async def test_deadlines_are_kept_meanwhile(self, sandbox: Sandbox, python: RunPython) -> None:
        """A program is ended at its time while big trees are walked and removed."""
        source = "import os\nfor n in range(40_000):\n"
        source += " if n % 200 == 0: os.makedirs(f't/{n}')\n open(f't/{n // 200 * 200}/{n}', 'w')"
        made = await python(source, timeout_s=60)
        assert made.ok, made.stderr.text
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(sandbox.run(["sleep", "60"], timeout_s=0.3))
            removal = group.create_task(sandbox.files.remove("t", recursive=True))
        assert slow.result().reason is Reason.WALL_TIMEOUT
        assert slow.result().wall_s < 3, "generous: the machine may be busy"
        assert removal.result() == 40_201


PARTS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=5)
PLACES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
NODES = st.dictionaries(
    PLACES,
    st.one_of(
        st.just("file"),
        st.just("directory"),
        st.tuples(st.sampled_from(["", "/", "/workspace/"]), PARTS),
    ),
    max_size=8,
)


class Model:
    """What names mean in a sandbox, by the rules of a root that cannot be left."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}
        self.files: set[str] = set()
        self.directories = {"", "workspace"}

    def resolve(self, path: str) -> str | None:
        """The file or directory that a path of the sandbox leads to; None for none."""
        at: list[str] = []
        left = path.split("/")
        for _ in range(400):
            if not left:
                return "/".join(at)
            part = left.pop(0)
            here = "/".join(at)
            if here not in self.directories:
                return None
            if part == "..":
                at = at[:-1]
            elif part not in {"", "."}:
                name = "/".join([*at, part])
                if name in self.links:
                    target = self.links[name]
                    at = [] if target.startswith("/") else at
                    left = target.split("/") + left
                elif name in self.files or name in self.directories:
                    at.append(part)
                else:
                    return None
        return None


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(nodes=NODES, asked=st.lists(st.tuples(st.booleans(), PARTS), min_size=1, max_size=6))
async def test_paths_lead_where_a_model_says(
    sandbox: Sandbox,
    nodes: dict[str, str | tuple[str, list[str]]],
    asked: list[tuple[bool, list[str]]],
) -> None:
    files, model = sandbox.files, Model()
    for place, node in sorted(nodes.items()):
        path = f"workspace/{place}"
        if os.path.dirname(path) not in model.directories:  # noqa: PTH120 - not the host's
            continue
        if node == "directory":
            await files.mkdir(place)
            model.directories.add(path)
        elif node == "file":
            await files.write(place, path)
            model.files.add(path)
        else:
            target = node[0] + "/".join(node[1])
            await files.symlink(place, target)
            model.links[path] = target
    for absolute, parts in asked:
        path = ("/" if absolute else "") + "/".join(parts)
        expected = model.resolve(path if absolute else f"workspace/{path}")
        found = None
        with suppress(SandboxFileError):
            found = (await files.read(path)).decode()
        assert found == (expected if expected in model.files else None), path
    for entry in await files.list():
        await files.remove(entry.name, recursive=True)
