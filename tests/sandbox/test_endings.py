"""How programs end that do not want to, that say nothing, or whose sandbox is lost under them."""

import asyncio
import os
import signal

import pytest

from sandbox.processes import supervisors
from sandbox.spawned import hear, until_left
from tiltyard.core.execution import MIB, Limits, Reason, SandboxSpec, Stdin, Stream
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.protocol import FrameType
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def limits() -> Limits:
    return Limits(memory_bytes=256 * MIB, pids=256, disk_bytes=8 * MIB, inodes=1024, open_files=64)


async def test_a_silent_program_is_ended(sandbox: Sandbox) -> None:
    done = await sandbox.run(["sh", "-c", "echo first; sleep 1000 & sleep 1000"], idle_s=0.1)
    assert (done.reason, done.signal) == (Reason.IDLE_TIMEOUT, signal.SIGKILL)
    assert done.stdout.text == "first\n"
    assert done.wall_s < 10
    await until_left(sandbox, set())


async def test_what_goes_in_is_no_sign_of_life(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(
        ["sh", "-c", "while read line; do :; done"], stdin=Stdin.STREAMED, idle_s=0.1
    )
    while await process.write(b"line\n"):
        pass
    assert (await process.wait()).reason is Reason.IDLE_TIMEOUT


@pytest.mark.slow
async def test_a_program_that_goes_on_talking_is_not_silent(sandbox: Sandbox) -> None:
    script = "for n in $(seq 12); do echo $n >&2; sleep 0.1; done"
    done = await sandbox.run(["sh", "-c", script], idle_s=1.0)
    assert done.ok
    assert done.wall_s > 1.0


async def test_the_nearer_deadline_counts(sandbox: Sandbox) -> None:
    late = await sandbox.run(["sleep", "1000"], timeout_s=0.1, idle_s=50)
    silent = await sandbox.run(["sleep", "1000"], timeout_s=50, idle_s=0.1)
    assert (late.reason, silent.reason) == (Reason.WALL_TIMEOUT, Reason.IDLE_TIMEOUT)


async def test_a_deadline_holds_for_one_that_nobody_waits_for(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["sh", "-c", "echo up; sleep 1000"], timeout_s=0.1)
    async for _ in process.chunks():
        pass
    assert not process.running
    assert (await process.wait()).reason is Reason.WALL_TIMEOUT


@pytest.mark.parametrize(
    "stubborn",
    [
        "trap '' TERM; kill -TERM $$; echo up; while :; do sleep 1000; done",
        "echo up; kill -STOP $$",
        "echo up; (trap '' TERM; setsid sleep 1000) & sleep 1000",
        "echo up; exec >&- 2>&-; sleep 1000",
        "echo up; exec cat /dev/zero > /dev/null",
    ],
    ids=["ignores", "stopped", "left its session", "closed its output", "busy"],
)
async def test_a_kill_is_the_end_of_all_of_it(sandbox: Sandbox, stubborn: str) -> None:
    bystander = await sandbox.spawn(["tail", "-f", "/dev/null"])
    process = await sandbox.spawn(["sh", "-c", stubborn])
    await hear(process, b"up")
    assert (await process.kill()).reason is Reason.KILLED
    await until_left(sandbox, {"tail"})
    assert bystander.running


async def test_a_leader_whose_first_thread_has_gone_is_ended(sandbox: Sandbox) -> None:
    """Its entry in /proc looks like that of a zombie, while its other threads run on."""
    program = """
import ctypes, threading
forever = threading.Event()
threading.Thread(target=forever.wait).start()
print("up", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""
    await sandbox.spawn(["tail", "-f", "/dev/null"])
    process = await sandbox.spawn(["python3", "-I", "-c", program], timeout_s=100)
    await hear(process, b"up")
    assert (await process.kill()).reason is Reason.KILLED
    await until_left(sandbox, {"tail"})


async def test_a_child_that_holds_the_output_ends_no_reading_late(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["sh", "-c", "echo first; sleep 1000 & echo last"])
    heard = b"".join([chunk.data async for chunk in process.chunks()])
    assert heard == b"first\nlast\n"
    assert (await process.wait()).ok
    await until_left(sandbox, {"sleep"})


async def test_endless_output_that_nobody_reads_changes_nothing(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(
        ["head", "-c", str(20 * MIB), "/dev/zero"], output_bytes_max=2**40
    )
    reader = process.chunks()
    done = await process.wait()
    assert done.ok
    read = [chunk async for chunk in reader]
    assert {chunk.stream for chunk in read} == {Stream.STDOUT}
    assert sum(len(chunk.data) for chunk in read) <= MIB
    assert sum(len(chunk.data) + chunk.skipped_bytes for chunk in read) == 20 * MIB
    endless = await sandbox.spawn(["cat", "/dev/zero"], output_bytes_max=10**6)
    unread = endless.chunks()
    assert (await endless.wait()).reason is Reason.OUTPUT
    del unread


@pytest.mark.slow
async def test_ten_thousand_orphans_are_reaped(sandbox: Sandbox) -> None:
    program = """
import os
for _ in range(100):
    if (pid := os.fork()) == 0:
        for _ in range(100):
            if os.fork() == 0:
                os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
print("over")
"""
    process = await sandbox.spawn(["python3", "-I", "-S", "-c", program], timeout_s=60)
    beside = 0
    while process.running:
        assert (await sandbox.run(["true"])).ok
        beside += 1
    done = await process.wait()
    assert (done.ok, done.stdout.text) == (True, "over\n"), done
    assert beside
    zombies = await sandbox.run(["sh", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"])
    assert zombies.stdout.text == "0\n"


@pytest.mark.slow
async def test_as_many_zombies_as_may_be_are_ended_with_their_parent(sandbox: Sandbox) -> None:
    program = """
import os, signal
made = 0
try:
    while True:
        if os.fork() == 0:
            os._exit(0)
        made += 1
except BlockingIOError:
    print("full", made, flush=True)
    signal.pause()
"""
    process = await sandbox.spawn(["python3", "-I", "-S", "-c", program], timeout_s=60)
    await hear(process, b"full")
    assert (await process.kill()).reason is Reason.KILLED
    assert (await sandbox.run(["true"])).ok


@pytest.mark.slow
async def test_one_that_stops_all_it_can_see_is_no_fault_of_ours(sandbox: Sandbox) -> None:
    """Also what is only about to start: a supervisor that waited for that would be stuck."""
    program = """
import os, signal
print("up", flush=True)
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                os.kill(int(name), signal.SIGSTOP)
            except ProcessLookupError:
                pass
"""
    stopper = await sandbox.spawn(["python3", "-I", "-S", "-c", program])
    await hear(stopper, b"up")
    reasons = {(await sandbox.run(["true"], timeout_s=0.3)).reason for _ in range(20)}
    assert reasons <= {Reason.EXIT, Reason.WALL_TIMEOUT}
    assert (await stopper.kill()).reason is Reason.KILLED
    assert (await sandbox.run(["true"])).ok


async def test_a_sandbox_that_dies_ends_what_is_waited_for(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["sh", "-c", "echo up; sleep 1000"], stdin=Stdin.STREAMED)
    await hear(process, b"up")
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(process.write(b"x" * MIB))
        waiting = group.create_task(process.wait())
        await sandbox.ping()
        sandbox.destroy()
    assert writing.result() is False
    done = waiting.result()
    assert (done.reason, done.stdout.text) == (Reason.SANDBOX_DIED, "up\n")
    assert done.exit_code is done.signal is None


@pytest.mark.slow
async def test_the_time_in_which_we_stop_it_is_not_its_own(
    sandbox: Sandbox, provider: NativeProvider, spec: SandboxSpec
) -> None:
    """A long snapshot must neither end a program nor shorten what it has left."""
    clock = await provider.create(spec)
    timed = await sandbox.spawn(["sleep", "1000"], timeout_s=0.5)
    silent = await sandbox.spawn(["sleep", "1000"], idle_s=0.5)
    with sandbox.programs.standing_still():
        await sandbox._supervisor.request(FrameType.PAUSE, b"")
        await clock.run(["sleep", "0.7"])
        assert [timed.running, silent.running] == [True, True]
        await sandbox._supervisor.request(FrameType.RESUME, b"")
    await sandbox.ping()
    assert [timed.running, silent.running] == [True, True]
    assert (await timed.wait()).reason is Reason.WALL_TIMEOUT
    assert (await silent.wait()).reason is Reason.IDLE_TIMEOUT
    await clock.close()


@pytest.mark.slow
async def test_a_supervisor_that_hangs_keeps_nobody_waiting(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Stopped from outside, it ends neither a silent program nor one that is to be killed."""
    silent, killed = [await provider.create(spec) for _ in range(2)]
    waiting = await silent.spawn(["sleep", "1000"], idle_s=0.1)
    doomed = await killed.spawn(["sleep", "1000"])
    beside = await killed.spawn(["sleep", "1000"])
    for pid in supervisors():
        os.kill(pid, signal.SIGSTOP)
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(each) for each in (waiting.wait(), doomed.kill(), beside.wait())]
    for end in ends:
        assert (end.result().reason, end.result().lost) == (Reason.OUTCOME_UNKNOWN, True)
    assert supervisors() == []
    for sandbox in (silent, killed):
        assert not sandbox.alive
        await sandbox.close()
