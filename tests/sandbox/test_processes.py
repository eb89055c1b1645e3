"""Programs that run while their caller does something else: fed, heard, signalled, found again."""

import asyncio
import contextlib
import hashlib
import signal

import pytest

from sandbox.spawned import hear, hear_out, until_left
from tiltyard.core.errors import ProcessUnknown, SandboxClosed
from tiltyard.core.execution import MIB, Limits, Reason, SandboxSpec, Stdin, Stream
from tiltyard.core.ids import ProcessId
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.programs import ENDED_KEPT_MAX
from tiltyard.sandbox.protocol import EXECUTIONS_MAX, INPUT_WINDOW_BYTES
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

ROUND_TRIPS = 20
"""Enough questions and answers that whatever was on its way has arrived."""


@pytest.fixture
def limits() -> Limits:
    return Limits(memory_bytes=256 * MIB, pids=400, disk_bytes=8 * MIB, inodes=1024, open_files=64)


async def shell(sandbox: Sandbox, script: str, **options: object) -> Process:
    return await sandbox.spawn(["sh", "-c", script], **options)  # type: ignore[arg-type]


async def settle_down(sandbox: Sandbox) -> None:
    for _ in range(ROUND_TRIPS):
        await sandbox.ping()


async def test_a_program_runs_while_nobody_waits_for_it(sandbox: Sandbox) -> None:
    process = await shell(sandbox, "while [ ! -e go ]; do :; done; exit 3")
    assert process.running
    assert (await sandbox.run(["touch", "go"])).ok
    done = await process.wait()
    assert (done.reason, done.exit_code) == (Reason.EXIT, 3)
    assert not process.running


async def test_how_it_ended_can_be_asked_by_many_and_again(sandbox: Sandbox) -> None:
    process = await shell(sandbox, "echo out; echo err >&2; exit 3")
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(process.wait()) for _ in range(5)]
    assert {each.result().exit_code for each in waiting} == {3}
    done = await process.wait()
    assert (done.stdout.text, done.stderr.text) == ("out\n", "err\n")
    assert process.tail().stdout == done.stdout


async def test_one_that_cannot_start_is_a_result(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["no-such-program"])
    done = await process.wait()
    assert (done.reason, done.exit_code) == (Reason.START_FAILED, None)
    assert not await (await sandbox.spawn(["no-such"], stdin=Stdin.STREAMED)).write(b"x" * MIB)


async def test_cancelling_a_wait_leaves_it_running(sandbox: Sandbox) -> None:
    process = await shell(sandbox, "read line; exit 4", stdin=Stdin.STREAMED)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(process.wait())
        await sandbox.ping()
        waiting.cancel()
    assert process.running
    await process.write(b"go\n")
    assert (await process.wait()).exit_code == 4


async def test_what_is_written_is_read(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["cat"], stdin=Stdin.STREAMED)
    assert await process.write(b"one")
    assert await hear(process, b"one") == b"one"
    assert await process.write(b"\x00two\xff")
    assert await process.write(b"")
    await process.close_stdin()
    assert (await process.wait()).stdout.head == b"one\x00two\xff"
    assert not await process.write(b"late")
    await process.close_stdin()


async def test_much_more_than_fits_on_the_way_is_written(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["sha256sum"], stdin=Stdin.STREAMED)
    block = bytes(range(256)) * 4096
    for _ in range(6):
        assert await process.write(block)
    await process.close_stdin()
    expected = hashlib.sha256(block * 6).hexdigest()
    assert (await process.wait()).stdout.text.split()[0] == expected


async def test_writers_do_not_mix(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["cat"], stdin=Stdin.STREAMED, output_bytes_max=8 * MIB)
    letters = [bytes([letter]) * (3 * INPUT_WINDOW_BYTES) for letter in b"abc"]
    async with asyncio.TaskGroup() as group:
        hearing = group.create_task(hear_out(process))
        writing = [group.create_task(process.write(block)) for block in letters]
        await asyncio.wait(writing)
        await process.close_stdin()
    assert hearing.result()[Stream.STDOUT] == b"".join(letters)


