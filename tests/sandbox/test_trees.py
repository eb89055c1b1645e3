"""Whole trees into a sandbox and out of it: complete and the same, or an error naming the entry."""

import asyncio
import io
import os
import stat
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sandbox.host_trees import Content, plant, snapshot
from sandbox.processes import supervisors
from tiltyard.core.errors import SandboxFileError, TreeError
from tiltyard.core.execution import MIB, ExecResult, Limits
from tiltyard.core.files import Links, Specials, TreeLimits, TreeTotals
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]


async def shell(sandbox: Sandbox, script: str) -> str:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, (done.reason, done.stderr.text)
    return done.stdout.text


async def test_a_directory_comes_back_as_it_went(sandbox: Sandbox, tmp_path: Path) -> None:
    tree = {
        b"a/b/c.py": b"print(6 * 7)\n",
        b"a/empty": b"",
        b"nothing": None,
        b"big": bytes(range(256)) * 4000,
        b"\xff new\nline/-rf": b"odd",
        b"n" * 255: b"long",
        b"a/link": "b/c.py",
    }
    plant(tmp_path / "in", tree)
    (tmp_path / "in/a/b/c.py").chmod(0o755)
    os.utime(tmp_path / "in/a/b/c.py", (1_234_567_890, 1_234_567_890))
    sent = await sandbox.files.upload(tmp_path / "in", "tree")
    assert sent == TreeTotals(files=5, directories=4, links=1, content_bytes=1_024_020)
    assert await shell(sandbox, "tree/a/b/c.py | true; python3 tree/a/link") == "42\n"
    assert (await sandbox.files.stat("tree/a/b/c.py")).mtime_s == 1_234_567_890
    out = tmp_path / "out"
    assert await sandbox.files.download("tree", out, links=Links.KEEP) == sent
    assert snapshot(out) == snapshot(tmp_path / "in")


async def test_a_tar_comes_back_as_it_went(sandbox: Sandbox, tmp_path: Path) -> None:
    plant(tmp_path / "in", {b"d/f": b"content", b"e": None, b"\xff": b"x", b"l": "d/f"})
    await sandbox.files.upload(tmp_path / "in", "/tmp/one")
    stream = io.BytesIO()
    first = await sandbox.files.download("/tmp/one", stream, links=Links.KEEP)
    stream.seek(0)
    assert await sandbox.files.upload(stream, "/tmp/two") == first
    assert await sandbox.files.download("/tmp/two", tmp_path / "out", links=Links.KEEP) == first
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "in")


NAMES = st.binary(min_size=1, max_size=8).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in {b".", b".."}
)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=4).map(b"/".join),
    st.one_of(st.none(), st.binary(max_size=300)),
    max_size=12,
)


def consistent(tree: Mapping[bytes, Content]) -> bool:
    """A file holds nothing."""
    files = [path for path, content in tree.items() if content is not None]
    return not any(other.startswith(path + b"/") for path in files for other in tree)


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=TREES.filter(consistent))
async def test_any_tree_comes_back_as_it_went(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, tree: dict[bytes, Content]
) -> None:
    here = tmp_path_factory.mktemp("tree")
    (here / "in").mkdir()
    plant(here / "in", tree)
    sent = await sandbox.files.upload(here / "in", "tree")
    assert await sandbox.files.download("tree", here / "out") == sent
    assert snapshot(here / "out") == snapshot(here / "in")
    await sandbox.files.remove("tree", recursive=True)


async def test_an_upload_onto_what_is_there(sandbox: Sandbox, tmp_path: Path) -> None:
    files = sandbox.files
    plant(tmp_path / "in", {b"d/f": b"new", b"l": "d/f"})
    (tmp_path / "in/d").chmod(0o755)
    await files.write("d/f", "a long old content", mode=0o600)
    await files.write("d/g", "stays")
    await files.chmod("d", 0o700)
    await files.symlink("l", "/nowhere")
    await files.upload(tmp_path / "in")
    assert await files.read("d/f") == b"new"
    assert await files.read("d/g") == b"stays"
    assert await files.read("l") == b"new"
    assert stat.S_IMODE((await files.stat("d")).mode) == 0o700


