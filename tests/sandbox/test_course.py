"""What became of a program whose sandbox was lost, as far as anybody can tell."""

import asyncio
import struct

import pytest

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import Reason
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.course import Course
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.protocol import FrameType, ProgramLimits, frame, text
from tiltyard.sandbox.supervisor import Execution, Supervisor

CALM = Usage(cpu_s=0.0, memory_peak_bytes=0)


class FakeHold:
    """A sandbox as its provider sees it: it goes by itself, when it is destroyed, or never."""

    def __init__(self, *, by_itself: bool = False, oom_kills: int = 0) -> None:
        self.destroyed = False
        self._gone = asyncio.Event()
        self._oom_kills = oom_kills
        if by_itself:
            self._gone.set()

    def read_usage(self, *, reset_peak: bool) -> Usage:
        kills = self._oom_kills if self._gone.is_set() else 0
        return Usage(cpu_s=0.0, memory_peak_bytes=0, oom_kills=kills)

    def read_pids_refused(self) -> int:
        return self.read_usage(reset_peak=False).pids_refused

    def read_group(self, number: int) -> Usage:
        return Usage(cpu_s=float(number), memory_peak_bytes=number * 4096)

    def read_memory_bytes(self) -> int | None:
        return None

    def destroy(self) -> None:
        self.destroyed = True
        self._gone.set()

    async def gone(self) -> None:
        await self._gone.wait()


class StuckHold(FakeHold):
    """One whose processes do not end."""

    async def gone(self) -> None:
        raise SandboxError("it does not go")


class FakeTransport(asyncio.Transport):
    """Takes what is sent; ends when it is told to."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__()
        self._supervisor = supervisor

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._supervisor.connection_lost, None)


def begun(hold: FakeHold, *, wall_s: float = 100.0) -> tuple[Supervisor, Execution, Course]:
    supervisor = Supervisor(SandboxId("s1"))
    supervisor.connection_made(FakeTransport(supervisor))
    execution = supervisor.execution()
    course = Course(
        execution,
        supervisor=supervisor,
        hold=hold,
        cpus=1.0,
        limits=ProgramLimits(wall_s=wall_s, cpu_s=0, output_bytes_max=1, open_files=1, processes=1),
        idle_s=0.0,
        before=CALM,
    )
    return supervisor, execution, course


async def test_a_sandbox_that_was_seen_to_end_has_died() -> None:
    hold = FakeHold(by_itself=True)
    supervisor, _, course = begun(hold)
    supervisor.connection_lost(None)
    assert (await course.settled()).ending.reason is Reason.SANDBOX_DIED


@pytest.mark.slow
@pytest.mark.parametrize("hold", [FakeHold, StuckHold])
async def test_of_a_connection_that_only_broke_nobody_knows(hold: type[FakeHold]) -> None:
    lost = hold()
    supervisor, _, course = begun(lost)
    supervisor.connection_lost(ConnectionResetError())
    ending = (await course.settled()).ending
    assert (ending.reason, ending.exit_code) == (Reason.OUTCOME_UNKNOWN, None)
    assert lost.destroyed, "what may run on there is of no use to anybody"


async def test_a_stream_that_is_not_the_protocol_is_given_up_on() -> None:
    for garbage in (
        b"\xff" * 20,
        frame(FrameType.STDOUT, 1, b"words") + frame(FrameType.ENTRIES, 1),
        frame(FrameType.TAKEN, 1, b"\xff\xff\xff\xff"),
        frame(FrameType.TAKEN, 1, b"abc"),
        frame(FrameType.EXIT, 1, b"short"),
    ):
        supervisor, _, course = begun(FakeHold())
        supervisor.data_received(garbage)
        settled = await course.settled()
        assert settled.ending.reason is Reason.OUTCOME_UNKNOWN
        assert settled.ending.detail == "the connection to its sandbox broke"


async def test_memory_that_it_used_up_is_its_own_doing_all_the_same() -> None:
    supervisor, _, course = begun(FakeHold(oom_kills=1))
    supervisor.data_received(b"\xff" * 20)
    assert (await course.settled()).ending.reason is Reason.OOM


async def test_all_who_wait_are_told_the_same() -> None:
    supervisor, _, course = begun(FakeHold(by_itself=True))
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(course.settled()) for _ in range(3)]
        given_up = group.create_task(course.settled())
        await asyncio.sleep(0)
        given_up.cancel()
        supervisor.connection_lost(None)
    assert {each.result().ending.reason for each in waiting} == {Reason.SANDBOX_DIED}
    assert (await course.settled()) is waiting[0].result()


async def test_an_end_that_was_told_needs_no_other_evidence() -> None:
    supervisor, execution, course = begun(FakeHold())
    body = bytes(4 + 4) + bytes(8 * 8) + bytes(4) + text("")
    supervisor.data_received(frame(FrameType.EXIT, execution.id, body))
    supervisor.connection_lost(None)
    settled = await course.settled()
    assert (settled.ending.reason, settled.ending.exit_code) == (Reason.EXIT, 0)
    course.kill()


async def test_what_its_own_group_counted_is_its_own() -> None:
    """Whatever the sandbox's counters say of all that ran in it."""
    supervisor, execution, course = begun(FakeHold(oom_kills=3))
    body = bytes(4 + 4) + bytes(8 * 8) + struct.pack("<I", 7) + text("")
    supervisor.data_received(frame(FrameType.EXIT, execution.id, body))
    settled = await course.settled()
    assert (settled.cpu_s, settled.memory_peak_bytes) == (7.0, 7 * 4096)
    assert settled.ending.reason is Reason.EXIT
