"""Script mode: Harbor's `tests/test.sh`, in a sandbox that no agent ever touched.

The script runs the solution beside itself, so it is only as trustworthy as it was written; what
this mode adds is that nothing else counts: a fresh sandbox, declared artifacts only, no reward
file from before, everything killed before a reward file is read, and never a number where there
was none. The assurance says so.

Who is at fault when there is no reward? A script that ends by itself without one is the task's
fault. One that was ended at a limit or by a signal may have been the solution's doing, which must
not get out of its 0 in this way: it is, if the script does get through with the reference. So it is
when the script's own files are other ones afterwards, or what stands where it writes its reward is
not what it writes there, and neither is so with the reference.
"""

import asyncio
import posixpath
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tiltyard.core.errors import GraderError, SandboxDied, SandboxFileError, UnsoundTask
from tiltyard.core.execution import ExecResult, Reason, SandboxSpec
from tiltyard.core.files import FileKind, kind_of
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import Assurance, Check, CheckStatus, Component, Evidence, Gap
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.crossing import STATUS_OF
from tiltyard.verify.evidence import plain
from tiltyard.verify.found import Found
from tiltyard.verify.room import Room
from tiltyard.verify.script.artifacts import RESERVED, archive, artifacts_of
from tiltyard.verify.script.reward_file import BYTES_MAX, DIRECTORY, JSON, TEXT, Written, read

CHECK_ID = "tests/test.sh"
SCRIPT = "/tests/test.sh"
SOLVE = "/solution/solve.sh"
SAID_MAX = 600
TESTS_READ_MAX = 200
"""Of the script's own files, those that are looked at again afterwards."""
KINDS = {DIRECTORY: FileKind.DIRECTORY, JSON: FileKind.FILE, TEXT: FileKind.FILE}
"""What belongs where a reward is written. A script may well write none: then it is a bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of a task's script."""

    written: Written
    result: ExecResult
    changed: tuple[str, ...] = ()
    """The script's own files that are not as they were."""
    places: Mapping[str, FileKind] = field(default_factory=lambda: MappingProxyType({}))
    """What is where rewards are written."""

    @property
    def ended_by_itself(self) -> bool:
        return self.result.reason is Reason.EXIT