@pytest.mark.parametrize(
    ("way", "entry"),
    [
        ("mkdir in; ln -s /tmp in/d", "d"),
        ("mkdir -p in/other; ln -s other in/d", "d"),
        ("mkdir -p in/d; touch in/d/g; ln -s g in/d/f", "d/f"),
        ("mkdir in; echo > in/d", "d"),
        ("mkdir -p in/d/f", "d/f"),
        ("mkdir -p in/d; ln -s /tmp/other in/d/f", "d/f"),
        ("mkdir -p in/d; mkfifo in/d/f", "d/f"),
        ("mkdir -p in/l", "l"),
    ],
)
async def test_what_is_in_the_way_of_an_upload_is_named(
    sandbox: Sandbox, tmp_path: Path, way: str, entry: str
) -> None:
    plant(tmp_path / "in", {b"d/f": b"new", b"l": "x"})
    await shell(sandbox, way)
    with pytest.raises(TreeError, match=f"upload to 'in': '{entry}': ") as caught:
        await sandbox.files.upload(tmp_path / "in", "in")
    assert caught.value.path == entry
    written = await shell(sandbox, "find /tmp in -type f -size +1c")
    assert written == "", "nothing was written through a link"
    await sandbox.ping()


async def test_where_a_tree_cannot_go(sandbox: Sandbox, tmp_path: Path) -> None:
    plant(tmp_path / "in", {b"f": b"x"})
    await sandbox.write("file", "")
    for path in ("file", "file/below", "/usr/new", "/dev/null", "/proc/self"):
        with pytest.raises(SandboxFileError):
            await sandbox.files.upload(tmp_path / "in", path)
    with pytest.raises(SandboxFileError, match="not a path"):
        await sandbox.files.upload(tmp_path / "in", "")
    for path in ("file", "gone", "/proc", "/proc/sys"):
        with pytest.raises(TreeError, match=f"download of '{path}': "):
            await sandbox.files.download(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    assert (await sandbox.files.upload(tmp_path / "in", "new/place")).files == 1


async def test_an_archive_that_is_refused_half_way(sandbox: Sandbox) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as writer:
        for name in ("good", "../bad"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            writer.addfile(entry, io.BytesIO(b"abc"))
    stream.seek(0)
    with pytest.raises(TreeError, match=r"'\.\./bad': not a path"):
        await sandbox.files.upload(stream, "d")
    assert await sandbox.read("d/good") == b"abc", "what came before the named entry is whole"
    stream.seek(0)
    with pytest.raises(TreeError, match="over 2"):
        await sandbox.files.upload(stream, "d", limits=TreeLimits(bytes_max=2))


@pytest.mark.slow
async def test_what_a_program_leaves_in_a_tree(
    sandbox: Sandbox, python: RunPython, tmp_path: Path
) -> None:
    await sandbox.write("t/f", "x")
    makes = {
        "link": "os.symlink('/etc/passwd', 't/odd')",
        "fifo": "os.mkfifo('t/odd')",
        "socket": "socket.socket(socket.AF_UNIX).bind('t/odd')",
        "huge": "os.truncate(os.open('t/odd', os.O_CREAT | os.O_RDWR), 1 << 40)",
        "deep": "os.makedirs('t/odd/' + 'd/' * 40)",
        "long": "os.makedirs('t/odd/' + '/'.join(['d' * 200] * 6))",
    }
    for kind, make in makes.items():
        made = await python(f"import os, socket\n{make}")
        assert made.ok, made.stderr.text
        with pytest.raises(TreeError, match="download of 't': 'odd") as caught:
            await sandbox.files.download("t", tmp_path / kind)
        assert caught.value.path is not None
        assert caught.value.path.startswith("odd")
        assert not (tmp_path / kind).exists()
        if kind in {"link", "fifo", "socket"}:
            totals = await sandbox.files.download(
                "t", tmp_path / kind, links=Links.SKIP, specials=Specials.SKIP
            )
            assert (totals.files, totals.skipped_paths) == (1, ("odd",))
            assert [path.name for path in (tmp_path / kind).iterdir()] == ["f"]
        await sandbox.files.remove("t/odd", recursive=True)


async def test_a_tree_deeper_than_can_be_walked(
    sandbox: Sandbox, python: RunPython, tmp_path: Path
) -> None:
    await python("import os; os.makedirs('t/' + 'd/' * 90)")
    with pytest.raises(TreeError, match="too deep"):
        await sandbox.files.download("t", tmp_path / "out", limits=TreeLimits(depth_max=64))


async def test_modes_out_of_a_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    await shell(sandbox, "mkdir -m 1777 t; touch t/f t/g; chmod 6777 t/f; chmod 0 t/g; mkdir t/d")
    stream = io.BytesIO()
    await sandbox.files.download("t", stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        modes = {entry.name: (entry.mode, entry.uid, entry.uname) for entry in archive}
    assert modes == {"f": (0o755, 0, ""), "g": (0, 0, ""), "d": (0o755, 0, "")}
    await sandbox.files.download("t", tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out/f").stat().st_mode) & 0o7022 == 0
    assert (tmp_path / "out/g").read_bytes() == b""


@pytest.mark.slow
async def test_a_full_disk_half_way(sandbox: Sandbox, tmp_path: Path) -> None:
    plant(tmp_path / "in", {b"%02d" % n: bytes(MIB) for n in range(12)})
    with pytest.raises(TreeError, match="disk limit is reached") as caught:
        await sandbox.files.upload(tmp_path / "in", "d")
    assert caught.value.path is not None
    whole = {entry.name: entry.size_bytes for entry in await sandbox.files.list("d")}
    stopped = whole.pop(caught.value.path)
    assert stopped <= MIB
    assert set(whole.values()) == {MIB}, "what came before the named entry is whole"
    await sandbox.files.remove("d", recursive=True)
    plant(tmp_path / "many", {b"%04d" % n: b"" for n in range(1100)})
    with pytest.raises(TreeError, match="disk limit is reached"):
        await sandbox.files.upload(tmp_path / "many", "d")
    await sandbox.files.remove("d", recursive=True)
    await sandbox.write("fits", "again")


@pytest.mark.slow
async def test_trees_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    """More than the supervisor keeps places for; each waits for its turn."""
    plant(tmp_path / "in", {b"%03d" % n: b"%d" % n * 100 for n in range(700)})
    await sandbox.files.upload(tmp_path / "in", "in")
    streams = [io.BytesIO() for _ in range(9)]
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(sandbox.files.download("in", stream))
            group.create_task(sandbox.files.list("in"))
    for stream in streams:
        stream.seek(0)
        with tarfile.open(fileobj=stream) as archive:
            sizes = {entry.name: entry.size for entry in archive}
        assert sizes == {f"{n:03}": len(f"{n}") * 100 for n in range(700)}


class Waiting(io.RawIOBase):
    """A stream that calls back before each piece."""

    def __init__(self, stream: io.BytesIO, call: Callable[[], object]) -> None:
        self._stream = stream
        self._call = call

    def read(self, size: int = -1) -> bytes:
        self._call()
        return self._stream.read(size)


async def test_a_cancelled_tree_leaves_its_place(sandbox: Sandbox, tmp_path: Path) -> None:
    plant(tmp_path / "in", {b"f": bytes(2 * MIB)})
    await sandbox.files.upload(tmp_path / "in", "in")
    stream = io.BytesIO()
    await sandbox.files.download("in", stream)
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[TreeTotals]] = []
    waiting = Waiting(stream, lambda: loop.call_soon_threadsafe(tasks[-1].cancel))
    for _ in range(6):
        stream.seek(0)
        async with asyncio.TaskGroup() as group:
            tasks.append(group.create_task(sandbox.files.upload(waiting, "other")))
        assert tasks[-1].cancelled()
    out = tmp_path / "out"
    for _ in range(6):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(sandbox.files.download("in", out))
            loop.call_soon(task.cancel)
        assert not out.exists()
    assert (await sandbox.files.download("in", out)).content_bytes == 2 * MIB


def peak_kib(pid: int | str) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))


class TestBig:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(memory_bytes=600 * MIB, disk_bytes=300 * MIB, inodes=20_000)

    @pytest.mark.slow
    async def test_memory_stays_bounded(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """200 MB in 4,000 files and one of 100 MB: neither side holds more than a few slices."""
        tree: dict[bytes, Content] = {b"%d/%d" % (n % 50, n): b"x" * 25_000 for n in range(4000)}
        tree[b"big"] = bytes(100 * 1000 * 1000)
        plant(tmp_path / "in", tree)
        tree.clear()
        (supervisor,) = supervisors()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # starts VmHWM anew
        before = peak_kib("self"), peak_kib(supervisor)
        sent = await sandbox.files.upload(tmp_path / "in", "in")
        assert sent.content_bytes == 200_000_000
        with (tmp_path / "out.tar").open("wb") as stream:
            assert await sandbox.files.download("in", stream) == sent
        grown = peak_kib("self") - before[0], peak_kib(supervisor) - before[1]
        assert grown[0] < 24 * 1024, "KiB of this process"
        assert grown[1] < 4 * 1024, "KiB of the supervisor"
