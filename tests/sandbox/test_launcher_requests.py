"""What the launcher refuses, and with which words."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.processes import supervisors
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.cgroups import Hierarchy
from tiltyard.sandbox.native.create import CreateOrder
from tiltyard.sandbox.native.image import Image, Record, RecordKind
from tiltyard.sandbox.native.launcher import End, Launcher, StepFailed
from tiltyard.sandbox.native.netns import NetworkKind, NetworkOrder
from tiltyard.sandbox.native.programs import native_program
from tiltyard.sandbox.native.provider import NativeProvider, _stage_for
from tiltyard.sandbox.protocol import FrameReader, FrameType

pytestmark = pytest.mark.sandbox


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


async def test_an_image_that_cannot_be_shown_is_refused_with_the_step(spec: SandboxSpec) -> None:
    missing = Record(kind=RecordKind.BIND, path="/usr", argument=b"/no/such/directory")
    outside = Record(kind=RecordKind.FILE, path="/../../escape", argument=b"x")
    for record in (missing, outside):
        image = Image(name="host", records=(record,), environment={})
        with pytest.raises(SandboxRefused, match="cannot be staged"):
            await NativeProvider(image=image).__aenter__()
    assert spec.image == "host"


async def test_an_image_without_what_the_sandbox_needs(spec: SandboxSpec) -> None:
    image = Image(
        name="host",
        records=(Record(kind=RecordKind.DIRECTORY, path="/workspace"),),
        environment={},
    )
    async with NativeProvider(image=image) as provider:
        with pytest.raises(SandboxRefused, match="could not be built"):
            await provider.create(spec)
        await until(lambda: not supervisors())


async def started(stage: Path, cgroup_paths: dict[str, str]) -> Launcher:
    return await Launcher.start(
        launcher=native_program("tiltyard-launcher"),
        stage=stage,
        cgroups=cgroup_paths,
    )


async def test_a_launcher_that_cannot_start_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(SandboxRefused, match=r"mount\(stage\)"):
        await started(tmp_path / "nowhere", {})
    with pytest.raises(StepFailed, match=r"mkdir\(cgroup\): No such file") as failed:
        await started(tmp_path, {"/proc/no/cgroup": ""})
    assert failed.value.step == "mkdir(cgroup)"
    with pytest.raises(SandboxRefused, match="cannot start"):
        await Launcher.start(launcher=tmp_path / "none", stage=tmp_path, cgroups={})


def order(id_: str, *, settings: list[tuple[str, str]], image: int = 0) -> CreateOrder:
    return CreateOrder(
        id=id_,
        image=image,
        disk_bytes=1 << 20,
        inodes=256,
        for_zygotes=False,
        lifetime_s=60,
        first_id=3_000_000_000,
        oom_file="",
        directories=[],
        settings=settings,
    )


async def create(launcher: Launcher, wanted: CreateOrder) -> None:
    """Makes one that cannot be made, and looks that nobody waits for its end for ever."""
    gone: asyncio.Future[End] = asyncio.get_running_loop().create_future()
    try:
        await launcher.create(wanted, gone=gone)
    finally:
        assert (await gone).oom_kills == 0


@pytest.mark.parametrize(("version", "step"), [(1, "clone3"), (2, "cgroup.subtree_control")])
async def test_a_parent_that_is_made_anew_hands_its_controllers_on(
    tmp_path: Path, image: Image, version: int, step: str
) -> None:
    """A plain directory lacks the file for it on v2, and so shows that it was to be written."""
    tree = Hierarchy(version=version, controllers=frozenset({"pids", "memory"}), base=tmp_path)
    owner = tmp_path / "a=b"
    launcher = await started(_stage_for(image), {str(owner): cgroups.handed_on(tree)})
    try:
        await launcher.add_image(0, image.description())
        owner.rmdir()
        wanted = replace(order("s1", settings=[]), directories=[str(owner / "s1")])
        with pytest.raises(StepFailed) as failed:
            await create(launcher, wanted)
        assert step in failed.value.step
        assert owner.is_dir()
    finally:
        await launcher.close()
    assert not owner.exists()


async def test_requests_that_are_too_big_or_wrong(tmp_path: Path) -> None:
    launcher = await started(tmp_path, {})
    try:
        with pytest.raises(SandboxRefused, match="more than 65536"):
            await create(launcher, order("big", settings=[("/x" * 20_000, "1" * 40_000)]))
        with pytest.raises(SandboxRefused, match="cgroup request: Invalid argument"):
            await create(launcher, order("many", settings=[("/x", "1")] * 65))
        with pytest.raises(SandboxRefused, match=r"write\(cgroup limit\): No such file"):
            await create(launcher, order("absent", settings=[("/nowhere/x", "1")]))
        with pytest.raises(SandboxRefused, match="image: No such file"):
            await create(launcher, order("unstaged", settings=[], image=7))
        with pytest.raises(SandboxRefused, match="snapshot: No such file"):
            await create(launcher, replace(order("unfrozen", settings=[]), snapshot=7))
        for nothing in (launcher.snapshot(1, "none"), launcher.changes("none")):
            with pytest.raises(SandboxRefused, match="sandbox: No such process"):
                await nothing
        for bad in (
            NetworkOrder(kind=NetworkKind.PROXY, port=0),
            NetworkOrder(kind=NetworkKind.PROXY, port=65_536),
            NetworkOrder(kind=NetworkKind.NONE, port=1),
            NetworkOrder(kind=NetworkKind.LOOPBACK, up_bytes_s=1),
        ):
            with pytest.raises(SandboxRefused, match="network request: Invalid argument"):
                await create(launcher, replace(order("net", settings=[]), network=bad))
        with pytest.raises(SandboxRefused, match="image number"):
            await launcher.add_image(99, b"x")
        with pytest.raises(SandboxRefused, match="image description"):
            await launcher.add_image(1, b"garbage")
    finally:
        await launcher.close()
    await launcher.close()


UNIFIED = Path("/sys/fs/cgroup/unified")
"""Where a hybrid machine has its v2 tree; on a pure one all other tests use v2 already."""


@pytest.mark.skipif(
    not os.access(UNIFIED / "cgroup.procs", os.W_OK), reason="no v2 tree beside v1 to write to"
)
async def test_a_sandbox_is_born_into_its_v2_cgroup(image: Image) -> None:
    own_start = cgroups.start_time_of(os.getpid())
    owner = UNIFIED / f"{cgroups.PREFIX}{os.getpid()}-{own_start}-77"
    launcher = await started(_stage_for(image), {str(owner): ""})
    try:
        await launcher.add_image(0, image.description())
        wanted = replace(order("s1", settings=[]), directories=[str(owner / "s1")])
        gone = asyncio.get_running_loop().create_future()
        made = await launcher.create(wanted, gone=gone)
        try:
            # Not before its HELLO: until then it may still fail, and an ended one is in no cgroup.
            made.control.settimeout(0)
            first = await asyncio.get_running_loop().sock_recv(made.control, 4096)
            assert [each.type for each in FrameReader().feed(first)] == [FrameType.HELLO]
            (pid,) = supervisors()
            places = [line.rpartition(":")[2] for line in cgroups_of(pid) if line.startswith("0::")]
            assert places == [f"/{owner.name}/s1"]
        finally:
            made.control.close()
            os.close(made.pidfd)
        assert await gone == End()
        assert not (owner / "s1").exists()
    finally:
        await launcher.close()
    assert not owner.exists()


def cgroups_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cgroup").read_text().splitlines()


async def test_garbage_to_the_launcher_is_answered(tmp_path: Path) -> None:
    """Only the host speaks to it; still, no bytes may crash what all sandboxes hang on."""
    launcher = await started(tmp_path, {})
    ours = launcher._socket
    for garbage in (b"", b"\x00", b"\x02\x00\x00\x00", b"\xff" * 300, b"\x02\0\0\0" + b"\xff" * 8):
        if garbage:
            ours.send(garbage)
    with pytest.raises(SandboxRefused, match="image number"):
        await launcher.add_image(99, b"x")
    assert isinstance(ours, socket.socket)
    await launcher.close()
