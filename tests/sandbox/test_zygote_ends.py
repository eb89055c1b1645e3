"""Kept interpreters: every way in which a run, or its cell, can end."""

import os
import signal
from dataclasses import replace

import pytest

from sandbox.processes import children, name, supervisors
from sandbox.zygote_runs import PROGRAM, RUNNER, ask, ending, once, same_cell, send
from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import MIB, Reason, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.streams import ChannelClosed
from tiltyard.sandbox.zygotes import ZygoteCells

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os._exit(0)", Reason.EXIT),
        ("import os; os._exit(137)", Reason.EXIT),
        ("import ctypes; ctypes.string_at(0)", Reason.SIGNAL),
        ("import os; os.abort()", Reason.SIGNAL),
        ("import os\nwhile True: os.write(1, bytes(65536))", Reason.OUTPUT),
        ("import os\nwhile True: channel.sendall(bytes(65536))", Reason.OUTPUT),
        ("raise SystemExit", None),
    ],
)
async def test_how_runs_end(cells: ZygoteCells, source: str, reason: Reason | None) -> None:
    if reason is None:
        assert "SystemExit" in await once(cells, source)
    else:
        assert (await ending(cells, source)).reason is reason
    assert await once(cells, "answer = 1") == "1"


@pytest.mark.slow
async def test_a_run_that_takes_too_long(cells: ZygoteCells) -> None:
    cell = await same_cell(cells)
    sleeps = "import time; time.sleep(1000)"
    assert (await ending(cells, sleeps, wall_s=0.3)).reason is Reason.WALL_TIMEOUT
    spins = "while True: pass"
    assert (await ending(cells, spins, cpu_s=1)).reason is Reason.CPU_TIMEOUT
    assert await same_cell(cells) == cell


@pytest.mark.parametrize(
    "source",
    [
        "x = bytearray(b'1') * (600 << 20)",
        # Memory that belongs to no process, and a score that asks for somebody else to be taken.
        """
        import ctypes, os
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write("0")
        except OSError:
            pass
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        for key in range(100):
            at = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)
            ctypes.memset(at, 1, 8 << 20)
            libc.shmdt(ctypes.c_void_p(at))
        """,
        """
        import os
        held = [os.memfd_create("x") for _ in range(40)]
        while True:
            for fd in held:
                os.write(fd, bytes(1 << 20))
        """,
    ],
    ids=["heap", "shared memory", "memory files"],
)
async def test_memory_that_runs_out(cells: ZygoteCells, by_cgroup: bool, source: str) -> None:
    if not by_cgroup:
        pytest.skip("here no cgroup holds memory: RLIMIT_AS makes the allocation itself fail")
    assert (await ending(cells, source)).reason is Reason.OOM
    assert await once(cells, "answer = 1") == "1"


async def test_a_run_stays_the_first_to_go(cells: ZygoteCells) -> None:
    source = """
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("0")
    except OSError:
        pass
    answer = open("/proc/self/oom_score_adj").read()
    """
    assert (await once(cells, source)).strip() == "1000"


