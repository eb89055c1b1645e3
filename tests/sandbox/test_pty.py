"""Terminals: programs that ask for one behave as they do before a person."""

import asyncio
import contextlib

import pytest

from sandbox.spawned import hear, hear_out, running, until_left
from tiltyard.core.errors import SandboxFileError
from tiltyard.core.execution import MIB, Limits, Pty, Reason, Stream
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def limits() -> Limits:
    return Limits(memory_bytes=128 * MIB, pids=64, disk_bytes=8 * MIB, inodes=1024, open_files=64)


async def said(sandbox: Sandbox, script: str, pty: Pty | None = None) -> str:
    """What a script says to its terminal."""
    async with sandbox.stream(["sh", "-c", script], pty=pty or Pty(), timeout_s=20) as process:
        heard = await hear_out(process)
        assert heard[Stream.STDERR] == b""
        return heard[Stream.STDOUT].decode().replace("\r\n", "\n")


async def test_it_is_a_terminal_of_the_size_that_was_asked_for(sandbox: Sandbox) -> None:
    script = "stty size; tput -T xterm cols; test -t 0 && test -t 1 && test -t 2 && echo all"
    assert await said(sandbox, script, Pty(rows=33, columns=111)) == "33 111\n111\nall\n"


async def test_it_is_the_sandboxes_own_and_the_controlling_one(sandbox: Sandbox) -> None:
    lines = (await said(sandbox, "tty; echo opened > /dev/tty; ls /dev/pts; echo $TERM")).split()
    assert lines == ["/dev/pts/0", "opened", "0", "ptmx", "xterm-256color"]
    session = "cut -d' ' -f6,7 /proc/$$/stat; echo $$"
    leader, terminal, own = (await said(sandbox, session)).split()
    assert leader == own
    assert int(terminal) != 0


async def test_what_is_typed_is_echoed_and_edited(sandbox: Sandbox) -> None:
    async with sandbox.stream(["cat"], pty=Pty()) as process:
        assert await process.write(b"wrong\x15right\n")
        await hear(process, b"right\r\nright\r\n")
        await process.close_stdin()
        done = await process.wait()
    assert (done.reason, done.exit_code) == (Reason.EXIT, 0)


async def test_a_typed_interrupt_reaches_the_foreground(sandbox: Sandbox) -> None:
    script = "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.01; done"
    async with sandbox.stream(["sh", "-c", script], pty=Pty()) as process:
        await hear(process, b"up")
        await process.write(b"\x03")
        done = await process.wait()
    assert done.exit_code == 3
    assert done.stdout.text == "up\r\n^Ccaught\r\n"


async def test_a_shell_has_job_control(sandbox: Sandbox) -> None:
    argv = ["bash", "--norc", "--noprofile", "-i"]
    async with sandbox.stream(argv, pty=Pty(), env={"PS1": "ready> "}) as process:
        await hear(process, b"ready> ")
        await process.write(b"sleep 1000\n")
        while "sleep" not in await running(sandbox):
            pass
        await process.write(b"\x1a")  # Ctrl-Z
        await hear(process, b"Stopped")
        await process.write(b"exit\n")
        await hear(process, b"There are stopped jobs")
        await process.write(b"exit 7\n")
        done = await process.wait()
    assert done.exit_code == 7
    assert "no job control" not in done.stdout.text
    await until_left(sandbox, set())


@pytest.mark.slow
async def test_an_interpreter_prompts(sandbox: Sandbox) -> None:
    async with sandbox.stream(["python3", "-I", "-S", "-q"], pty=Pty()) as process:
        await hear(process, b">>> ")
        await process.write(b"6 * 7\n")
        await hear(process, b"42")
        await process.close_stdin()
        assert (await process.wait()).exit_code == 0


