"""The launcher: whatever is killed, refused or cancelled, nothing of a sandbox stays behind."""

import asyncio
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.processes import children, launchers, name, supervisors
from tiltyard.core.errors import SandboxClosed, SandboxDied, SandboxError, SandboxRefused
from tiltyard.core.execution import Reason, SandboxSpec
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.native.slots import REST_S
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def nobody_in(provider: NativeProvider) -> bool:
    """Whether the cgroups that are there are those that wait for another sandbox, and empty."""
    assert provider._slots is not None
    kept = {Path(place) for slot in provider._slots.free for place in slot.plan.directories}
    there = {path for owner in own_cgroups() for path in owner.glob("*/")}
    return there == kept and not any((path / "cgroup.procs").read_text() for path in there)


def own_cgroups() -> set[Path]:
    mine = f"{cgroups.PREFIX}{os.getpid()}-*"
    return {path for tree in usable_hierarchies() for path in tree.base.glob(mine)}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Around each test here, after its provider is closed: what it had is gone, to the last."""
    mounts = Path("/proc/self/mountinfo").read_text()
    yield
    assert launchers() == []
    assert own_cgroups() == set()
    assert Path("/proc/self/mountinfo").read_text() == mounts


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


async def until_gone(pid: int) -> None:
    pidfd = None
    try:
        pidfd = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, ended.set)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(pidfd)
    except ProcessLookupError:
        return
    finally:
        if pidfd is not None:
            os.close(pidfd)


async def test_a_sandbox_leaves_with_its_closing(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    before = descriptors()
    for _ in range(3):
        sandbox = await provider.create(spec)
        (pid,) = supervisors()
        await sandbox.run(["true"])
        await sandbox.close()
        assert supervisors() == []
        assert name(pid) == ""
        assert descriptors() == before
    assert nobody_in(provider)


async def test_closing_twice_at_once(provider: NativeProvider, spec: SandboxSpec) -> None:
    sandbox = await provider.create(spec)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(sandbox.close())
    assert supervisors() == []


async def test_what_nobody_closed_leaves_with_its_provider(image: Image, spec: SandboxSpec) -> None:
    before = descriptors()
    async with NativeProvider(image=image) as provider:
        kept, killed = [await provider.create(spec) for _ in range(2)]
        os.kill(supervisors()[1], signal.SIGKILL)
        with pytest.raises(SandboxDied):
            await killed.ping()
    assert descriptors() == before
    assert not kept.alive
    with pytest.raises(SandboxDied):
        await kept.run(["true"])
    await kept.close()


async def test_a_killed_supervisor_takes_all_with_it(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create(spec)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sandbox.run(["sleep", "1000"], timeout_s=100))
        await until(lambda: children(supervisors()[0]))
        program = children(supervisors()[0])[0]
        os.kill(supervisors()[0], signal.SIGKILL)
        await until_gone(program)
    done = running.result()
    assert (done.reason, done.exit_code, done.signal) == (Reason.SANDBOX_DIED, None, None)
    assert not sandbox.alive
    with pytest.raises(SandboxDied):
        await sandbox.run(["true"])
    with pytest.raises(SandboxDied):
        await sandbox.read("x")
    await sandbox.close()
    with pytest.raises(SandboxClosed):
        await sandbox.ping()


async def test_a_killed_program_is_only_a_program(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create(spec)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sandbox.run(["sleep", "1000"], timeout_s=100))
        await until(lambda: children(supervisors()[0]))
        os.kill(children(supervisors()[0])[0], signal.SIGKILL)
    assert (running.result().reason, running.result().signal) == (Reason.SIGNAL, signal.SIGKILL)
    assert (await sandbox.run(["true"])).ok
    await sandbox.close()


async def test_a_killed_launcher_takes_its_sandboxes_with_it(
    image: Image, spec: SandboxSpec
) -> None:
    async with NativeProvider(image=image) as provider:
        sandboxes = [await provider.create(spec) for _ in range(3)]
        pids = supervisors()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sandboxes[0].run(["sleep", "1000"], timeout_s=100))
            os.kill(launchers()[0], signal.SIGKILL)
            for pid in pids:
                await until_gone(pid)
        assert running.result().reason is Reason.SANDBOX_DIED
        with pytest.raises(SandboxError):
            await provider.create(spec)
        for sandbox in sandboxes:
            await sandbox.close()


async def test_a_launcher_killed_while_it_makes_them(image: Image, spec: SandboxSpec) -> None:
    async with NativeProvider(image=image) as provider:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(outcome(provider, spec)) for _ in range(20)]
            await until(supervisors)
            os.kill(launchers()[0], signal.SIGKILL)
        results = [task.result() for task in asked]
        assert any(isinstance(result, SandboxError) for result in results)
        for result in results:
            if isinstance(result, Sandbox):
                await result.close()


async def outcome(provider: NativeProvider, spec: SandboxSpec) -> Sandbox | SandboxError:
    try:
        return await provider.create(spec)
    except SandboxError as error:
        return error


@pytest.mark.slow
async def test_a_stopped_launcher_is_ended_with_the_provider(
    image: Image, spec: SandboxSpec
) -> None:
    """It cannot hear that the host is done, so it is killed; its sandboxes die with it."""
    async with NativeProvider(image=image) as provider:
        await provider.create(spec)
        os.kill(launchers()[0], signal.SIGSTOP)


async def test_many_at_once(provider: NativeProvider, spec: SandboxSpec) -> None:
    async with asyncio.TaskGroup() as group:
        making = [group.create_task(provider.create(spec)) for _ in range(40)]
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(task.result().run(["echo", "up"])) for task in making]
    assert {run.result().stdout.text for run in runs} == {"up\n"}
    async with asyncio.TaskGroup() as group:
        for task in making:
            group.create_task(task.result().close())
    assert supervisors() == []


@pytest.mark.slow
async def test_cancelling_a_creation_at_any_moment(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    before = descriptors()
    turns = 0
    while True:
        async with asyncio.TaskGroup() as group:
            making = group.create_task(provider.create(spec))
            for _ in range(turns):
                await asyncio.sleep(0)
            making.cancel()
        if not making.cancelled():
            await making.result().close()
            break
        turns += 1 + turns // 20
    # Whatever was half made ends by itself; one more, made and closed after it, is behind it.
    await (await provider.create(spec)).close()
    await until(lambda: not supervisors() and nobody_in(provider))
    assert descriptors() == before


async def test_descriptors_that_run_out_are_an_error_with_a_fix(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    await (await provider.create(spec)).close()
    await asyncio.sleep(REST_S)  # its cgroups would be used again, and nobody can look at them
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failed = 0
    lowest_free = os.dup(0)
    os.close(lowest_free)
    try:
        for spare in range(5):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + spare, hard))
            result = await outcome(provider, spec)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if isinstance(result, Sandbox):
                await result.close()
            else:
                failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed >= 1
    await until(lambda: not supervisors() and nobody_in(provider))
    assert descriptors() == before
    sandbox = await provider.create(spec)
    assert (await sandbox.run(["true"])).ok
    await sandbox.close()


async def test_nothing_of_ours_reaches_the_hosts_own_children(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """An inherited control socket would keep a sandbox alive after its owner."""
    sandbox = await provider.create(spec)
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - the names are numbers
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
            flags = fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        if fd > 2 and target.startswith(("socket:", "anon_inode:")):
            assert flags & fcntl.FD_CLOEXEC, (fd, target)
    await sandbox.close()


async def test_two_providers_of_one_process_do_not_touch_each_other(
    provider: NativeProvider, image: Image, spec: SandboxSpec
) -> None:
    kept = await provider.create(spec)
    mine = own_cgroups()
    async with NativeProvider(image=image) as second:
        await second.create(spec)
        assert len(launchers()) == 2
    assert own_cgroups() == mine
    assert (await kept.run(["true"])).ok
    async with NativeProvider(image=image) as third:
        await third.create(spec)
        os.kill(launchers()[1], signal.SIGKILL)
    assert own_cgroups() == mine
    assert (await kept.run(["true"])).ok
    await kept.close()


async def test_a_provider_that_is_not_open(image: Image, spec: SandboxSpec) -> None:
    provider = NativeProvider(image=image)
    with pytest.raises(SandboxError, match="not open"):
        await provider.create(spec)
    await provider.aclose()
    async with provider:
        pass
    await provider.aclose()
    with pytest.raises(SandboxDied):
        await provider.create(spec)


@pytest.mark.slow
async def test_a_supervisor_that_hangs_is_given_up(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Stopped from outside, it neither ends its program nor answers; the host's own clock does."""
    sandbox = await provider.create(spec)
    (pid,) = supervisors()
    assert name(pid) == "tiltyard-init"
    await sandbox.run(["sh", "-c", "sleep 1000 >/dev/null 2>&1 &"])
    os.kill(pid, signal.SIGSTOP)
    done = await sandbox.run(["sleep", "1000"], timeout_s=0.1)
    assert (done.reason, done.detail) == (
        Reason.OUTCOME_UNKNOWN,
        "the supervisor did not answer",
    )
    assert supervisors() == []
    await sandbox.close()


