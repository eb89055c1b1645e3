"""What a sandbox changed, as its layer tells it."""

import stat
from dataclasses import replace

import pytest

from sandbox.conftest import RunPython
from tiltyard.core.changes import ChangeKind, FileChange
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import Limits, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

ADDED, CHANGED, DELETED = ChangeKind


def kinds(changes: tuple[FileChange, ...]) -> dict[str, ChangeKind]:
    return {change.path: change.kind for change in changes}


async def sh(sandbox: Sandbox, script: str) -> None:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, done.stderr.text


async def test_nothing_was_changed(sandbox: Sandbox) -> None:
    assert await sandbox.diff() == ()
    await sh(sandbox, "cat /etc/passwd; ls -R /workspace /etc; touch /etc/passwd")
    assert await sandbox.diff() == ()


async def test_each_kind_of_change(sandbox: Sandbox) -> None:
    await sandbox.write("new.py", "print(1)\n")
    await sh(
        sandbox,
        "echo more >> /etc/passwd; rm /etc/hosts; mkdir -p a/b; ln -s new.py link;"
        "chmod 700 /srv; rmdir /var/log; mkfifo pipe; rm /bin",
    )
    changes = {change.path: change for change in await sandbox.diff()}
    assert kinds(tuple(changes.values())) == {
        "/bin": DELETED,
        "/etc/hosts": DELETED,
        "/etc/passwd": CHANGED,
        "/srv": CHANGED,
        "/var/log": DELETED,
        "/workspace/a": ADDED,
        "/workspace/a/b": ADDED,
        "/workspace/link": ADDED,
        "/workspace/new.py": ADDED,
        "/workspace/pipe": ADDED,
    }
    assert changes["/workspace/new.py"].after == b"print(1)\n"
    assert changes["/workspace/link"].after == b"new.py"
    assert changes["/workspace/a"].is_directory
    assert changes["/workspace/a"].unified() == ""
    assert stat.S_ISFIFO(changes["/workspace/pipe"].mode)
    passwd = changes["/etc/passwd"]
    assert passwd.before is not None
    assert passwd.after == passwd.before + b"more\n"
    assert passwd.unified().splitlines()[:2] == ["--- a/etc/passwd", "+++ b/etc/passwd"]
    assert passwd.unified().endswith("+more\n")
    assert changes["/etc/hosts"].unified().splitlines()[1] == "+++ /dev/null"


