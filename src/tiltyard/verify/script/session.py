"""One run of a task's script in a sandbox that is ready for it, and what it left there.

When the script has ended, what it started may still run: a solution's process that waits to put
its own number in the place of the script's, or to take that away. So the reward is read, and where
anything still runs, the files are given another number and some time. Who changes that could have
changed the first one too. Then everything is killed.
"""

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tiltyard.core.errors import SandboxDied, SandboxFileError
from tiltyard.core.execution import ExecResult, Reason
from tiltyard.core.files import FileKind, kind_of
from tiltyard.core.task import ScriptSuite, Task
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.script.reward_file import BYTES_MAX, DIRECTORY, JSON, TEXT, Written, read

SCRIPT = "/tests/test.sh"
TESTS_READ_MAX = 200
"""Of the script's own files, those that are looked at again afterwards."""
KINDS = {DIRECTORY: FileKind.DIRECTORY, JSON: FileKind.FILE, TEXT: FileKind.FILE}
"""What belongs where a reward is written. A script may well write none: then it is a bad one."""
BAIT = {JSON: b'{"reward": 0}\n', TEXT: b"0\n"}
BAIT_S = 0.1
"""How long what still runs may take to change it: a process that waits for a change of a file is
there in well under a millisecond, one that looks again and again mostly sleeps for less."""

ROOM_BYTES = 4096
"""The least that a file with anything in it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of a task's script."""

    written: Written
    result: ExecResult
    changed: tuple[str, ...] = ()
    """The script's own files that are not as they were."""
    places: Mapping[str, FileKind] = field(default_factory=lambda: MappingProxyType({}))
    """What is where rewards are written."""
    rewritten: bool = False
    """Whether what still ran changed the reward."""
    disk_full: bool = False
    """Whether there was no room for a reward; looked at only where there is none."""

    @property
    def ended_by_itself(self) -> bool:
        return self.result.reason is Reason.EXIT

    @property
    def finished(self) -> bool:
        """Whether the script came to an end of its own, whatever it had used up."""
        return self.result.exit_code is not None

    @property
    def misplaced(self) -> bool:
        """Whether no script leaves its places like this that also writes one proper reward."""
        strange = any(kind is not KINDS[path] for path, kind in self.places.items())
        return strange or DIRECTORY not in self.places or len(self.places) == len(KINDS)


async def run(task: Task, suite: ScriptSuite, sandbox: Sandbox) -> Session:
    """Runs the script. Raises `SandboxError` when the sandbox is lost.

    A solution that leaves the sandbox no memory may take it away under whoever reads the reward:
    that is no loss of ours, and there is no reward.
    """
    before, kills = sandbox.pids(), sandbox.usage().oom_kills
    result = await sandbox.run(["bash", SCRIPT], cwd=suite.workdir, timeout_s=task.time_limit_s)
    if lost := loss(result):
        raise lost
    after = sandbox.pids()
    # Where no cgroup counts processes, something may run.
    left_running = before is None or after is None or after > before
    try:
        return await _left(sandbox, suite, result, left_running=left_running)
    except SandboxDied:
        if not out_of_memory(sandbox, since=kills):
            raise
        spent = replace(result, reason=Reason.OOM, exit_code=None)
        return Session(written=read(None, None), result=spent)


def out_of_memory(sandbox: Sandbox, *, since: int) -> bool:
    """Whether the kernel has killed for want of memory there; `since` is a count from before."""
    return sandbox.usage().oom_kills > since


async def _left(
    sandbox: Sandbox, suite: ScriptSuite, result: ExecResult, *, left_running: bool
) -> Session:
    """What a script that has ended left."""
    written = await _written(sandbox)
    places = await _places(sandbox)
    rewritten = left_running and written.reward != 0.0 and await _takes_bait(sandbox)
    await sandbox.kill()
    return Session(
        written=written,
        result=result,
        changed=await _changed(sandbox, suite.tests),
        places=places,
        rewritten=rewritten,
        disk_full=written.reward is None and await _is_full(sandbox),
    )


def loss(result: ExecResult) -> SandboxDied | None:
    """The error when a program's end says nothing of it; None when it does."""
    if result.lost or result.reason is Reason.START_FAILED:
        return SandboxDied(f"a script's sandbox was lost: {result.reason} {result.detail}")
    return None


async def _written(sandbox: Sandbox) -> Written:
    return read(await _content(sandbox, JSON), await _content(sandbox, TEXT))


async def _takes_bait(sandbox: Sandbox) -> bool:
    """Whether something changes a reward that nobody but this module writes now."""
    laid = [path for path in BAIT if await _content(sandbox, path) is not None] or [TEXT]
    try:
        for path in laid:
            await sandbox.write(path, BAIT[path])
    except SandboxFileError:
        return False  # full, or no place for a file: seen by other signs
    await asyncio.sleep(BAIT_S)
    found = {path: await _content(sandbox, path) for path in BAIT}
    return found != {path: BAIT[path] if path in laid else None for path in BAIT}


async def _is_full(sandbox: Sandbox) -> bool:
    """Whether not even a reward fits on the disk; leaves a file there otherwise."""
    try:
        await sandbox.write(f"{DIRECTORY}/room", bytes(ROOM_BYTES))
    except SandboxFileError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return False


async def _changed(sandbox: Sandbox, tests: Mapping[str, bytes]) -> tuple[str, ...]:
    """Which of the task's tests are not as they were laid out; the script before all."""
    looked_at = ("test.sh", *(path for path in sorted(tests) if path != "test.sh"))
    found: list[str] = []
    for path in looked_at[:TESTS_READ_MAX]:
        now = await _content(sandbox, f"/tests/{path}", bytes_max=len(tests[path]))
        if now != tests[path]:
            found.append(f"tests/{path}")
    return tuple(found)


async def _places(sandbox: Sandbox) -> Mapping[str, FileKind]:
    found: dict[str, FileKind] = {}
    for path in KINDS:
        try:
            found[path] = kind_of((await sandbox.files.stat(path, follow_links=False)).mode)
        except SandboxFileError:
            continue
    return MappingProxyType(found)


async def _content(sandbox: Sandbox, path: str, *, bytes_max: int = BYTES_MAX) -> bytes | None:
    """The file's content, or None where there is no such regular file, or a larger one."""
    try:
        return await sandbox.read(path, bytes_max=bytes_max)
    except SandboxFileError:
        return None
