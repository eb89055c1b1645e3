"""Files and trees beside snapshots: forks share what lies below, and a snapshot is one moment."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.host_trees import plant
from tiltyard.core.errors import SandboxFileError
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.mark.slow
async def test_a_tree_that_a_fork_shares(
    provider: NativeProvider, sandbox: Sandbox, tmp_path: Path
) -> None:
    """What lies below in a fork is seen, replaced and removed like its own; the source keeps it."""
    plant(tmp_path / "in", {b"d/%03d" % n: b"below" for n in range(300)})
    plant(tmp_path / "new", {b"d/%03d" % n: b"above" for n in range(100)})
    await sandbox.files.upload(tmp_path / "in")
    async with await sandbox.snapshot() as frozen:
        fork = await provider.create(frozen.spec)
        await fork.files.upload(tmp_path / "new")
        for n in range(200, 300):
            await fork.files.remove(f"d/{n}")
        assert len(await fork.files.list("d")) == 200
        await fork.files.download("d", tmp_path / "out")
        contents = [(tmp_path / f"out/{n:03}").read_bytes() for n in range(200)]
        assert contents == [b"above"] * 100 + [b"below"] * 100
        assert await fork.files.remove("d", recursive=True) == 201
        assert await fork.files.list() == ()
        assert len(await sandbox.files.list("d")) == 300
        await fork.close()


async def test_requests_wait_while_files_stand_still(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        with sandbox.files.still(), sandbox.files.still():
            waits = group.create_task(sandbox.files.write("f", "x"))
            for _ in range(5):
                await sandbox.ping()
            assert not waits.done()
    assert await sandbox.read("f") == b"x"


@pytest.mark.slow
async def test_a_snapshot_in_the_middle_of_an_upload(
    provider: NativeProvider, sandbox: Sandbox, tmp_path: Path
) -> None:
    plant(tmp_path / "in", {b"%03d" % n: b"x" * 9000 for n in range(500)})
    async with asyncio.TaskGroup() as group:
        upload = group.create_task(sandbox.files.upload(tmp_path / "in", "d"))
        frozen = [await sandbox.snapshot() for _ in range(3)]
    assert upload.result().files == 500
    for each in frozen:
        fork = await provider.create(each.spec)
        with suppress(SandboxFileError):  # it had not begun
            assert {e.size_bytes for e in await fork.files.list("d")} <= {0, 9000}
        await fork.close()
        await each.drop()