class ScriptMode(Room):
    """Judges tasks by their own script. Use with `async with`; safe to call concurrently."""

    def __init__(self, provider: Provider, *, spec: SandboxSpec) -> None:
        """`spec` is what scripts run under, but for the limits, which are each task's."""
        self._provider = provider
        self._spec = spec
        self._live = 0
        # Every sandbox is closed by the call that made it, so there is nothing to open.
        super().__init__()

    @property
    def sandboxes(self) -> int:
        """How many sandboxes it has now."""
        return self._live

    async def judge(self, task: Task, submission: Submission) -> Found:
        """Runs the script. Raises `GraderError` or `SandboxError` when the fault is ours."""
        suite = task.hidden
        if not isinstance(suite, ScriptSuite):
            raise GraderError(f"task {task.id} has no suite for script mode")
        _check(task, suite)
        taken = await asyncio.to_thread(artifacts_of, suite, submission)
        if taken.problem:
            return Found(problem=taken.problem, tamper=taken.tamper)
        async with self._sandbox(task, suite) as sandbox:
            try:
                await _lay(sandbox, {suite.workdir: taken.files})
            except SandboxFileError as error:
                return Found(problem=f"its files cannot be laid out: {error}", tamper=taken.tamper)
            session = await _run(task, suite, sandbox)
        found = await self._found(task, session)
        return replace(found, tamper=(*taken.tamper, *found.tamper))

    async def judge_reference(self, task: Task) -> Found:
        """What the script finds of the reference. Raises as `judge`."""
        return await self._found(task, await self.reference(task), solved=True)

    async def reference(self, task: Task) -> Session:
        """The script's session with the reference. Raises as `judge`."""
        suite = task.hidden
        if not isinstance(suite, ScriptSuite) or not (suite.reference or suite.solve):
            raise UnsoundTask(
                f"task {task.id} has no reference to compare with.", fix="add a solution/ to it."
            )
        _check(task, suite)
        async with self._sandbox(task, suite) as sandbox:
            try:
                await _lay(sandbox, {suite.workdir: suite.reference})
                if suite.solve is not None:
                    await _lay(sandbox, {"solution": {"solve.sh": suite.solve}})
            except SandboxFileError as error:
                raise UnsoundTask(
                    f"task {task.id}: its reference cannot be laid out: {error}"
                ) from None
            if suite.solve is not None:
                solved = await sandbox.run(
                    ["bash", SOLVE], cwd=suite.workdir, timeout_s=task.time_limit_s
                )
                if not solved.ok:
                    raise _lost(solved) or UnsoundTask(
                        f"task {task.id}: solve.sh ended with {_ended(solved)}"
                    )
            return await _run(task, suite, sandbox)

    async def _found(self, task: Task, session: Session, *, solved: bool = False) -> Found:
        """`solved`: whether it is the reference's own session."""
        if not solved and (sabotage := await self._sabotage(task, session)):
            check = Check(id=CHECK_ID, status=CheckStatus.CRASH, evidence=sabotage)
            return Found(
                checks=(check,),
                tamper=(sabotage,),
                assurance=Assurance.SCRIPT,
                cpu_s=session.result.cpu_s,
            )
        reward = session.written.reward
        if reward is not None:
            passed = reward == 1.0
            return Found(
                checks=(
                    Check(
                        id=CHECK_ID,
                        status=CheckStatus.PASSED if passed else CheckStatus.WRONG_ANSWER,
                        evidence="" if passed else f"reward {reward:g}; {_said(session.result)}",
                    ),
                ),
                components=_components(session.written),
                assurance=Assurance.SCRIPT,
                cpu_s=session.result.cpu_s,
            )
        if session.ended_by_itself:
            raise GraderError(
                f"task {task.id}: {session.written.problem}; {_said(session.result)}",
                fix=f"have test.sh write a number from 0 to 1 to {TEXT}, whatever it finds.",
            )
        control = await self.reference(task)
        if control.written.reward is None:
            raise GraderError(
                f"task {task.id}: test.sh gives no reward for the reference either: "
                f"{control.written.problem}; {_ended(control.result)}"
            )
        check = Check(
            id=CHECK_ID,
            status=STATUS_OF[session.result.reason],
            evidence=f"no reward, {_ended(session.result)}; {_said(session.result)}",
        )
        return Found(checks=(check,), assurance=Assurance.SCRIPT, cpu_s=session.result.cpu_s)

    async def _sabotage(self, task: Task, session: Session) -> str:
        """What the solution did to the script or its reward, in words; empty for nothing.

        Only what the reference's session does not show as well, so what a script itself does is
        never held against a solution.
        """
        odd = session.written.reward is None and session.ended_by_itself and _odd(session.places)
        suite = task.hidden
        has_reference = isinstance(suite, ScriptSuite) and bool(suite.reference or suite.solve)
        if not has_reference or not (session.changed or odd):
            return ""
        control = await self.reference(task)
        if control.written.reward is None:
            return ""
        if changed := sorted({*session.changed} - {*control.changed}):
            return f"changed the script's own files: {', '.join(changed[:3])}"
        if odd and not _odd(control.places):
            stands = ", ".join(f"{path} ({kind})" for path, kind in session.places.items())
            return f"changed where the reward is written: there is {stands or 'nothing'}"
        return ""

    @asynccontextmanager
    async def _sandbox(self, task: Task, suite: ScriptSuite) -> AsyncIterator[Sandbox]:
        """A fresh one with the task's own files in it, closed with the block."""
        spec = replace(self._spec, limits=task.limits)
        async with AsyncExitStack() as opened:
            sandbox = await self._provider.create(spec)
            self._live += 1
            opened.callback(self._closed)
            opened.push_async_callback(sandbox.close)
            try:
                for directory in (suite.workdir, DIRECTORY, "/tests"):
                    await sandbox.files.mkdir(directory, parents=True)
                await _lay(sandbox, {"tests": suite.tests, suite.workdir: suite.base})
            except SandboxFileError as error:
                raise UnsoundTask(
                    f"task {task.id}: its own files cannot be laid out: {error}",
                    fix="give the task a larger disk, or fewer files.",
                ) from None
            yield sandbox

    def _closed(self) -> None:
        self._live -= 1