async def test_a_new_size_is_told(sandbox: Sandbox) -> None:
    script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.01; done"
    async with sandbox.stream(["sh", "-c", script], pty=Pty()) as process:
        await hear(process, b"up")
        await process.resize(50, 132)
        done = await process.wait()
        assert "50 132" in done.stdout.text
        await process.resize(10, 10)
        for rows, columns in ((0, 80), (24, -1), (24, 65_536)):
            with pytest.raises(ValueError, match="terminal of"):
                await process.resize(rows, columns)
    plain = await sandbox.spawn(["true"])
    with pytest.raises(ValueError, match="has no terminal"):
        await plain.resize(24, 80)
    with pytest.raises(ValueError, match="terminal of"):
        await sandbox.spawn(["true"], pty=Pty(rows=0))
    with pytest.raises(ValueError, match="typed"):
        await sandbox.spawn(["true"], pty=Pty(), stdin=b"x")


async def test_its_end_hangs_up_on_what_is_left(sandbox: Sandbox) -> None:
    left = "trap 'echo hung > /workspace/up; exit' HUP; echo in; while :; do sleep 0.01; done"
    argv = ["sh", "-c", 'sh -c "$LEFT" & read line; exit 3']
    process = await sandbox.spawn(argv, pty=Pty(), env={"LEFT": left})
    await hear(process, b"in")
    await process.write(b"\n")
    assert (await process.wait()).exit_code == 3
    written = b""
    while not written:
        with contextlib.suppress(SandboxFileError):
            written = await sandbox.read("up")
    assert written == b"hung\n"


async def test_typing_into_somebody_elses_terminal_is_refused(sandbox: Sandbox) -> None:
    program = """
import errno, fcntl, sys
for number, argument in ((0x5412, b"x"), (0x541C, b"\\x03")):
    try:
        fcntl.ioctl(0, number, argument)
        print("typed")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    argv = ["python3", "-I", "-S", "-c", program]
    async with sandbox.stream(argv, pty=Pty()) as process:
        heard = await hear_out(process)
    assert heard[Stream.STDOUT].split() == [b"ENOSYS", b"ENOSYS"]


async def test_one_that_closes_its_terminal_can_open_it_again(sandbox: Sandbox) -> None:
    script = "echo first; exec 0<&- 1>&- 2>&-; sleep 0.01; exec > /dev/tty; echo second"
    assert await said(sandbox, script) == "first\nsecond\n"


async def test_one_that_closes_its_terminal_for_good_is_only_silent(sandbox: Sandbox) -> None:
    script = "echo first; exec 0<&- 1>&- 2>&-; exec sleep 1000"
    process = await sandbox.spawn(["sh", "-c", script], pty=Pty(), timeout_s=0.2)
    done = await process.wait()
    assert (done.reason, done.stdout.text) == (Reason.WALL_TIMEOUT, "first\r\n")


async def test_all_that_was_written_last_is_heard(sandbox: Sandbox) -> None:
    for _ in range(10):
        heard = await said(sandbox, "head -c 3000 /dev/zero | tr '\\0' x; echo; echo over")
        assert heard == "x" * 3000 + "\nover\n"


async def test_much_output_is_bounded_as_ever(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["yes"], pty=Pty(), output_bytes_max=300_000)
    done = await process.wait()
    assert (done.reason, done.stdout.total_bytes) == (Reason.OUTPUT, 300_000)


async def test_typing_to_one_that_never_reads_harms_nobody(sandbox: Sandbox) -> None:
    script = "stty raw -echo; echo up; exec sleep 1000"
    process = await sandbox.spawn(["sh", "-c", script], pty=Pty())
    await hear(process, b"up")
    async with asyncio.TaskGroup() as group:
        typing = group.create_task(process.write(b"x" * MIB))
        for _ in range(20):
            await sandbox.ping()
        assert not typing.done()
        assert (await sandbox.run(["true"])).ok
        await process.kill()
    assert typing.result() is False


async def test_a_terminal_goes_with_its_program(sandbox: Sandbox) -> None:
    for _ in range(3):
        assert await said(sandbox, "tty") == "/dev/pts/0\n"
    listed = await sandbox.run(["ls", "/dev/pts"])
    assert listed.stdout.text.split() == ["ptmx"]
