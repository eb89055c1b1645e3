"""Kept interpreters: each run alone in its cell, whatever the one before it did."""

import ast
import asyncio
import os
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.processes import supervisors
from sandbox.zygote_runs import PROGRAM, ask, once, same_cell, send
from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import Reason, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.zygotes import ZygoteCells

pytestmark = pytest.mark.sandbox

NATIVE_ROOT = os.geteuid() == 0


async def test_a_run_answers_until_its_block_ends(cells: ZygoteCells) -> None:
    async with cells.run(wall_s=20) as run:
        assert await ask(run, "answer = 6 * 7") == "42"
        assert await ask(run, "answer = 'again'") == "again"
        ended = await run.end()
    assert ended.reason is Reason.KILLED
    assert run.cpu_s > 0


async def test_runs_of_one_cell_share_nothing(cells: ZygoteCells) -> None:
    leave = """
    import ctypes, os, random, socket, sys
    libc = ctypes.CDLL(None, use_errno=True)
    for place in ("/workspace", "/tmp", "/dev/shm"):
        with open(place + "/left", "w") as file:
            file.write("x")
    ids = (libc.shmget(7, 4096, 0o1666), libc.semget(7, 1, 0o1666), libc.msgget(7, 0o1666))
    assert min(ids) >= 0, ids
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\\0left")
    listener.listen()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import time
            time.sleep(1000)
    MARKS.append("left")
    os.environ["LEFT"] = "1"
    sys.modules["left"] = sys
    import builtins
    builtins.sorted = lambda _: 0
    answer = random.random()
    """
    look = """
    import ctypes, os, random, socket, sys
    libc = ctypes.CDLL(None, use_errno=True)
    found = [place for place in ("/workspace", "/tmp", "/dev/shm") if os.listdir(place)]
    for kind, at in (("shm", libc.shmget(7, 4096, 0)), ("sem", libc.semget(7, 1, 0)),
                     ("msg", libc.msgget(7, 0))):
        if at >= 0:
            found.append(kind)
    try:
        socket.socket(socket.AF_UNIX).connect("\\0left")
        found.append("socket")
    except OSError:
        pass
    found += [entry for entry in os.listdir("/proc") if entry.isdigit() and entry != "1"]
    found += MARKS
    found += [name for name in ("LEFT",) if name in os.environ]
    found += [name for name in ("left",) if name in sys.modules]
    found += ["builtins"] * (sorted("ba") != ["a", "b"])
    found += [os.getcwd()] * (os.getcwd() != "/workspace")
    answer = f"{random.random()} {found}"
    """
    cell = await same_cell(cells)
    first = await once(cells, leave)
    drawn, found = (await once(cells, look)).split(" ", 1)
    assert found == "[]"
    assert 0 < float(first) < 1, first
    assert drawn != first, "each run has random numbers of its own"
    assert await same_cell(cells) == cell, "it was the same cell all the time"
    assert cells.sandboxes == 1