async def test_from_a_snapshot_only_what_came_after(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    await sh(sandbox, "mkdir d; echo 1 > d/kept; echo 2 > d/cut; echo 3 > d/changed; rm /etc/hosts")
    async with await sandbox.snapshot() as snapshot:
        fork = await provider.create(snapshot.spec)
        assert await fork.diff() == ()
        await sh(fork, "rm d/cut; echo 4 > d/changed; echo 1 > d/kept; echo h > /etc/hosts")
        assert kinds(await fork.diff()) == {
            "/etc/hosts": ADDED,
            "/workspace/d/changed": CHANGED,
            "/workspace/d/cut": DELETED,
        }
        await sh(fork, "rm -r d; mkdir d; echo 1 > d/kept; echo x > d/new")
        assert kinds(await fork.diff()) == {
            "/etc/hosts": ADDED,
            "/workspace/d/changed": DELETED,
            "/workspace/d/cut": DELETED,
            "/workspace/d/new": ADDED,
        }
        await sh(fork, "rm -r d; echo file > d")
        (change,) = [change for change in await fork.diff() if change.path == "/workspace/d"]
        assert (change.kind, change.after) == (CHANGED, b"file\n")
        await fork.close()


async def test_a_snapshot_moves_nothing_of_what_its_own_sandbox_counts_from(
    sandbox: Sandbox,
) -> None:
    await sandbox.write("before", "1")
    async with await sandbox.snapshot():
        await sandbox.write("after", "2")
        both = {"/workspace/before": ADDED, "/workspace/after": ADDED}
        assert kinds(await sandbox.diff()) == both
    assert kinds(await sandbox.diff()) == both


async def test_hostile_names_and_sizes(sandbox: Sandbox) -> None:
    await sh(
        sandbox,
        "printf x > \"$(printf 'a\\nb')\"; printf y > \"$(printf 'bad\\377')\"; printf z > -rf;"
        "truncate -s 1T sparse; head -c 300000 /dev/zero > big; printf '\\377\\0' > binary",
    )
    changes = {change.path: change for change in await sandbox.diff()}
    assert changes["/workspace/a\nb"].after == b"x"
    assert changes["/workspace/bad\udcff"].after == b"y"
    assert changes["/workspace/-rf"].after == b"z"
    assert changes["/workspace/sparse"].size_bytes == 1 << 40
    assert changes["/workspace/sparse"].content_left_out
    assert changes["/workspace/big"].content_left_out
    assert "Binary" in changes["/workspace/binary"].unified()


DEEP = """
import os
for _ in range(180):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
for number in range(800):
    os.close(os.open(f"{number:0250}", os.O_CREAT | os.O_WRONLY))
"""


async def test_long_paths_do_not_fill_the_memory_of_the_host(
    sandbox: Sandbox, python: RunPython
) -> None:
    """Each has 46 KB. A program need not name a path to make it; whoever is told of it must."""
    assert (await python(DEEP)).ok
    with pytest.raises(SandboxRefused, match="more than 100,000 changes or 32 MiB of paths"):
        await sandbox.diff()
    await sh(sandbox, "rm -rf d*; echo x > left")
    assert kinds(await sandbox.diff()) == {"/workspace/left": ADDED}


MANY = """
import os
os.mkdir("many")
for number in range(100_000):
    os.mknod(f"many/{number}")
"""


@pytest.mark.slow
async def test_more_changes_than_are_told_is_an_error_that_says_so(
    provider: NativeProvider, spec: SandboxSpec, limits: Limits
) -> None:
    sandbox = await provider.create(replace(spec, limits=replace(limits, inodes=110_000)))
    assert (await sandbox.run(["python3", "-ISc", MANY])).ok
    with pytest.raises(SandboxRefused) as refused:
        await sandbox.diff()
    said = str(refused.value)
    assert f"sandbox {sandbox.id} changed too much" in said
    assert "more than 100,000 changes or 32 MiB of paths" in said
    assert "remove what no one wants to see" in said
    assert "Argument list" not in said
    assert "doctor" not in said
    await sh(sandbox, "rm many/0")
    assert len(await sandbox.diff()) == 100_000
    await sandbox.close()


@pytest.mark.slow
def test_lines_that_are_hard_to_compare_take_no_longer() -> None:
    before = [f"{number * number % 131}\n" for number in range(60_000)]
    after = list(reversed(before))
    texts = ["".join(["same\n", *lines, "same\n"]).encode() for lines in (before, after)]
    change = FileChange(
        kind=CHANGED, path="/f", mode=stat.S_IFREG, size_bytes=0, before=texts[0], after=texts[1]
    )
    lines = change.unified().splitlines(keepends=True)
    assert lines[2:4] == ["@@ -1,60002 +1,60002 @@\n", " same\n"]
    assert lines[-1] == " same\n"
    assert [line[1:] for line in lines[4:] if line[0] == "-"] == before
    assert [line[1:] for line in lines[4:] if line[0] == "+"] == after


async def test_a_big_file_that_was_only_touched_is_no_change(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    await sh(sandbox, "head -c 1000000 /dev/urandom > big; cp big other")
    async with await sandbox.snapshot() as snapshot:
        fork = await provider.create(snapshot.spec)
        await sh(fork, "touch big; printf x | dd of=other bs=1 seek=999999 conv=notrunc")
        assert kinds(await fork.diff()) == {"/workspace/other": CHANGED}
        await fork.close()


async def test_what_goes_on_while_programs_write(sandbox: Sandbox, spec: SandboxSpec) -> None:
    assert spec.snapshot is None
    await sh(sandbox, "(while :; do mkdir -p x/y; rm -rf x; done) > /dev/null 2>&1 &")
    for _ in range(20):
        assert set(kinds(await sandbox.diff())) <= {"/workspace/x", "/workspace/x/y"}
    await sandbox.kill()


@pytest.mark.slow
async def test_a_sparse_file_costs_the_host_what_is_in_it(
    provider: NativeProvider, sandbox: Sandbox
) -> None:
    """A TiB costs a program a block. The host would read it twice, in nobody's share of the CPU."""
    write = "printf x | dd bs=1 conv=notrunc"
    await sh(sandbox, f"truncate -s 1T same other; {write} of=same seek=500G")
    async with await sandbox.snapshot() as snapshot:
        fork = await provider.create(snapshot.spec)
        await sh(fork, f"touch same other; {write} of=other seek=600G")
        assert kinds(await fork.diff()) == {"/workspace/other": CHANGED}
        await fork.close()
