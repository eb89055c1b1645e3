"""The file interface: regular files below the sandbox's own root, whatever a program put there."""

import os
import stat
from collections.abc import Awaitable, Callable

import pytest

from tiltyard.core.errors import SandboxFileError
from tiltyard.core.execution import MIB, ExecResult, Limits
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]


async def shell(sandbox: Sandbox, script: str) -> str:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, (done.reason, done.stderr.text)
    return done.stdout.text


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
async def test_what_is_written_is_read(sandbox: Sandbox, size: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    await sandbox.write("file", content)
    assert await sandbox.read("file") == content
    assert (await shell(sandbox, "wc -c < file")).strip() == str(size)


async def test_writing_again_replaces(sandbox: Sandbox) -> None:
    await sandbox.write("file", b"long content")
    await sandbox.write("file", "té")
    assert await sandbox.read("/workspace/file") == "té".encode()


async def test_modes_and_directories(sandbox: Sandbox) -> None:
    await sandbox.write("a/b/c.sh", "#!/bin/sh\necho ran\n", mode=0o755)
    assert await shell(sandbox, "a/b/c.sh") == "ran\n"
    (entry,) = await sandbox.list("a/b")
    assert (entry.name, stat.S_IMODE(entry.mode), entry.size_bytes) == ("c.sh", 0o755, 19)
    (directory,) = await sandbox.list("a")
    assert stat.S_ISDIR(directory.mode)
    await sandbox.write("a/b/c.sh", "x", mode=0o4777)
    (entry,) = await sandbox.list("a/b")
    assert stat.S_IMODE(entry.mode) == 0o777, "no set-user-id"


async def test_what_is_not_there(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFileError, match="No such file"):
        await sandbox.read("nothing")
    with pytest.raises(SandboxFileError, match="No such file"):
        await sandbox.list("nothing")
    with pytest.raises(SandboxFileError, match="Not a directory"):
        await sandbox.list("/etc/passwd")


@pytest.mark.parametrize("path", ["", "a\0b", "/" + "x" * 5000, "x/" * 5000 + "y"])
async def test_what_is_no_path(sandbox: Sandbox, path: str) -> None:
    for call in (sandbox.read(path), sandbox.write(path, ""), sandbox.list(path)):
        with pytest.raises(SandboxFileError, match="not a path"):
            await call
    assert (await sandbox.run(["true"])).ok


async def test_the_root_is_the_sandboxs(sandbox: Sandbox) -> None:
    """`..` and absolute links stay inside, so all of these name the sandbox's own file."""
    await shell(
        sandbox,
        "ln -s /etc/passwd absolute; ln -s ../../../../../../etc/passwd relative; ln -s / root",
    )
    own = await sandbox.read("/etc/passwd")
    assert own.startswith(b"root:x:0:0:root:/root:/bin/sh")
    for path in ("absolute", "relative", "../../../../etc/passwd", "root/etc/passwd"):
        assert await sandbox.read(path) == own
    await sandbox.write("../../../../../tmp/up", "x")
    assert await sandbox.read("/tmp/up") == b"x"
    await sandbox.write("root/tmp/through", "y")
    assert await sandbox.read("/tmp/through") == b"y"


async def test_nothing_of_proc_can_be_read_or_written(sandbox: Sandbox) -> None:
    await shell(
        sandbox,
        "ln -s /proc/1/environ environ; ln -s /proc/self/fd/3 fd; ln -s /proc/1/root/etc magic;"
        "ln -s /proc/self/exe exe; ln -s /proc/sys/kernel/hostname name; ln -s /dev/fd/10 ten",
    )
    for path in ("environ", "/proc/1/environ", "/proc/self/mem", "/proc/1/maps", "name"):
        with pytest.raises(SandboxFileError, match=r"not a regular file|open"):
            await sandbox.read(path)
        with pytest.raises(SandboxFileError, match=r"not a regular file|open"):
            await sandbox.write(path, "x")
    for path in ("fd", "magic/passwd", "exe", "/proc/1/root/etc/passwd", "ten"):
        with pytest.raises(SandboxFileError, match=r"Too many levels|No such file"):
            await sandbox.read(path)


async def test_only_regular_files(sandbox: Sandbox, python: RunPython) -> None:
    made = await python(
        """
        import os, socket
        os.mkfifo("fifo")
        os.mkdir("directory")
        socket.socket(socket.AF_UNIX).bind("socket")
        os.symlink("loop", "loop")
        os.symlink("nowhere", "dangling")
        """
    )
    assert made.ok, made.stderr.text
    for path in ("fifo", "directory", "socket", "/dev/zero", "/dev/tty", "loop", "/dev/ptmx"):
        with pytest.raises(SandboxFileError):
            await sandbox.read(path)
        with pytest.raises(SandboxFileError):
            await sandbox.write(path, "x")
    await sandbox.write("dangling", "made")
    assert await sandbox.read("nowhere") == b"made"


async def test_a_fifo_with_a_reader_takes_nothing(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkfifo fifo; (cat fifo > got &) ; true")
    with pytest.raises(SandboxFileError, match=r"not a regular file|No such device"):
        await sandbox.write("fifo", "x")
    with pytest.raises(SandboxFileError, match="not a regular file"):
        await sandbox.read("fifo")
    await sandbox.ping()


async def test_programs_move_and_link_files_everywhere(sandbox: Sandbox) -> None:
    """Also from one directory to another, which a layer of protection may refuse by oversight."""
    await shell(
        sandbox,
        "mkdir -p a/b c; echo x > a/b/f; ln a/b/f c/hard; mkdir d; mv -T a/b d/moved;"
        "python3 -c \"import os; os.rename('d/moved', 'c/back'); os.rename('c/hard', '/tmp/h')\"",
    )
    assert await sandbox.read("c/back/f") == await sandbox.read("/tmp/h") == b"x\n"


async def test_no_device_can_be_made(python: RunPython) -> None:
    done = await python(
        """
        import errno, os, stat
        try:
            os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
        except OSError as error:
            assert error.errno in (errno.EPERM, errno.EACCES)
        else:
            os.open("disk", os.O_RDONLY)
            raise SystemExit("a block device was made and opened")
        """
    )
    assert done.ok, done.stderr.text


async def test_a_file_that_is_too_big(sandbox: Sandbox) -> None:
    await shell(sandbox, "truncate -s 3000000 big; truncate -s 1T sparse")
    assert len(await sandbox.read("big")) == 3_000_000
    with pytest.raises(SandboxFileError, match="over 2999999 bytes"):
        await sandbox.read("big", bytes_max=2_999_999)
    with pytest.raises(SandboxFileError, match="over"):
        await sandbox.read("sparse")


async def test_a_file_that_grows_while_it_is_read(sandbox: Sandbox) -> None:
    await shell(sandbox, ": > grows; (while :; do head -c 300000 /dev/zero; done >> grows &)")
    while len(await sandbox.read("grows")) <= 2 * MIB:
        pass
    with pytest.raises(SandboxFileError, match="over"):
        await sandbox.read("grows", bytes_max=2 * MIB)


async def test_a_full_disk(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFileError, match="disk limit is reached"):
        await sandbox.write("big", bytes(9 * MIB))
    await sandbox.run(["rm", "big"])
    await sandbox.write("small", "fits again")
    full = await sandbox.run(["sh", "-c", "i=0; while : > inode-$i; do i=$((i+1)); done"])
    assert not full.ok
    with pytest.raises(SandboxFileError, match="disk limit is reached"):
        await sandbox.write("one-more", "")


async def test_odd_names_come_back_as_they_are(sandbox: Sandbox, python: RunPython) -> None:
    names = [b"new\nline", b"\xff\xfe", b"-rf", b" ", "é".encode(), b"x" * 255]
    made = await python(f"for name in {names!r}: open(name, 'wb').write(name)")
    assert made.ok, made.stderr.text
    listed = await sandbox.list()
    assert {os.fsencode(entry.name) for entry in listed} == set(names)
    for entry in listed:
        assert await sandbox.read(entry.name) == os.fsencode(entry.name)


async def test_a_listing_follows_nothing(sandbox: Sandbox) -> None:
    await shell(sandbox, "ln -s /etc/passwd link; mkfifo fifo; echo abc > plain")
    kinds = {entry.name: entry for entry in await sandbox.list()}
    assert stat.S_ISLNK(kinds["link"].mode)
    assert stat.S_ISFIFO(kinds["fifo"].mode)
    assert kinds["plain"].size_bytes == 4
    assert "passwd" in {entry.name for entry in await sandbox.list("/etc")}


class TestManyNames:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits()

    async def test_a_listing_that_is_too_long(self, sandbox: Sandbox, python: RunPython) -> None:
        made = await python("for n in range(1500): open(f'{n:0250}', 'w').close()")
        assert made.ok, made.stderr.text
        assert len(await sandbox.list()) == 1500
        made = await python("for n in range(1500, 2500): open(f'{n:0250}', 'w').close()")
        assert len(await sandbox.list()) == 2500
        with pytest.raises(SandboxFileError, match="over 2499 names"):
            await sandbox.files.list(entries_max=2499)


async def test_the_image_cannot_be_changed(sandbox: Sandbox) -> None:
    for path in ("/usr/bin/env", "/usr/new", "/dev/new", "/dev/null"):
        with pytest.raises(SandboxFileError, match=r"Read-only|Permission|not a regular"):
            await sandbox.write(path, "x")
    await sandbox.write("/etc/passwd", "mine")
    assert await sandbox.read("/etc/passwd") == b"mine"


async def test_files_and_programs_see_the_same(sandbox: Sandbox) -> None:
    await sandbox.write("solution.py", "print(6 * 7)\n")
    done = await sandbox.run(["python", "solution.py"])
    assert done.stdout.text == "42\n"
    await sandbox.run(["sh", "-c", "echo back > out.txt"])
    assert await sandbox.read("out.txt") == b"back\n"
