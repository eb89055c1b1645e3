"""A sandbox whose root may change the image's own files, and what stays as it was."""

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tiltyard.core.changes import ChangeKind
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import Limits, SandboxSpec
from tiltyard.sandbox.native.image import PACKAGES_HOME
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="an ordinary user owns none of the image's files"
)


@pytest_asyncio.fixture
async def writable(
    provider: NativeProvider, spec: SandboxSpec, limits: Limits
) -> AsyncIterator[Sandbox]:
    wanted = replace(spec, writable=True, limits=replace(limits, disk_bytes=64 << 20, inodes=8192))
    sandbox = await provider.create(wanted)
    yield sandbox
    await sandbox.close()


async def sh(sandbox: Sandbox, script: str) -> str:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, done.stderr.text
    return done.stdout.text


@needs_root
@pytest.mark.skipif(shutil.which("ldconfig") is None, reason="this machine has no ldconfig")
async def test_python_runs_on_when_the_loaders_cache_is_made_anew(writable: Sandbox) -> None:
    """As installing a package does."""
    await sh(writable, "rm /etc/ld.so.cache; ldconfig; test -s /etc/ld.so.cache; python -c ''")


@needs_root
async def test_root_inside_changes_programs_and_packages(writable: Sandbox) -> None:
    before = os.stat("/usr/bin/env")  # noqa: PTH116 - the host's own
    await sh(
        writable,
        "test $(stat -c %u /usr/bin/env) = 0; rm /usr/bin/env; echo '#!/bin/sh' > /usr/bin/new;"
        "chmod 755 /usr/bin/new; chown 5:5 /usr/bin/cut; mv /usr/bin/head /usr/bin/front; new;"
        f"echo 'x = 1' > {PACKAGES_HOME}/mine.py; python3 -c 'import mine; assert mine.x == 1'",
    )
    assert os.stat("/usr/bin/env") == before  # noqa: PTH116
    assert not Path("/usr/bin/new").exists()
    kinds = {change.path: change.kind for change in await writable.diff()}
    kinds = {path: kind for path, kind in kinds.items() if "__pycache__" not in path}
    assert kinds == {
        "/usr/bin/env": ChangeKind.DELETED,
        "/usr/bin/new": ChangeKind.ADDED,
        "/usr/bin/front": ChangeKind.ADDED,
        "/usr/bin/head": ChangeKind.DELETED,
        f"{PACKAGES_HOME}/mine.py": ChangeKind.ADDED,
    }


@needs_root
async def test_what_is_hidden_stays_hidden(writable: Sandbox) -> None:
    found = await sh(
        writable, "find / -xdev -iname '*tiltyard*' -not -path '/proc/*' 2>/dev/null; :"
    )
    assert [line for line in found.splitlines() if not line.startswith("/opt/tiltyard")] == []
    assert "tiltyard" not in await sh(writable, f"ls {PACKAGES_HOME}")


@needs_root
async def test_a_fork_of_it_has_the_changes(provider: NativeProvider, writable: Sandbox) -> None:
    await sh(writable, "echo 'echo installed' > /usr/bin/tool; chmod 755 /usr/bin/tool; rm /bin")
    async with await writable.snapshot() as snapshot:
        one, other = [await provider.create(snapshot.spec) for _ in range(2)]
        for fork in (one, other):
            done = await fork.run(["/usr/bin/sh", "/usr/bin/tool"])
            assert done.stdout.text == "installed\n"
            assert await fork.diff() == ()
        await one.run(["/usr/bin/rm", "/usr/bin/tool"])
        assert (await other.run(["/usr/bin/sh", "/usr/bin/tool"])).ok
        with pytest.raises(SandboxRefused, match="another image"):
            await provider.create(replace(snapshot.spec, writable=False))
        for fork in (one, other):
            await fork.close()


@needs_root
async def test_set_user_id_programs_of_the_image_gain_nothing(writable: Sandbox) -> None:
    told = await sh(
        writable, "cp /usr/bin/id /usr/bin/mine; chmod u+s /usr/bin/mine; /usr/bin/mine -u"
    )
    assert told == "0\n"
    flags = await sh(writable, "grep NoNewPrivs /proc/self/status")
    assert flags.split() == ["NoNewPrivs:", "1"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can make such a sandbox")
async def test_an_ordinary_user_is_told_why_not(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    with pytest.raises(SandboxRefused, match="run as root"):
        await provider.create(replace(spec, writable=True))