async def test_a_program_that_never_reads_stops_the_writer_and_nothing_else(
    sandbox: Sandbox,
) -> None:
    process = await sandbox.spawn(["sleep", "1000"], stdin=Stdin.STREAMED)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(process.write(b"x" * (8 * MIB)))
        await settle_down(sandbox)
        assert not writing.done()
        assert process.running
        assert (await sandbox.run(["true"])).ok
        await process.kill()
    assert writing.result() is False
    assert (await process.wait()).reason is Reason.KILLED


async def test_a_program_that_reads_late_reads_all(sandbox: Sandbox) -> None:
    late = "while [ ! -e go ]; do :; done; wc -c"
    process = await shell(sandbox, late, stdin=Stdin.STREAMED)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(process.write(b"x" * (2 * MIB)))
        await settle_down(sandbox)
        assert not writing.done()
        await sandbox.write("go", "")
    assert writing.result() is True
    await process.close_stdin()
    assert (await process.wait()).stdout.text.strip() == str(2 * MIB)


async def test_one_that_closes_its_input_is_told_of(sandbox: Sandbox) -> None:
    process = await shell(sandbox, "exec <&-; sleep 1000", stdin=Stdin.STREAMED)
    while await process.write(b"x" * 1000):
        pass
    assert process.running
    await process.kill()


async def test_input_that_was_given_is_not_written(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["cat"], stdin=b"given")
    for call in (process.write(b"more"), process.close_stdin()):
        with pytest.raises(ValueError, match=f"{process.id}.*STREAMED"):
            await call
    assert (await process.wait()).stdout.text == "given"


async def test_a_signal_reaches_the_group(sandbox: Sandbox) -> None:
    script = "trap 'echo heard; exit 3' HUP; echo up; while :; do sleep 0.01; done"
    process = await shell(sandbox, script)
    await hear(process, b"up")
    await process.signal(signal.SIGHUP)
    done = await process.wait()
    assert (done.reason, done.exit_code, done.stdout.text) == (Reason.EXIT, 3, "up\nheard\n")


async def test_a_signal_at_once_is_not_lost(sandbox: Sandbox) -> None:
    for _ in range(20):
        process = await sandbox.spawn(["sleep", "1000"])
        await process.signal(signal.SIGTERM)
        done = await process.wait()
        assert (done.reason, done.signal) == (Reason.SIGNAL, signal.SIGTERM)


async def test_a_signal_reaches_the_tree(sandbox: Sandbox) -> None:
    script = "trap : USR1; setsid sh -c 'echo up; exec sleep 1000' & wait; wait; echo over"
    process = await shell(sandbox, script)
    bystander = await sandbox.spawn(["sleep", "1000"])
    await hear(process, b"up")
    await process.signal(signal.SIGUSR1, whole_tree=True)
    done = await process.wait()
    assert done.stdout.text == "up\nover\n"
    assert bystander.running


async def test_a_signal_to_nobody(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["true"])
    done = await process.wait()
    await process.signal(signal.SIGTERM)
    await process.signal(signal.SIGKILL, whole_tree=True)
    assert await process.kill() is done
    for number in (-1, 0, 65, 1000):
        with pytest.raises(ValueError, match="no signal"):
            await process.signal(number)
    assert (await sandbox.run(["true"])).ok


async def test_what_runs_is_listed_and_found(sandbox: Sandbox) -> None:
    assert sandbox.processes() == ()
    first = await sandbox.spawn(["sleep", "1000"])
    second = await sandbox.spawn(["sleep", "1001"])
    assert [each.argv[1] for each in sandbox.processes()] == ["1000", "1001"]
    assert sandbox.process(second.id) is second
    await first.kill()
    assert sandbox.processes() == (second,)
    assert sandbox.process(first.id) is first, "its end can still be asked for"
    with pytest.raises(ProcessUnknown, match="p999"):
        sandbox.process(ProcessId("p999"))


async def test_only_the_last_ended_are_known(sandbox: Sandbox) -> None:
    ended = [await sandbox.spawn(["true"]) for _ in range(ENDED_KEPT_MAX + 1)]
    for process in ended:
        await process.wait()
    known = 0
    for process in ended:
        with contextlib.suppress(ProcessUnknown):
            known += sandbox.process(process.id) is process
    assert known == ENDED_KEPT_MAX


