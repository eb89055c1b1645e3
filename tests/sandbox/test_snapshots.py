"""Frozen files: what a fork starts with, what stays apart, what goes when nobody wants it."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sandbox.processes import descendants, frozen_layers, is_stopped, supervisors
from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import Limits, SandboxSpec
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox
T = TypeVar("T")

BUILD_A_TREE = r"""
set -e
cd /workspace
echo one > a.txt; echo two > b.txt; chmod 640 b.txt; ln a.txt hard.txt; ln -s a.txt soft
mkdir -p deep/er; echo three > deep/er/c; mkfifo deep/pipe; chmod 4711 deep/pipe
rm /etc/hosts; echo new > /etc/passwd
truncate -s 1T sparse; printf x | dd of=sparse bs=1 seek=1000000 conv=notrunc 2>/dev/null
name=$(printf 'odd\nname'); echo odd > "$name"; mkdir gone; rmdir gone; touch -d @1000000000 old
rm -rf /var/log; mkdir /var/log; echo again > /var/log/here
"""
LOOK = r"""
cd /workspace
cat a.txt b.txt deep/er/c soft
stat -c '%n %a %u %h %s %F' a.txt b.txt hard.txt soft deep/pipe sparse
ls /etc/hosts 2>&1; cat /etc/passwd; du -k sparse | cut -f1; stat -c %Y old; ls /var/log; ls -b
"""


async def looked(sandbox: Sandbox) -> str:
    done = await sandbox.run(["sh", "-c", LOOK])
    return done.stdout.text


async def test_a_fork_starts_with_all_that_there_was(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    built = await sandbox.run(["sh", "-c", BUILD_A_TREE])
    assert built.ok, built.stderr.text
    seen = await looked(sandbox)
    async with await sandbox.snapshot() as snapshot:
        await sandbox.run(["sh", "-c", "rm -rf /workspace/*; echo later > /workspace/a.txt"])
        fork = await provider.create(snapshot.spec)
        assert await looked(fork) == seen
        assert "hosts: No such file" in seen or "cannot access" in seen
        assert "a.txt 644 0 2 4 regular file" in seen
        assert "1000000000" in seen
        await fork.close()


async def test_forks_and_their_source_stay_apart(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("shared", "before")
    async with await sandbox.snapshot() as snapshot:
        one, other = [await provider.create(snapshot.spec) for _ in range(2)]
        await one.write("shared", "one")
        await other.run(["rm", "shared"])
        await sandbox.write("shared", "source")
        third = await provider.create(snapshot.spec)
        assert await one.read("shared") == b"one"
        assert await third.read("shared") == b"before"
        assert [entry.name for entry in await other.list()] == []
        assert await sandbox.read("shared") == b"source"
        changed = await third.run(["sh", "-c", "echo more >> shared && chmod 600 shared"])
        assert changed.ok, changed.stderr.text
        for each in (one, other, third):
            await each.close()


async def test_a_fork_of_a_fork_of_a_fork(provider: NativeProvider, sandbox: Sandbox) -> None:
    source, snapshots, forks = sandbox, [], []
    for level in range(4):
        await source.write(f"level-{level}", str(level))
        await source.write("latest", str(level))
        if level:
            assert (await source.run(["rm", f"level-{level - 1}"])).ok
        snapshots.append(await source.snapshot())
        source = await provider.create(snapshots[-1].spec)
        forks.append(source)
    for snapshot in snapshots[:-1]:
        await snapshot.drop()
    last = await provider.create(snapshots[-1].spec)
    assert sorted(entry.name for entry in await last.list()) == ["latest", "level-3"]
    assert await last.read("latest") == b"3"
    for each in (*forks, last):
        await each.close()
    await snapshots[-1].drop()


async def test_too_many_on_top_of_each_other_is_an_error(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    source = sandbox
    for _ in range(8):
        fork = await provider.create((await source.snapshot()).spec)
        await source.close()
        source = fork
    with pytest.raises(SandboxRefused, match="snapshots of snapshots"):
        await source.snapshot()
    assert (await source.run(["true"])).ok
    await source.close()


async def test_a_snapshot_that_was_dropped_is_refused(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    await sandbox.write("x", "x")
    snapshot = await sandbox.snapshot()
    fork = await provider.create(snapshot.spec)
    await snapshot.drop()
    await snapshot.drop()
    assert await fork.read("x") == b"x", "who stands on it keeps it"
    with pytest.raises(SandboxRefused, match="unknown snapshot"):
        await provider.create(snapshot.spec)
    await fork.close()


async def test_numbers_are_used_again(provider: NativeProvider, sandbox: Sandbox) -> None:
    for _ in range(300):
        await (await sandbox.snapshot()).drop()


async def test_a_snapshot_that_is_cancelled_leaves_a_sandbox_that_goes_on(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    await sandbox.run(["sh", "-c", "for i in $(seq 300); do echo $i > $i; done"])
    for turns in range(0, 40, 3):
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(sandbox.snapshot())
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
        if not taking.cancelled():
            await taking.result().drop()
        assert (await sandbox.run(["true"])).ok
    async with await sandbox.snapshot() as snapshot:
        fork = await provider.create(snapshot.spec)
        assert len(await fork.list()) == 300
        await fork.close()


async def test_programs_go_on_however_early_a_snapshot_is_cancelled(sandbox: Sandbox) -> None:
    counting = "while :; do echo x; read -t 0.01 < /dev/zero; done"
    async with sandbox.stream(["bash", "-c", counting]) as process:
        said = process.chunks()
        for turns in range(12):
            await given_up(sandbox.snapshot(), after_turns=turns)
            await sandbox.ping()
            async with asyncio.timeout(10):
                for _ in range(3):  # more than was on the way
                    await anext(said)


async def test_a_snapshot_that_nobody_got_is_dropped(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    """Whoever waits may be cancelled when it is made, and programs are being told to go on."""
    (supervisor,) = supervisors()
    await sandbox.spawn(["sleep", "60"])
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(sandbox.snapshot())
        # The kernel tells nobody that a process has stopped, or that there is a mount.
        while not any(is_stopped(pid) for pid in descendants(supervisor)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        os.kill(supervisor, signal.SIGSTOP)
        while not frozen_layers():  # noqa: ASYNC110
            await asyncio.sleep(0)
        # The launcher answers in order: by now the snapshot's answer has come as well.
        await (await provider.create(sandbox.spec)).close()
        taking.cancel()
        await asyncio.sleep(0)
        os.kill(supervisor, signal.SIGCONT)
    assert taking.cancelled()
    assert not frozen_layers()


async def test_many_are_dropped_at_once(provider: NativeProvider, sandbox: Sandbox) -> None:
    made = [await sandbox.snapshot() for _ in range(4)]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for snapshot in made:
            group.create_task(snapshot.drop())
    await sandbox.write("which", "one")
    one = await sandbox.snapshot()
    await sandbox.write("which", "other")
    async with one, await sandbox.snapshot() as other:
        for snapshot, which in ((one, b"one"), (other, b"other")):
            fork = await provider.create(snapshot.spec)
            assert await fork.read("which") == which
            await fork.close()


async def test_a_snapshot_of_another_provider_is_refused(
    provider: NativeProvider, sandbox: Sandbox, image: Image
) -> None:
    async with NativeProvider(image=image) as elsewhere:
        apart = await elsewhere.create(sandbox.spec)
        async with await sandbox.snapshot() as here, await apart.snapshot() as there:
            with pytest.raises(SandboxRefused, match="another provider's"):
                await elsewhere.create(here.spec)
            with pytest.raises(SandboxRefused, match="another provider's"):
                await provider.create(there.spec)


async def given_up(work: Coroutine[Any, Any, T], *, after_turns: int) -> T | None:
    """What it gave when it was done before the loop had turned so often; else it is cancelled."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        for _ in range(after_turns):
            await asyncio.sleep(0)
        task.cancel()
    return None if task.cancelled() else task.result()