async def test_generators_that_outlive_a_fork_are_seeded_anew(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """NumPy's is one, and need not be here: the program brings a module of its name and ways."""
    generator = """
    import random, sys, types
    kept = random.Random(1)
    module = types.ModuleType("numpy.random")
    module.seed = kept.seed
    sys.modules["numpy.random"] = module
    """
    files = {"runner.py": textwrap.dedent(generator) + PROGRAM.files["runner.py"]}
    program = replace(PROGRAM, files=files)
    draw = "import sys; answer = sys.modules['numpy.random'].seed.__self__.random()"
    async with ZygoteCells(
        provider, interpreter=provider.interpreter, program=program, spec=spec, cells_max=1
    ) as cells:
        drawn = [await once(cells, draw) for _ in range(3)]
    assert len(set(map(float, drawn))) == 3, drawn


async def test_runs_have_users_and_namespaces_of_their_own(cells: ZygoteCells) -> None:
    # A namespace that has gone may give its number to the next: each run's is told from its cell's.
    look = """
    import os
    kinds = ("pid", "mnt", "ipc")
    mine = [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]
    answer = [os.getuid(), *mine]
    """
    one, other = [ast.literal_eval(await once(cells, look)) for _ in range(2)]
    (cell,) = supervisors()
    # An ordinary user may not look at a supervisor, and only sees that they are not the host's.
    around = Path(f"/proc/{cell if NATIVE_ROOT else 'self'}/ns")
    cells_own = {str((around / kind).readlink()) for kind in ("pid", "mnt", "ipc")}
    for run in (one, other):
        assert not set(run[1:]) & cells_own
    if NATIVE_ROOT:
        assert len({0, one[0], other[0]}) == 3


async def test_the_zygote_is_out_of_a_runs_sight(cells: ZygoteCells) -> None:
    answer = await once(
        cells,
        """
        import os, signal
        assert (os.getpid(), os.getppid()) == (1, 0)
        assert [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]
        assert os.getpgrp() == os.getsid(0) == 1
        os.kill(0, signal.SIGKILL)
        for target in (-1, 2, 3, 4, 5):
            try:
                os.kill(target, signal.SIGKILL)
                answer = f"signalled {target}"
                break
            except ProcessLookupError:
                answer = "alone"
        """,
    )
    assert answer == "alone"
    assert await once(cells, "answer = 1") == "1"


async def test_what_a_run_may_not_do(cells: ZygoteCells) -> None:
    answer = await once(
        cells,
        """
        import ctypes, errno, os, re
        status = dict(re.findall(r"(\\w+):\\s*(.*)", open("/proc/self/status").read()))
        assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1", status
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (kind, status[kind])
        assert os.getgroups() == [] or os.getuid() == 0
        libc = ctypes.CDLL(None, use_errno=True)
        for name, number, args in (
            ("unshare", 272, (0x10000000,)), ("mount", 165, (0, 0, 0, 0, 0)), ("setns", 308, (3,)),
            ("ptrace", 101, (0, 0, 0, 0)), ("bpf", 321, (0, 0, 0)), ("keyctl", 250, (0, -3, 1)),
            ("io_uring_setup", 425, (1, 0)), ("chroot", 161, (b"/tmp",)),
        ):
            result = libc.syscall(ctypes.c_long(number), *args)
            assert result == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), name
        for change in (
            lambda: os.setuid(0), lambda: os.chown("/workspace", 0, 0), lambda: os.setgroups([0]),
            lambda: os.mkdir("/new"), lambda: open("/etc/passwd", "w"), lambda: open("/run/x", "w"),
            lambda: open("/run/tiltyard/zygote.py", "w"), lambda: os.mkdir("/run/tiltyard/own/x"),
            lambda: os.listdir("/proc/sys"), lambda: open("/proc/kcore"),
        ):
            try:
                change()
            except OSError:
                continue
            # With no other user to become, a run is the owner of its own disk.
            own = (b"setuid", b"setgroups", b"chown", b"mkdir")
            assert os.getuid() == 0, change.__code__.co_names
            assert change.__code__.co_names[-1].encode() in own, change.__code__.co_names
        answer = "held"
        """,
    )
    assert answer == "held"


async def test_what_a_run_is_given(cells: ZygoteCells) -> None:
    answer = await once(
        cells,
        """
        import os, sys
        fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
        kinds = [os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in fds[:4]]
        answer = (fds[:-1], kinds, sorted(os.environ), sys.argv, os.umask(0))
        """,
    )
    fds, kinds, names, argv, umask = ast.literal_eval(answer)
    assert fds == [0, 1, 2, 3]
    assert kinds == ["/dev/null", "pipe", "pipe", "socket"]
    assert {"HOME", "LANG", "PATH", "TMPDIR"} <= set(names)
    assert set(names) <= {"HOME", "LANG", "PATH", "TMPDIR", "LC_CTYPE", "LD_LIBRARY_PATH"}
    assert (argv, umask) == (["python"], 0o022)


async def test_a_run_cannot_bring_about_a_kill_that_nobody_sent(cells: ZygoteCells) -> None:
    """Lowering its own CPU-time limit would: the kernel's SIGKILL would look like one of ours."""
    answer = await once(
        cells,
        """
        import ctypes, errno, os, resource
        libc = ctypes.CDLL(None, use_errno=True)
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        one = (ctypes.c_uint64 * 2)(1, 1)
        for name, call in {
            "module": lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 1)),
            "setrlimit": lambda: libc.syscall(160, 0, one),
            "prlimit": lambda: libc.syscall(302, 0, 0, one, 0),
            "of its pid": lambda: libc.syscall(302, os.getpid(), 0, one, 0),
            "high bits": lambda: libc.syscall(302, 0, ctypes.c_long(1 << 32), one, 0),
            "high bits, old call": lambda: libc.syscall(160, ctypes.c_long(1 << 32), one),
        }.items():
            ctypes.set_errno(0)
            try:
                assert call() == -1, name
            except (OSError, ValueError):
                pass
            assert resource.getrlimit(resource.RLIMIT_CPU) == (soft, hard), name
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        answer = resource.getrlimit(resource.RLIMIT_NOFILE)
        """,
    )
    assert answer == "(20, 20)"


async def test_a_run_cannot_stop_or_kill_itself_into_limbo(cells: ZygoteCells) -> None:
    answer = await once(
        cells,
        """
        import os, signal
        for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGTSTP):
            os.kill(1, number)
        answer = "unmoved"
        """,
    )
    assert answer == "unmoved"


async def test_a_run_without_an_end_is_refused(cells: ZygoteCells) -> None:
    for wall_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="needs a time limit"):
            async with cells.run(wall_s=wall_s):
                pass
    assert cells.sandboxes == 0


