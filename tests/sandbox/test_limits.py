"""Every limit is held, and its breach is told as what it is, by whom it was seen.

As an ordinary user without a delegated cgroup some limits hold each process only: an allocation
over the memory limit then fails inside the program (`MemoryError`), and is no `oom`; refused
processes are not counted, and the program's own exit is all there is. These tests say so.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import (
    MIB,
    Enforcement,
    ExecResult,
    Limit,
    Limits,
    Reason,
    SandboxSpec,
    open_limits,
)
from tiltyard.sandbox.native.cgroups import read_or_empty
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]


async def test_memory(python: RunPython, by_cgroup: bool) -> None:
    done = await python(
        """
        block = bytearray(400 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
        """
    )
    if by_cgroup:
        assert done.reason is Reason.OOM
        assert 100 * MIB < done.memory_peak_bytes <= 128 * MIB
    else:
        assert (done.reason, done.exit_code) == (Reason.EXIT, 1)
        assert "MemoryError" in done.stderr.text


@pytest.mark.slow
async def test_memory_of_many_processes_together(python: RunPython, by_cgroup: bool) -> None:
    done = await python(
        """
        import os, sys, time
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                block = bytearray(60 << 20)
                for at in range(0, len(block), 4096):
                    block[at] = 1
                time.sleep(1)
                os._exit(0)
            children.append(pid)
        sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
        """
    )
    # Each one alone is under the limit: without a cgroup nothing holds their sum.
    assert done.reason is (Reason.OOM if by_cgroup else Reason.EXIT)
    assert (done.exit_code == 0) == (not by_cgroup)


@pytest.mark.slow
async def test_a_sandbox_goes_on_after_running_out_of_memory(
    sandbox: Sandbox, python: RunPython
) -> None:
    for _ in range(3):
        done = await python(
            "x = bytearray(600 << 20)\nfor at in range(0, 600 << 20, 4096): x[at] = 1"
        )
        assert not done.ok
    after = await sandbox.run(["true"])
    assert after.ok
    assert after.memory_peak_bytes < 100 * MIB, "its own peak, not an earlier program's"


class TestMoreDiskThanMemory:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(memory_bytes=64 * MIB, disk_bytes=256 * MIB, inodes=1024)

    async def test_memory_that_no_process_holds(self, python: RunPython, by_cgroup: bool) -> None:
        """What lies on the disk is memory, and killing programs does not free it: the sandbox may
        be lost to it, and that is the program's doing, not a fault of ours."""
        done = await python(
            """
            with open("/tmp/f", "wb") as file:
                for _ in range(200):
                    file.write(bytes(1 << 20))
            """
        )
        if by_cgroup:
            assert done.reason is Reason.OOM
        else:
            assert done.ok, "no cgroup counts it here"


async def test_processes(sandbox: Sandbox, python: RunPython, by_cgroup: bool) -> None:
    done = await python(
        """
        import os, time
        for _ in range(100):
            if os.fork() == 0:
                time.sleep(100)
        """
    )
    assert done.exit_code == 1
    assert "Resource temporarily unavailable" in done.stderr.text
    assert done.reason is (Reason.PIDS if by_cgroup else Reason.EXIT)
    await sandbox.kill()
    assert (await sandbox.run(["true"])).ok


@pytest.mark.slow
async def test_a_fork_bomb_is_ended_in_time(sandbox: Sandbox) -> None:
    bomb = "bomb() { bomb | bomb & }; bomb; sleep 100"
    done = await sandbox.run(["sh", "-c", bomb], timeout_s=1.0)
    assert done.reason in {Reason.WALL_TIMEOUT, Reason.PIDS, Reason.EXIT}
    assert done.wall_s < 10
    await sandbox.kill()
    assert (await sandbox.run(["true"])).ok


@pytest.mark.slow
async def test_processes_that_eat_all_cpu_do_not_keep_the_supervisor_from_its_duty(
    sandbox: Sandbox, python: RunPython
) -> None:
    done = await python(
        """
        import os
        for _ in range(5):
            os.fork()
        while True: pass
        """,
        timeout_s=2.0,
    )
    assert done.reason is Reason.WALL_TIMEOUT
    assert done.wall_s < 6
    assert (await sandbox.run(["true"])).ok


async def test_disk(sandbox: Sandbox) -> None:
    done = await sandbox.run(["dd", "if=/dev/zero", "of=/workspace/f", "bs=1M"])
    assert (done.reason, done.exit_code) == (Reason.DISK, 1)
    assert "No space left" in done.stderr.text
    shared = await sandbox.run(["dd", "if=/dev/zero", "of=/dev/shm/f", "bs=1M"])
    assert not shared.ok, "shared memory is part of the same disk"


async def test_inodes(sandbox: Sandbox) -> None:
    done = await sandbox.run(["sh", "-c", "i=0; while : > f$i; do i=$((i+1)); done; exit 1"])
    assert done.reason is Reason.DISK


async def test_a_disk_that_was_full_in_between_is_no_reason(sandbox: Sandbox) -> None:
    script = "dd if=/dev/zero of=f bs=1M 2>/dev/null; rm f; exit 4"
    done = await sandbox.run(["sh", "-c", script])
    assert (done.reason, done.exit_code) == (Reason.EXIT, 4)


async def test_open_files(python: RunPython) -> None:
    done = await python(
        """
        import errno, os, resource
        opened = []
        try:
            while True: opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        assert opened[-1] == 63, opened[-1]
        for more in ((64, 65), (65, 65), (resource.RLIM_INFINITY,) * 2):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, more)
            except (ValueError, PermissionError):
                continue
            raise SystemExit("raised")
        """
    )
    assert done.ok, done.stderr.text


async def test_no_limit_can_be_raised(python: RunPython) -> None:
    done = await python(
        """
        import resource
        for name in ("NPROC", "NOFILE", "CORE", "MEMLOCK", "CPU", "AS", "MSGQUEUE"):
            kind = getattr(resource, f"RLIMIT_{name}", 12)
            soft, hard = resource.getrlimit(kind)
            if hard == resource.RLIM_INFINITY:
                continue
            try:
                resource.setrlimit(kind, (soft, hard + 1))
            except (ValueError, PermissionError):
                continue
            raise SystemExit(f"{name} was raised")
        """,
        cpu_s=5,
    )
    assert done.ok, done.stderr.text


async def test_no_core_is_dumped_nor_handed_to_the_host(
    sandbox: Sandbox, python: RunPython
) -> None:
    done = await python("import os; os.abort()")
    assert done.signal == signal.SIGABRT
    limits = await python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")
    assert limits.stdout.text == "(1, 1)\n", "with 0 a handler in core_pattern would be started"
    assert await sandbox.list() == ()


async def test_no_program_runs_in_real_time(python: RunPython) -> None:
    done = await python(
        """
        import os
        for policy in (os.SCHED_FIFO, os.SCHED_RR):
            try:
                os.sched_setscheduler(0, policy, os.sched_param(1))
            except PermissionError:
                continue
            raise SystemExit("in real time")
        try:
            os.nice(-1)
        except PermissionError:
            raise SystemExit(0)
        raise SystemExit("more than its share")
        """
    )
    assert done.ok, done.stderr.text


@pytest.mark.parametrize("limit", [Limit.MEMORY, Limit.CPU])
async def test_what_is_not_held_for_the_whole_sandbox_is_refused_unless_allowed(
    provider: NativeProvider, spec: SandboxSpec, limit: Limit
) -> None:
    """Memory that is held for each process alone is not held: many exceed it together."""
    others = replace(spec, allow_unenforced=spec.allow_unenforced - {limit})
    if limit in open_limits(provider.enforced):
        with pytest.raises(SandboxRefused, match=f"cannot enforce: {limit}, for a whole sandbox"):
            await provider.create(others)
    else:
        assert provider.enforced[limit] is Enforcement.CGROUP
        await (await provider.create(others)).close()
    allowed = await provider.create(spec)
    done = await allowed.run(["true"])
    assert done.enforced[limit] is provider.enforced[limit], "the result says so"
    await allowed.close()


@pytest.mark.slow
async def test_a_share_of_the_cpu(provider: NativeProvider, spec: SandboxSpec) -> None:
    if provider.enforced[Limit.CPU] is Enforcement.NONE:
        return  # that it is refused is tried above
    small = await provider.create(replace(spec, limits=replace(spec.limits, cpus=0.2)))
    spin = ["python3", "-I", "-S", "-c", "import time\nwhile time.process_time() < 0.3: pass"]
    done = await small.run(spin)
    assert done.ok
    assert done.wall_s > 0.3 / 0.2 * 0.6, "a fifth of a core, less what one period lends"
    await small.close()


async def test_limits_are_in_the_kernels_own_files(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Read from outside, where a limit that was planned and not written would be missing."""
    wanted = replace(spec.limits, memory_bytes=96 * MIB, pids=40, cpus=0.5)
    files = {
        "memory.limit_in_bytes": str(96 * MIB),
        "memory.max": str(96 * MIB),
        "pids.max": "41",  # with the supervisor
        "cpu.cfs_quota_us": "50000",
        "cpu.max": "50000 100000",
    }
    made = await provider.create(replace(spec, limits=wanted))
    trees = usable_hierarchies()
    held = {
        limit
        for place in provider.places()
        for limit, value in files.items()
        if read_or_empty(Path(place) / limit).strip() == value
    }
    await made.close()
    controllers = {name for tree in trees for name in tree.controllers} - {"cpuacct"}
    assert {name.partition(".")[0] for name in held} == controllers


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 0},
        {"memory_bytes": MIB},
        {"memory_bytes": 2**60},
        {"pids": 0},
        {"pids": 2**40},
        {"cpus": 0.0},
        {"cpus": float("nan")},
        {"open_files": 2**40},
        {"open_files": 0},
        {"disk_bytes": 1},
        {"inodes": 1},
        {"inodes": 2**40},
        {"inodes": 1000.5},
        {"disk_bytes": 8.5 * MIB},
        {"memory_bytes": "64M"},
        {"cpus": None},
    ],
)
async def test_a_limit_that_cannot_be_held_is_refused(
    provider: NativeProvider, spec: SandboxSpec, change: dict[str, object]
) -> None:
    (name,) = change
    with pytest.raises(SandboxRefused, match=name):
        await provider.create(replace(spec, limits=replace(spec.limits, **change)))  # type: ignore[arg-type]


async def test_the_smallest_limits_make_a_sandbox_that_works(provider: NativeProvider) -> None:
    limits = Limits(
        memory_bytes=16 * MIB, pids=2, cpus=0.1, open_files=16, disk_bytes=MIB, inodes=256
    )
    spec = SandboxSpec(limits=limits, allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}))
    sandbox = await provider.create(spec)
    await sandbox.write("a", "b")
    assert (await sandbox.run(["cat", "a"])).stdout.text == "b"
    await sandbox.close()


async def test_an_unknown_image_is_refused(provider: NativeProvider, spec: SandboxSpec) -> None:
    with pytest.raises(SandboxRefused, match="unknown image 'alpine'"):
        await provider.create(replace(spec, image="alpine"))


async def test_limits_of_two_sandboxes_are_apart(
    provider: NativeProvider, spec: SandboxSpec, by_cgroup: bool
) -> None:
    one, other = await provider.create(spec), await provider.create(spec)
    hog = "x = bytearray(400 << 20)\nfor at in range(0, 400 << 20, 4096): x[at] = 1"
    async with asyncio.TaskGroup() as group:
        bad = group.create_task(one.run(["python3", "-I", "-S", "-c", hog]))
        good = group.create_task(other.run(["sh", "-c", "sleep 0.2; echo fine"]))
    assert not bad.result().ok
    assert bad.result().reason is (Reason.OOM if by_cgroup else Reason.EXIT)
    assert good.result().stdout.text == "fine\n"
    await one.close()
    await other.close()


async def test_a_program_stays_the_first_to_go_when_memory_runs_out(python: RunPython) -> None:
    """Before its supervisor, and before what is outside."""
    done = await python(
        """
        import os, sys
        for task in ("self", "thread-self", f"self/task/{os.getpid()}", str(os.getpid())):
            for name in ("oom_score_adj", "oom_adj"):
                try:
                    os.write(os.open(f"/proc/{task}/{name}", os.O_WRONLY), b"0")
                except OSError:
                    continue
        print(open("/proc/self/oom_score_adj").read(), end="")
        sys.stdout.flush()
        with open("/proc/self/fd/1", "w") as out, open("/dev/stderr", "w"):
            out.write("what is open is no part of /proc")
        """
    )
    assert done.ok, done.stderr.text
    assert done.stdout.text == "1000\nwhat is open is no part of /proc"