async def _lay(sandbox: Sandbox, trees: Mapping[str, Mapping[str, bytes]]) -> None:
    """Lays trees into a sandbox by their directories. Raises `SandboxFileError`."""
    await sandbox.files.upload(await asyncio.to_thread(archive, trees), "/")


def _check(task: Task, suite: ScriptSuite) -> None:
    if "test.sh" not in suite.tests:
        raise UnsoundTask(f"task {task.id} has no tests/test.sh.", fix="add one.")
    workdir = posixpath.normpath(suite.workdir)
    taken = any(workdir == place or workdir.startswith(f"{place}/") for place in RESERVED)
    if not workdir.startswith("/") or workdir == "/" or taken:
        raise UnsoundTask(
            f"task {task.id} has the work directory {suite.workdir!r}.",
            fix="use /app, for example.",
        )


async def _run(task: Task, suite: ScriptSuite, sandbox: Sandbox) -> Session:
    result = await sandbox.run(["bash", SCRIPT], cwd=suite.workdir, timeout_s=task.time_limit_s)
    lost = _lost(result)
    if lost is not None:
        raise lost
    # What goes on running could write the reward that is about to be read.
    await sandbox.kill()
    written = read(await _content(sandbox, JSON), await _content(sandbox, TEXT))
    return Session(
        written=written,
        result=result,
        changed=await _changed(sandbox, suite.tests),
        places=await _places(sandbox),
    )


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


def _odd(places: Mapping[str, FileKind]) -> bool:
    """Whether no script leaves it like this that also writes one proper reward."""
    strange = any(kind is not KINDS[path] for path, kind in places.items())
    return strange or DIRECTORY not in places or len(places) == len(KINDS)


async def _content(sandbox: Sandbox, path: str, *, bytes_max: int = BYTES_MAX) -> bytes | None:
    """The file's content, or None where there is no such regular file, or a larger one."""
    try:
        return await sandbox.read(path, bytes_max=bytes_max)
    except SandboxFileError:
        return None


def _lost(result: ExecResult) -> Exception | None:
    if result.lost or result.reason is Reason.START_FAILED:
        return SandboxDied(f"a script's sandbox was lost: {result.reason} {result.detail}")
    return None


def _components(written: Written) -> tuple[Component, ...]:
    named: Mapping[str, float] = {"script": written.reward or 0.0} | {
        f"script.{plain(name, characters_max=60)}": value
        for name, value in written.measures.items()
    }
    return tuple(
        Component(
            name=name,
            raw=value,
            normalised=value if 0.0 <= value <= 1.0 else None,
            gap=None if 0.0 <= value <= 1.0 else Gap.UNRESOLVED,
            evidence=(Evidence(message=f"the script wrote {value:g}"),),
        )
        for name, value in named.items()
    )


def _ended(result: ExecResult) -> str:
    if result.reason is Reason.EXIT:
        return f"exit code {result.exit_code}"
    return f"signal {result.signal}" if result.reason is Reason.SIGNAL else str(result.reason)


def _said(result: ExecResult) -> str:
    last = (result.stdout.text + result.stderr.text).strip()[-SAID_MAX:]
    return f"last output: {plain(last)}" if last else "no output"
