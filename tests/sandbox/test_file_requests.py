"""What can be asked of a sandbox's files beside reading and writing them, and every odd name."""

import errno
import os
import stat
from collections.abc import Awaitable, Callable

import pytest

from tiltyard.core.errors import SandboxClosed, SandboxFileError
from tiltyard.core.execution import MIB, ExecResult, Limits
from tiltyard.core.files import FileKind
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]


async def shell(sandbox: Sandbox, script: str) -> str:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, (done.reason, done.stderr.text)
    return done.stdout.text


async def names(sandbox: Sandbox, path: str = "/workspace") -> set[str]:
    return {entry.name for entry in await sandbox.files.list(path)}


async def test_a_part_of_a_file(sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 5000
    await sandbox.files.write("f", content)
    for offset, length in [(0, 0), (0, 1), (5, 10), (MIB - 3, 6), (0, MIB + 1), (1_279_999, 9)]:
        got = await sandbox.files.read("f", offset=offset, length=length)
        assert got == content[offset : offset + length]
    assert await sandbox.files.read("f", offset=1_000_000) == content[1_000_000:]
    assert await sandbox.files.read("f", offset=2**62, length=5) == b""
    assert await sandbox.files.read("f", offset=2**62) == b""
    for offset, length, most in [(-1, None, 5), (0, -1, 5), (0, 6, 5), (2**63, None, 5)]:
        with pytest.raises(ValueError, match="bytes_max"):
            await sandbox.files.read("f", offset=offset, length=length, bytes_max=most)
    with pytest.raises(SandboxFileError, match="over 5 bytes"):
        await sandbox.files.read("f", offset=1_000_000, bytes_max=5)


async def test_appending(sandbox: Sandbox) -> None:
    await sandbox.files.append("new/log", "one\n", mode=0o600)
    await sandbox.files.append("new/log", b"two\n", mode=0o777)
    await sandbox.files.append("new/log", "")
    assert await sandbox.read("new/log") == b"one\ntwo\n"
    assert stat.S_IMODE((await sandbox.files.stat("new/log")).mode) == 0o600
    await sandbox.files.append("new/log", bytes(2 * MIB))
    assert (await sandbox.files.stat("new/log")).size_bytes == 8 + 2 * MIB


async def test_a_full_disk_loses_nothing_that_was_there(sandbox: Sandbox) -> None:
    await sandbox.files.write("log", "kept")
    with pytest.raises(SandboxFileError, match="disk limit is reached") as caught:
        await sandbox.files.append("log", bytes(12 * MIB))
    assert caught.value.errno == errno.ENOSPC
    assert (await sandbox.files.read("log", length=4)) == b"kept"


async def test_what_is_known_of_a_file(sandbox: Sandbox) -> None:
    await sandbox.files.write("f", "12345", mode=0o640)
    await shell(
        sandbox,
        "touch -d @1234567890.25 f; ln f hard; ln -s f soft; ln -s none dangling;"
        "chown 7:8 f; mkfifo fifo",
    )
    about = await sandbox.files.stat("f")
    assert (about.kind, stat.S_IMODE(about.mode), about.size_bytes) == (FileKind.FILE, 0o640, 5)
    assert (about.mtime_s, about.hard_links, about.target) == (1234567890.25, 2, None)
    assert await sandbox.files.stat("soft") == about
    soft = await sandbox.files.stat("soft", follow_links=False)
    assert (soft.kind, soft.target, soft.uid) == (FileKind.LINK, "f", 0)
    with pytest.raises(SandboxFileError, match="No such file") as caught:
        await sandbox.files.stat("dangling")
    assert (caught.value.errno, caught.value.path) == (errno.ENOENT, "dangling")
    kinds = {"fifo": FileKind.FIFO, "/": FileKind.DIRECTORY, "/dev/null": FileKind.DEVICE}
    for path, kind in kinds.items():
        assert (await sandbox.files.stat(path)).kind is kind


async def test_owners_are_the_sandboxs_own(sandbox: Sandbox) -> None:
    await sandbox.files.write("f", "")
    about = await sandbox.files.stat("f")
    assert (about.uid, about.gid) == (0, 0)
    changed = await sandbox.run(["chown", "7:8", "f"])
    if changed.ok:  # an ordinary user has but one id to give
        about = await sandbox.files.stat("f")
        assert (about.uid, about.gid) == (7, 8)


async def test_making_directories(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.mkdir("a", mode=0o750)
    assert stat.S_IMODE((await files.stat("a")).mode) == 0o750
    with pytest.raises(SandboxFileError, match="exists"):
        await files.mkdir("a")
    with pytest.raises(SandboxFileError, match="No such file"):
        await files.mkdir("b/c")
    for path in ("b/c/d", "b/c/d", "a", "/", "b/../b/./c", "b//c///"):
        await files.mkdir(path, parents=True)
    assert await names(sandbox, "b") == {"c"}
    await files.write("f", "")
    for path in ("f", "f/g"):
        with pytest.raises(SandboxFileError, match=r"Not a directory|exists"):
            await files.mkdir(path, parents=True)
    with pytest.raises(ValueError, match="0o777"):
        await files.mkdir("c", mode=0o1777)


async def test_renaming(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.write("f", "content")
    await files.write("d/g", "other")
    await files.rename("f", "d/f")
    with pytest.raises(SandboxFileError, match="exists"):
        await files.rename("d/f", "d/g", replace=False)
    await files.rename("d/f", "d/g")
    await files.rename("d", "e")
    assert await files.read("e/g") == b"content"
    await files.symlink("l", "e/g")
    await files.rename("l", "m")
    assert (await files.stat("m", follow_links=False)).target == "e/g"
    for source, target in [("gone", "x"), ("e", "e/below"), ("m", "/dev/shm/x")]:
        with pytest.raises(SandboxFileError, match=f"rename {source!r}: rename: "):
            await files.rename(source, target)
    for source, target in [("/", "x"), ("e/..", "x"), ("m", "."), ("m", "/..")]:
        with pytest.raises(SandboxFileError, match="Invalid argument"):
            await files.rename(source, target)


async def test_permissions(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.write("d/f", "#!/bin/sh\necho ran\n")
    await files.chmod("d/f", 0o755)
    assert await shell(sandbox, "d/f") == "ran\n"
    await files.chmod("d/f", 0)
    await files.chmod("d/f", 0o600)
    await files.chmod("d", 0o700)
    assert stat.S_IMODE((await files.stat("d")).mode) == 0o700
    await shell(sandbox, "mkfifo fifo")
    for path in ("fifo", "/dev/null", "/proc/self/status", "/usr/bin/env", "gone"):
        with pytest.raises(SandboxFileError):
            await files.chmod(path, 0o777)
    with pytest.raises(ValueError, match="0o777"):
        await files.chmod("d", 0o4755)


async def test_links_mean_places_inside(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.symlink("up", "../../../../etc")
    assert await files.read("up/passwd") == await files.read("/etc/passwd")
    await files.symlink("magic", "/proc/self/root/etc/passwd")
    with pytest.raises(SandboxFileError):
        await files.read("magic")
    with pytest.raises(SandboxFileError, match="exists"):
        await files.symlink("up", "x")
    for target in ("", "a\0b", "x" * 5000, "\ud800"):
        with pytest.raises(SandboxFileError, match="no target"):
            await files.symlink("l", target)


async def test_removing(sandbox: Sandbox) -> None:
    files = sandbox.files
    await files.write("d/e/f", "")
    await shell(sandbox, "mkdir out; echo kept > out/x; ln -s ../out d/link; mkfifo d/fifo")
    with pytest.raises(SandboxFileError, match="not empty"):
        await files.remove("d")
    assert await files.remove("d", recursive=True) == 5
    assert await files.read("out/x") == b"kept\n"
    await files.symlink("l", "out")
    assert await files.remove("l", recursive=True) == 1
    await files.mkdir("empty")
    assert await files.remove("empty") == 1
    with pytest.raises(SandboxFileError, match="No such file"):
        await files.remove("empty", recursive=True)
    for path in ("/", "..", "out/..", "."):
        with pytest.raises(SandboxFileError, match="Invalid argument"):
            await files.remove(path, recursive=True)
    assert await files.read("out/x") == b"kept\n"


async def test_what_cannot_be_removed_is_named(sandbox: Sandbox) -> None:
    for path in ("/proc", "/dev", "/usr", "/dev/shm"):
        with pytest.raises(SandboxFileError) as caught:
            await sandbox.files.remove(path, recursive=True)
        assert caught.value.path is not None
        assert caught.value.path.startswith(path)
    assert (await sandbox.run(["true"])).ok


async def test_a_tree_deeper_than_any_path(sandbox: Sandbox, python: RunPython) -> None:
    made = await python(
        """
        import os
        os.mkdir("deep")
        os.chdir("deep")
        for n in range(400):
            open("f", "w").close()
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        """
    )
    assert made.ok, made.stderr.text
    assert await sandbox.files.remove("deep", recursive=True) >= 801
    assert await names(sandbox) == set()


class TestMany:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(inodes=130_000, memory_bytes=1024 * MIB)

    @pytest.mark.slow
    async def test_a_hundred_thousand_names(self, sandbox: Sandbox, python: RunPython) -> None:
        source = "import os; os.mkdir('d')\nfor n in range(100_000): open(f'd/{n:06}', 'w').close()"
        made = await python(source, timeout_s=60)
        assert made.ok, made.stderr.text
        listed = await sandbox.files.list("d")
        assert sorted(entry.name for entry in listed) == [f"{n:06}" for n in range(100_000)]
        with pytest.raises(SandboxFileError, match="over 99999 names"):
            await sandbox.files.list("d", entries_max=99_999)
        with pytest.raises(SandboxFileError, match="not empty after 0 s"):
            await sandbox.files.remove("d", recursive=True, timeout_s=0)
        left = len(await sandbox.files.list("d"))
        assert 0 < left < 100_000
        assert await sandbox.files.remove("d", recursive=True) == left + 1


@pytest.mark.parametrize(
    "raw",
    [
        *(b"new\nline", b"\xff\xfe\x80", b"-rf", b" ", b"*", b"x" * 255, b"...", b"\\", b"'\""),
        *("é".encode(), b"\x01\x7f", b"~", b"$(reboot)"),
    ],
)
async def test_odd_names_are_names(sandbox: Sandbox, raw: bytes) -> None:
    files, name = sandbox.files, os.fsdecode(raw)
    await files.write(name, "a")
    await files.append(name, "b")
    await files.chmod(name, 0o600)
    assert (await files.stat(name)).size_bytes == 2
    await files.rename(name, f"/tmp/{name}")
    assert [entry.name for entry in await files.list("/tmp")] == [name]
    await files.mkdir(name)
    await files.symlink(f"{name}/{name}", name)
    assert (await files.stat(f"{name}/{name}", follow_links=False)).target == name
    assert await files.remove(name, recursive=True) == 2
    assert await files.read(f"/tmp/{name}") == b"ab"


@pytest.mark.parametrize("path", ["", "a\0b", "x/" * 2500, "\ud800", "\udc00\ud800"])
async def test_what_is_no_path_is_named(sandbox: Sandbox, path: str) -> None:
    files = sandbox.files
    for call in (
        files.append(path, ""),
        files.stat(path),
        files.mkdir(path, parents=True),
        files.remove(path, recursive=True),
        files.rename(path, "x"),
        files.rename("x", path),
        files.chmod(path, 0o600),
        files.symlink(path, "x"),
        files.list(path),
    ):
        with pytest.raises(SandboxFileError, match="not a path") as caught:
            await call
        assert caught.value.path == path
    assert await names(sandbox) == set()


async def test_a_name_that_is_too_long(sandbox: Sandbox) -> None:
    for call in (
        sandbox.files.write("x" * 256, ""),
        sandbox.files.mkdir("x" * 256),
        sandbox.files.symlink("x" * 256, "y"),
        sandbox.files.remove("x" * 256),
    ):
        with pytest.raises(SandboxFileError, match="name too long"):
            await call


async def test_the_longest_path(sandbox: Sandbox) -> None:
    path = "/".join(["d" * 250] * 17)
    path = f"{path[: 4095 - len('/workspace/') - 2]}/f"
    await sandbox.files.write(path, "deep")
    assert await sandbox.files.read(path) == b"deep"
    with pytest.raises(SandboxFileError, match="not a path"):
        await sandbox.files.read(f"{path}x")
    assert await sandbox.files.remove("d" * 250, recursive=True) == 18


async def test_after_the_end(sandbox: Sandbox) -> None:
    await sandbox.close()
    for call in (sandbox.files.stat("x"), sandbox.files.remove("x"), sandbox.files.list()):
        with pytest.raises(SandboxClosed):
            await call