async def test_one_run_at_a_time_in_each_cell(provider: NativeProvider, spec: SandboxSpec) -> None:
    together = asyncio.Barrier(2)
    running = most = 0

    async def use(opened: ZygoteCells) -> None:
        nonlocal running, most
        async with opened.run(wall_s=20) as run, together:
            running += 1
            most = max(most, running)
            assert await ask(run, "answer = 1") == "1"
            running -= 1

    async with ZygoteCells(
        provider, interpreter=provider.interpreter, program=PROGRAM, spec=spec, cells_max=2
    ) as opened:
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(use(opened))
        assert opened.sandboxes == 2
    assert most == 2
    assert opened.sandboxes == 0
    assert supervisors() == []


async def test_cancelling_a_run_at_any_moment(cells: ZygoteCells) -> None:
    async def use() -> None:
        async with cells.run(wall_s=20) as run:
            await ask(run, "answer = 1")

    for turns in range(0, 60, 3):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(use())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
    assert await once(cells, "answer = 1") == "1"
    assert cells.sandboxes == len(supervisors()) == 1


async def test_closing_ends_what_runs_and_refuses_what_waits(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    ends: list[Reason] = []

    async def use(opened: ZygoteCells) -> None:
        async with opened.run(wall_s=20) as run:
            send(run, "import time; time.sleep(1000)")
            started.set()
            ends.append((await run.ended()).reason)

    async def wait_for_one(opened: ZygoteCells) -> None:
        with pytest.raises(SandboxClosed):
            await once(opened, "answer = 1")

    started = asyncio.Event()
    async with (
        asyncio.TaskGroup() as group,
        ZygoteCells(
            provider, interpreter=provider.interpreter, program=PROGRAM, spec=spec, cells_max=1
        ) as opened,
    ):
        group.create_task(use(opened))
        await started.wait()
        group.create_task(wait_for_one(opened))
        await asyncio.sleep(0)
    assert ends == [Reason.SANDBOX_DIED]
    assert supervisors() == []
    with pytest.raises(SandboxClosed):
        await once(opened, "answer = 1")


async def test_a_provider_that_has_ended(cells: ZygoteCells, provider: NativeProvider) -> None:
    await provider.aclose()
    with pytest.raises(SandboxError):
        await once(cells, "answer = 1")
    assert cells.sandboxes == 0