async def test_another_task_attaches_anew(sandbox: Sandbox) -> None:
    process = await shell(sandbox, "echo begun; cat", stdin=Stdin.STREAMED)
    await hear(process, b"begun")

    async def attach() -> bytes:
        found = sandbox.process(process.id)
        assert found.tail().stdout.text == "begun\n"
        return (await hear_out(found))[Stream.STDOUT]

    async with asyncio.TaskGroup() as group:
        others = [group.create_task(attach()) for _ in range(2)]
        await settle_down(sandbox)
        await process.write(b"more\n")
        await process.close_stdin()
    assert [other.result() for other in others] == [b"begun\nmore\n"] * 2


async def test_many_at_once_are_not_mixed_up(sandbox: Sandbox) -> None:
    script = "for n in 1 2 3 4 5; do echo out-$0-$n; echo err-$0-$n >&2; done; cat; exit $0"

    async def one(number: int) -> None:
        process = await sandbox.spawn(["sh", "-c", script, str(number)], stdin=Stdin.STREAMED)
        await hear(process, b"-5\n")
        for turn in range(3):
            await process.write(f"in-{number}-{turn}\n".encode())
        await process.close_stdin()
        heard = await hear_out(process)
        out = [f"out-{number}-{n}\n" for n in range(1, 6)] + [
            f"in-{number}-{n}\n" for n in range(3)
        ]
        assert heard[Stream.STDOUT].decode() == "".join(out)
        assert heard[Stream.STDERR].decode() == "".join(f"err-{number}-{n}\n" for n in range(1, 6))
        assert (await process.wait()).exit_code == number

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(one(number))


async def test_one_more_than_there_is_room_for_is_a_result(sandbox: Sandbox) -> None:
    held = [await sandbox.spawn(["sleep", "1000"]) for _ in range(EXECUTIONS_MAX)]
    done = await (await sandbox.spawn(["true"])).wait()
    assert (done.reason, done.exit_code) == (Reason.START_FAILED, None)
    assert "executions at once" in done.detail
    await held[0].kill()
    assert (await sandbox.run(["true"])).ok
    await sandbox.kill()
    assert {(await each.wait()).reason for each in held} == {Reason.KILLED}


async def test_a_block_that_is_left_early_leaves_nothing_running(sandbox: Sandbox) -> None:
    async with sandbox.stream(["sh", "-c", "sleep 1000 & echo up; sleep 1000"]) as process:
        async for chunk in process.chunks():
            assert chunk.text == "up\n"
            break
    assert not process.running
    await until_left(sandbox, set())
    with pytest.raises(KeyError):
        async with sandbox.stream(["sleep", "1000"]) as process:
            raise KeyError
    assert not process.running


async def test_a_block_hears_all_and_then_the_end(sandbox: Sandbox) -> None:
    script = "for n in 1 2 3; do echo $n; done; exit 5"
    async with sandbox.stream(["sh", "-c", script]) as process:
        heard = await hear_out(process)
        done = await process.wait()
    assert heard[Stream.STDOUT] == b"1\n2\n3\n"
    assert done.exit_code == 5


async def test_what_cannot_be_asked_raises(sandbox: Sandbox) -> None:
    for options in (
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"idle_s": 0.0},
        {"idle_s": -1.0},
        {"idle_s": float("inf")},
        {"stdin": b"x" * (MIB + 1)},
        {"user": ""},
        {"user": -1},
        {"user": 2**32},
        {"user": "a\0"},
        {"user": "a" * 257},
    ):
        with pytest.raises(ValueError, match=f"sandbox {sandbox.id}"):
            await sandbox.spawn(["true"], **options)  # type: ignore[arg-type]
    assert sandbox.processes() == ()


async def test_after_close_there_is_an_end_and_no_start(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create(spec)
    process = await sandbox.spawn(["sleep", "1000"], stdin=Stdin.STREAMED)
    await sandbox.close()
    done = await process.wait()
    assert (done.reason, done.lost) == (Reason.SANDBOX_DIED, True)
    assert not await process.write(b"x" * MIB)
    await process.signal(signal.SIGTERM)
    assert await process.kill() == done
    assert [chunk async for chunk in process.chunks()] == []
    with pytest.raises(SandboxClosed):
        await sandbox.spawn(["true"])
    with pytest.raises(SandboxClosed):
        async with sandbox.stream(["true"]):
            pass