async def test_programs_stand_still_and_go_on(provider: NativeProvider, sandbox: Sandbox) -> None:
    """Two files that a program always writes one after the other are never frozen in between."""
    script = "while :; do i=$((i+1)); echo $i > first; echo $i > second; done"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sandbox.run(["sh", "-c", script], timeout_s=60))
        names: set[str] = set()
        while "second" not in names:
            names = {entry.name for entry in await sandbox.list()}
        async with await sandbox.snapshot() as snapshot:
            fork = await provider.create(snapshot.spec)
            frozen = int((await fork.read("second")).strip() or b"0")
            await fork.close()
        now = 0
        while now <= frozen:
            now = int((await sandbox.read("second")).strip() or b"0")
        await sandbox.kill()
    assert running.result().signal == 9


@pytest.mark.parametrize("build", ["mkdir -p $(printf 'd/%.0s' $(seq 250))"])
async def test_a_tree_too_deep_is_an_error_and_the_sandbox_goes_on(
    sandbox: Sandbox, build: str
) -> None:
    assert (await sandbox.run(["sh", "-c", build])).ok
    with pytest.raises(SandboxRefused, match="tree depth"):
        await sandbox.snapshot()
    assert (await sandbox.run(["true"])).ok


async def test_forks_from_a_pool_come_all_or_none(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    async with Pool(provider, in_use_max=4, warm=0) as pool:
        async with pool.sandbox(spec) as source:
            await source.write("x", "1")
            snapshot = await source.snapshot()
        forks = await pool.fork(snapshot, count=4)
        assert [await fork.read("x") for fork in forks] == [b"1"] * 4
        for fork in forks:
            await pool.release(fork)
        with pytest.raises(SandboxError, match="5 forks"):
            await pool.fork(snapshot, count=5)
        await snapshot.drop()
        with pytest.raises(SandboxRefused):
            await pool.fork(snapshot, count=2)
        assert pool.counts.in_use == 0


async def test_limits_hold_in_a_fork_too(
    provider: NativeProvider, sandbox: Sandbox, limits: Limits
) -> None:
    await sandbox.run(["sh", "-c", "head -c 1000000 /dev/zero > big"])
    async with await sandbox.snapshot() as snapshot:
        small = replace(snapshot.spec, limits=replace(limits, disk_bytes=2 << 20))
        fork = await provider.create(small)
        done = await fork.run(["sh", "-c", "head -c 5000000 /dev/zero > more; wc -c < more"])
        assert int(done.stdout.text) <= 2 << 20
        await fork.close()