@pytest.mark.slow
async def test_what_a_run_held_is_free_before_the_next_one(
    cells: ZygoteCells, by_cgroup: bool
) -> None:
    """The kernel frees shared memory and disks late; the next run must not pay for that."""
    if not by_cgroup:
        pytest.skip("here no cgroup holds memory")
    hold = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    with open("/tmp/held", "wb") as file:
        file.write(bytes(3 << 20))
    for _ in range(100):
        segment = libc.shmget(0, 8 << 20, 0o1600)
        if segment < 0:
            break
        at = libc.shmat(segment, None, 0)
        ctypes.memset(at, 1, 8 << 20)
        libc.shmdt(ctypes.c_void_p(at))
    """
    for _ in range(12):
        async with cells.run(wall_s=20) as run:
            send(run, hold)
            await run.end(grace_s=0.1)
        assert await once(cells, "answer = len(bytearray(b'1') * (90 << 20))") == str(90 << 20)


async def test_memory_by_rung(cells: ZygoteCells, by_cgroup: bool) -> None:
    answer = await once(cells, "x = bytearray(b'1') * (100 << 20)\nanswer = len(x)")
    assert answer == str(100 << 20)
    too_much = "x = bytearray(b'1') * (600 << 20)"
    if by_cgroup:
        assert (await ending(cells, too_much)).reason is Reason.OOM
    else:
        assert "MemoryError" in await once(cells, too_much)


async def test_a_runs_disk_is_bounded_and_its_own(cells: ZygoteCells) -> None:
    fill = """
    try:
        with open("/tmp/f", "wb") as file:
            for n in range(100):
                file.write(bytes(1 << 20))
                file.flush()
        answer = "no bound"
    except OSError as error:
        answer = f"{n} {error.errno}"
    """
    for _ in range(3):
        megabytes, errno = (await once(cells, fill)).split()
        assert int(megabytes) in {3, 4}
        assert errno == "28"


@pytest.mark.parametrize(
    "source",
    [
        "import os\nwhile True: os.fork()",
        """
        import os
        for _ in range(60):
            try:
                if os.fork() == 0:
                    while True: pass
            except OSError:
                pass
        while True: pass
        """,
    ],
    ids=["fork bomb", "spinning children"],
)
@pytest.mark.slow
async def test_processes_of_a_run_end_with_it(cells: ZygoteCells, source: str) -> None:
    ended = await ending(cells, source, wall_s=1.0)
    assert ended.reason in {Reason.WALL_TIMEOUT, Reason.PIDS}, ended
    (supervisor,) = supervisors()
    (zygote,) = children(supervisor)
    assert children(zygote) == []
    assert await once(cells, "answer = 1") == "1"


async def test_a_run_that_closes_its_channel_and_lives_on(cells: ZygoteCells) -> None:
    async with cells.run(wall_s=20) as run:
        send(run, "channel.close()\nimport time\ntime.sleep(1000)")
        with pytest.raises(ChannelClosed):
            await run.channel.take(1)
        assert (await run.end()).reason is Reason.KILLED
    assert await once(cells, "answer = 1") == "1"


async def test_more_input_than_a_run_reads_is_its_end(cells: ZygoteCells) -> None:
    async with cells.run(wall_s=20) as run:
        send(run, "import time; time.sleep(1000)")
        for _ in range(20):
            run.send(bytes(MIB))
        ended = await run.ended()
    assert (ended.reason, ended.detail) == (Reason.KILLED, "it did not read what it was sent")


async def test_what_goes_wrong_in_a_run_is_on_its_stderr(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    broken = replace(
        PROGRAM, files={"runner.py": "def serve(channel):\n    raise KeyError('why')\n"}
    )
    async with (
        ZygoteCells(
            provider, interpreter=provider.interpreter, program=broken, spec=spec, cells_max=1
        ) as opened,
        opened.run(wall_s=20) as run,
    ):
        ended = await run.ended()
    assert (ended.reason, ended.exit_code) == (Reason.EXIT, 1)
    assert "KeyError: 'why'" in run.stderr.result().text


async def test_a_zygote_that_cannot_start(provider: NativeProvider, spec: SandboxSpec) -> None:
    broken = replace(PROGRAM, files={"runner.py": "import no_such_module\n"})
    async with ZygoteCells(
        provider, interpreter=provider.interpreter, program=broken, spec=spec, cells_max=1
    ) as opened:
        with pytest.raises(SandboxError, match="No module named 'no_such_module'"):
            await once(opened, "answer = 1")
        assert opened.sandboxes == 0
    assert supervisors() == []


async def test_a_slow_start_is_not_taken_from_the_runs_time(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    slow = "import time\nwhile time.process_time() < 0.6: pass\n" + RUNNER
    program = replace(PROGRAM, files={"runner.py": slow})
    async with (
        ZygoteCells(
            provider, interpreter=provider.interpreter, program=program, spec=spec, cells_max=1
        ) as opened,
        opened.run(wall_s=0.5) as run,
    ):
        assert await ask(run, "answer = 1") == "1"


@pytest.mark.parametrize("victim", ["run", "zygote", "supervisor"])
async def test_what_is_killed_from_outside_is_a_loss_of_ours(
    cells: ZygoteCells, victim: str
) -> None:
    async with cells.run(wall_s=20) as run:
        assert await ask(run, "answer = 1") == "1"
        (supervisor,) = supervisors()
        (zygote,) = children(supervisor)
        (pid,) = children(zygote)
        assert name(zygote).startswith("python")
        os.kill({"run": pid, "zygote": zygote, "supervisor": supervisor}[victim], signal.SIGKILL)
        ended = await run.ended()
    assert ended.reason is Reason.SANDBOX_DIED
    assert await once(cells, "answer = 2") == "2"
    assert cells.sandboxes == 1


async def test_an_out_of_memory_kill_explains_a_lost_cell(
    cells: ZygoteCells, by_cgroup: bool
) -> None:
    """Whatever was lost after the kernel took a process of the run's for want of memory: the run
    used that memory up, so it must not come out as a fault of ours, without a reward."""
    if not by_cgroup:
        pytest.skip("here no cgroup counts such kills")
    hog = """
    import os
    pid = os.fork()
    if pid == 0:
        x = bytearray(b"1") * (600 << 20)
    answer = os.waitpid(pid, 0)[1]
    """
    async with cells.run(wall_s=20) as run:
        assert await ask(run, hog) == str(int(signal.SIGKILL))
        os.kill(supervisors()[0], signal.SIGKILL)
        ended = await run.ended()
    assert ended.reason is Reason.OOM