@pytest.mark.slow
async def test_the_node_ends_what_has_lived_long_enough(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """The launcher does, so that it does not depend on this process being well."""
    sandbox = await provider.create(replace(spec, lifetime_s=1.0))
    other = await provider.create(spec)
    done = await sandbox.run(["sleep", "60"], timeout_s=50)
    assert done.reason is Reason.SANDBOX_DIED
    with pytest.raises(SandboxDied, match="lifetime of 1 s"):
        await sandbox.run(["true"])
    assert (await other.run(["true"])).ok
    for lifetime_s in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(SandboxRefused, match="lifetime_s"):
            await provider.create(replace(spec, lifetime_s=lifetime_s))
    await sandbox.close()
    await other.close()


@pytest.mark.skipif(not usable_hierarchies(), reason="there is no cgroup to write to")
async def test_cgroups_that_were_removed_are_made_anew(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Whoever cleans up a machine may take away what nothing keeps while no sandbox lives."""
    await (await provider.create(spec)).close()
    for owner in own_cgroups():
        for directory in (*owner.glob("*/*/"), *owner.glob("*/"), owner):
            directory.rmdir()
    sandbox = await provider.create(spec)
    assert (await sandbox.run(["true"])).ok
    await sandbox.close()


@pytest.mark.skipif(not usable_hierarchies(), reason="there is no cgroup to write to")
async def test_what_dead_owners_left_is_swept_without_being_asked(
    image: Image,
) -> None:
    async with NativeProvider(image=image, sweep_every_s=0.05):
        dead = [tree.base / f"{cgroups.PREFIX}4194305-1-0" for tree in usable_hierarchies()]
        for directory in dead:
            directory.mkdir()
        await until(lambda: not any(directory.exists() for directory in dead))
