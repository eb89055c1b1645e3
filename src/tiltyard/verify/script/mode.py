"""Script mode: Harbor's `tests/test.sh`, in a sandbox that no agent ever touched.

The script runs the solution beside itself, so it is only as trustworthy as it was written; what
this mode adds is that nothing else counts: a fresh sandbox, declared artifacts only, no reward
file from before, no number that something else still writes when the script has ended, and never
one where there was none. The assurance says so.

Who is at fault when there is no reward? A script that ends by itself without one is the task's
fault. One that was ended at a limit or by a signal may have been the solution's doing, which must
not get out of its 0 in this way: it is, if the script does get through with the reference. So it is
when the script's own files are other ones afterwards, when what stands where it writes its reward
is not what it writes there, or when what it left running changes the reward, and none of it is so
with the reference. What remains is told apart for who reads the record: no reward, though the
reference has one, is a way out of a 0 as well as a bad script.
"""

import asyncio
import posixpath
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from tiltyard.core.errors import (
    GraderError,
    SandboxDied,
    SandboxFileError,
    UnscoredAnswer,
    UnsoundTask,
)
from tiltyard.core.execution import ExecResult, Reason, SandboxSpec
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import Assurance, Check, CheckStatus, Component, Evidence, Gap
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.crossing import STATUS_OF
from tiltyard.verify.evidence import plain
from tiltyard.verify.found import Found
from tiltyard.verify.room import Room
from tiltyard.verify.script.artifacts import RESERVED, archive, artifacts_of
from tiltyard.verify.script.reward_file import DIRECTORY, TEXT
from tiltyard.verify.script.session import Session, loss, out_of_memory, run

CHECK_ID = "tests/test.sh"
SCRIPT = "script"
"""The component of the script's own number."""
SOLVE = "/solution/solve.sh"
SAID_MAX = 600
WRITE_ALWAYS = f"have test.sh write a number from 0 to 1 to {TEXT}, whatever it finds."


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
            kills = sandbox.usage().oom_kills
            try:
                await _lay(sandbox, {suite.workdir: taken.files})
            except SandboxFileError as error:
                return Found(problem=f"its files cannot be laid out: {error}", tamper=taken.tamper)
            except SandboxDied:
                if not out_of_memory(sandbox, since=kills):
                    raise
                return Found(problem="its files do not fit into the memory", tamper=taken.tamper)
            session = await run(task, suite, sandbox)
        found = await self._found(task, session)
        return replace(
            found,
            tamper=(*taken.tamper, *found.tamper),
            components=tuple(
                replace(each, evidence=(*each.evidence, *_left_out(taken.left_out)))
                if each.name == SCRIPT
                else each
                for each in found.components
            ),
        )

    async def judge_reference(self, task: Task) -> Found:
        """What the script finds of the reference. Raises as `judge`."""
        return await self._found(task, await self.reference(task), solved=True)

    async def reference(self, task: Task) -> Session:
        """The script's session with the reference. Raises as `judge`."""
        suite = task.hidden
        if not isinstance(suite, ScriptSuite) or not _has_reference(task):
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
                    raise loss(solved) or UnsoundTask(
                        f"task {task.id}: solve.sh ended with {_ended(solved)}"
                    )
            return await run(task, suite, sandbox)

    async def _found(self, task: Task, session: Session, *, solved: bool = False) -> Found:
        """`solved`: whether it is the reference's own session."""
        reward = session.written.reward
        needed = (
            session.rewritten
            or (reward is None and not session.ended_by_itself)
            or (bool(reward) and not session.finished)
        )
        useful = _has_reference(task) and (bool(session.changed) or reward is None)
        if solved or not (needed or useful):
            return _as_written(task, session)
        control = await self.reference(task)
        if control.written.reward is None:
            if needed or reward is None:
                raise GraderError(
                    f"task {task.id}: test.sh gives no reward for the reference: "
                    f"{control.written.problem}; {_ended(control.result)}"
                )
        elif sign := _sabotage(session, control):
            return _worthless(session, CheckStatus.CRASH, sign, tamper=(sign,))
        elif words := _cut_off(session, control):
            words = f"{words}, {_ended(session.result)}; {_said(session.result)}"
            return _worthless(session, STATUS_OF[session.result.reason], words)
        elif reward is None:
            raise UnscoredAnswer(
                f"{_without(task, session)}. The reference has a reward.", fix=WRITE_ALWAYS
            )
        return _as_written(task, session)

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


def _has_reference(task: Task) -> bool:
    suite = task.hidden
    return isinstance(suite, ScriptSuite) and bool(suite.reference or suite.solve)


def _left_out(paths: tuple[str, ...]) -> Iterator[Evidence]:
    for path in paths:
        yield Evidence(message="left out: it would change a test run", path=plain(path))


def _as_written(task: Task, session: Session) -> Found:
    reward = session.written.reward
    if reward is None:
        raise GraderError(_without(task, session), fix=WRITE_ALWAYS)
    passed = reward == 1.0
    check = Check(
        id=CHECK_ID,
        status=CheckStatus.PASSED if passed else CheckStatus.WRONG_ANSWER,
        evidence="" if passed else f"reward {reward:g}; {_said(session.result)}",
    )
    return Found(
        checks=(check,),
        components=_components(session),
        assurance=Assurance.SCRIPT,
        cpu_s=session.result.cpu_s,
    )


def _worthless(
    session: Session, status: CheckStatus, words: str, *, tamper: tuple[str, ...] = ()
) -> Found:
    return Found(
        checks=(Check(id=CHECK_ID, status=status, evidence=words),),
        tamper=tamper,
        assurance=Assurance.SCRIPT,
        cpu_s=session.result.cpu_s,
    )


def _without(task: Task, session: Session) -> str:
    return f"task {task.id}: {session.written.problem}; {_said(session.result)}"


def _sabotage(session: Session, control: Session) -> str:
    """What the solution did to the script or its reward, in words; empty for nothing.

    Only what the reference's session does not show as well, so what a script itself does is never
    held against a solution.
    """
    if changed := sorted({*session.changed} - {*control.changed}):
        return f"changed the script's own files: {', '.join(changed[:3])}"
    if session.rewritten and not control.rewritten:
        return "a process that outlived the script changed the reward"
    unwritten = session.written.reward is None and session.ended_by_itself
    if unwritten and session.misplaced and not control.misplaced:
        stands = ", ".join(f"{path} ({kind})" for path, kind in session.places.items())
        return f"changed where the reward is written: there is {stands or 'nothing'}"
    return ""


def _cut_off(session: Session, control: Session) -> str:
    """How the script was kept from its own reward, in words; empty when it was not.

    Whoever ends a script can leave a number there before: it counts as little as none.
    """
    if session.written.reward and not session.finished and control.finished:
        return "a reward, but not the script's last word"
    if session.written.reward is None and not session.ended_by_itself:
        return "no reward"
    if session.written.reward is None and session.disk_full and not control.disk_full:
        return "no reward and no room for one"
    return ""


def _components(session: Session) -> tuple[Component, ...]:
    written = session.written
    named: Mapping[str, float] = {SCRIPT: written.reward or 0.0} | {
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
