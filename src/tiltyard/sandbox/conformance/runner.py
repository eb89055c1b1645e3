"""Lets cases loose, one at a time, and looks at everything around.

One at a time, because then what happens to the host or to the neighbour has one cause. Everything
that was made for a case is closed with it, whatever became of it, and only then is what is left
counted.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources

from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import Enforcement, ExecResult
from tiltyard.sandbox.conformance.case import (
    Case,
    CaseReport,
    FileOperation,
    FileReply,
    FileRequest,
    Finding,
    Language,
    NotRun,
    Observed,
    Outcome,
    Program,
    Surroundings,
)
from tiltyard.sandbox.conformance.host import Host, Reading, harm_between, left_behind
from tiltyard.sandbox.conformance.judging import (
    escaped,
    finding_of,
    inconclusive,
    not_enforced,
)
from tiltyard.sandbox.conformance.neighbour import (
    SPEC,
    Box,
    Freezable,
    Maker,
    Neighbour,
)
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram

CASE_TIMEOUT_S = 150.0
"""More than all time limits inside a case together: over it, something did not hold."""
KILL_TIMEOUT_S = 20.0
READ_KEPT_BYTES = 1024
RUN_WALL_S = 20.0
WHOLE = frozenset(Enforcement) - {Enforcement.NONE, Enforcement.RLIMIT}


class NotOffered(SandboxError):
    """The provider lacks what a case asks of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A provider's kept interpreters, where it has them."""

    provider: Provider
    interpreter: Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The provider that is tested."""

    name: str
    maker: Maker
    kept: Kept | None
    """None: it has no kept interpreters, and their cases are not run."""
    places: Callable[[], frozenset[str]]
    """Names what the provider has on this host for its sandboxes now, such as cgroups."""


async def run_cases(
    cases: Iterable[Case],
    subject: Subject,
    *,
    started: Callable[[Case], None] = lambda _: None,
    ended: Callable[[CaseReport], None] = lambda _: None,
) -> tuple[CaseReport, ...]:
    """Runs cases one after another; `started` and `ended` are told of each."""
    reports: list[CaseReport] = []
    async with Host() as host:
        for case in cases:
            started(case)
            report = await run_case(case, subject, host)
            ended(report)
            reports.append(report)
    return tuple(reports)


async def run_case(case: Case, subject: Subject, host: Host) -> CaseReport:
    """Runs one case and judges it."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    around = Surroundings()
    missing = not_enforced(case, subject.maker.enforced, WHOLE)
    if missing:
        finding = Finding(outcome=Outcome.NOT_ENFORCED, words=missing)
    elif case.runs and subject.kept is None:
        words = "this provider has no kept interpreters"
        finding = Finding(outcome=Outcome.NOT_ENFORCED, words=words)
    else:
        try:
            async with asyncio.timeout(CASE_TIMEOUT_S):
                observed = await _observe(case, subject, host)
            around = observed.around
            finding = finding_of(case, observed)
        except SandboxRefused as error:
            # A sandbox that may change its image is an offer, and not on every machine.
            outcome = Outcome.NOT_ENFORCED if case.writable else Outcome.INCONCLUSIVE
            finding = Finding(outcome=outcome, words=error.message)
        except TimeoutError:
            finding = escaped(f"the host did not get its answers within {CASE_TIMEOUT_S:.0f} s")
        except SandboxError as error:
            finding = inconclusive(f"{type(error).__name__}: {error.message}")
    return CaseReport(
        name=case.name,
        family=case.family,
        outcome=finding.outcome,
        words=_printable(finding.words),
        elapsed_s=loop.time() - start_s,
        around=around,
    )


def _printable(words: str) -> str:
    """What a program said goes to a terminal: without its control characters."""
    return "".join(each if each.isprintable() else " " for each in words)


async def _observe(case: Case, subject: Subject, host: Host) -> Observed:
    before = host.read(subject.places())
    neighbour = Neighbour(subject.maker, await subject.maker.create(SPEC))
    attack = _Attack(case, subject, host)
    try:
        async with asyncio.TaskGroup() as group:
            try:
                await neighbour.settle_in(group)
                if case.beside is not None:
                    await attack.run_in(neighbour.box, case.beside)
                await attack.open()
                neighbour.watch(group)
                await attack.let_loose(group)
                await neighbour.last_look()
                if case.witness is not None:
                    attack.witness = await attack.run_in(neighbour.box, case.witness)
                await attack.see_whether_it_survived()
            finally:
                # Its own program ends with it; else the group would wait for that for ever.
                await asyncio.shield(neighbour.leave())
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from None
    finally:
        await asyncio.shield(attack.close())
    after = await host.settled(before, subject.places)
    return attack.observed(neighbour, before, after)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


class _Attack:
    """The attacked sandbox, and what is known of it so far."""

    def __init__(self, case: Case, subject: Subject, host: Host) -> None:
        self._case = case
        self._subject = subject
        self._host = host
        self._box: Box | None = None
        self._results: list[ExecResult | NotRun] = []
        self._replies: list[FileReply] = []
        self._answers: list[str] = []
        self._survived = True
        self.witness: ExecResult | NotRun | None = None

    async def open(self) -> None:
        if not self._case.runs:
            self._box = await self._subject.maker.create(self._case.spec)

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()

    async def let_loose(self, group: asyncio.TaskGroup) -> None:
        case, box = self._case, self._box
        if box is None:
            await self._let_runs_loose()
            return
        for program in case.programs[:-1] if case.racing else case.programs:
            self._results.append(await self.run_in(box, program))
        racer: asyncio.Task[ExecResult | NotRun] | None = None
        if case.racing:
            racer = group.create_task(self.run_in(box, case.programs[-1]))
        for request in case.requests:
            self._replies.append(await self._ask(box, request))
        if racer is not None:
            self._results.append(await racer)

    async def see_whether_it_survived(self) -> None:
        """Last of all, because it kills whatever the attack still has going."""
        if self._box is not None:
            self._survived = await _answers(self._box)

    async def run_in(self, box: Box, program: Program) -> ExecResult | NotRun:
        """Runs a program. What the provider refuses to run is as good as a result."""
        env = self._host.variables | self._limit_variables()
        limit = {}
        if program.output_bytes_max is not None:
            limit["output_bytes_max"] = program.output_bytes_max
        try:
            return await box.run(
                _argv(program),
                timeout_s=program.timeout_s,
                cpu_s=program.cpu_s,
                stdin=program.stdin,
                cwd=program.cwd,
                env=env,
                **limit,
            )
        except (SandboxError, ValueError) as error:
            return NotRun(error=type(error).__name__, message=str(error))

    def observed(self, neighbour: Neighbour, before: Reading, after: Reading) -> Observed:
        maker = self._subject.maker
        return Observed(
            results=tuple(self._results),
            replies=tuple(self._replies),
            answers=tuple(self._answers),
            witness=self.witness if isinstance(self.witness, ExecResult) else None,
            survived=self._survived,
            limits=self._case.limits,
            enforced=maker.enforced,
            isolation=maker.isolation,
            marks=self._host.marks(neighbour.secret),
            around=Surroundings(
                harm=(*harm_between(before, after), *neighbour.harm),
                left=left_behind(before, after),
                tasks_max=neighbour.tasks_max,
                lag_ms=neighbour.lag_ms,
                beats=neighbour.beats,
            ),
        )

    def _limit_variables(self) -> dict[str, str]:
        limits = self._case.limits
        return {
            "MEMORY_BYTES": str(limits.memory_bytes),
            "PIDS": str(limits.pids),
            "OPEN_FILES": str(limits.open_files),
            "DISK_BYTES": str(limits.disk_bytes),
            "INODES": str(limits.inodes),
        }

    async def _ask(self, box: Box, request: FileRequest) -> FileReply:
        loop = asyncio.get_running_loop()
        path = request.path.replace("{secret}", str(self._host.secret_path))
        content, names, start_s = b"", list[str](), loop.time()
        error = ""
        for _ in range(request.times):
            try:
                match request.operation:
                    case FileOperation.READ:
                        content += (await box.read(path))[:READ_KEPT_BYTES]
                    case FileOperation.WRITE:
                        await box.write(path, request.content)
                    case FileOperation.LIST:
                        names += [entry.name for entry in await box.list(path)]
                    case FileOperation.DIFF:
                        names += [change.path for change in await _freezable(box).diff()]
                    case FileOperation.FORK:
                        content += await self._read_in_fork(_freezable(box), path)
            except (SandboxError, ValueError) as caught:
                error = type(caught).__name__
        return FileReply(
            request=request,
            content=content,
            names=tuple(names),
            error=error,
            elapsed_s=loop.time() - start_s,
        )

    async def _read_in_fork(self, box: Freezable, path: str) -> bytes:
        async with await box.snapshot() as snapshot:
            fork = await self._subject.maker.create(snapshot.spec)
            try:
                return (await fork.read(path))[:READ_KEPT_BYTES]
            finally:
                await fork.close()

    async def _let_runs_loose(self) -> None:
        kept = self._subject.kept
        assert kept is not None  # noqa: S101 - `run_case` runs no such case without
        # A run has the interpreter's environment, so it is told of the host in its source.
        told = f"os.environ.update({self._host.variables | self._limit_variables()!r})\n"
        program = ZygoteProgram(files={"runs.py": _inside("runs.py")}, main="runs.py")
        async with ZygoteCells(
            kept.provider,
            interpreter=kept.interpreter,
            program=program,
            spec=self._case.spec,
            cells_max=1,
        ) as cells:
            for source in self._case.runs:
                raw = (_inside("prelude.py") + told + source).encode()
                async with cells.run(wall_s=RUN_WALL_S) as run:
                    run.send(len(raw).to_bytes(4, "little") + raw)
                    ending = await run.ended()
                    said = run.stdout.result().text + run.stderr.result().text
                    self._answers.append(f"{said}\nfact ending: {ending.reason}\n")


def _freezable(box: Box) -> Freezable:
    if isinstance(box, Freezable):
        return box
    raise NotOffered("this provider has no snapshots.")


async def _answers(box: Box) -> bool:
    """Whether a sandbox answers when all in it is killed."""
    try:
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await box.kill()
    except (SandboxError, TimeoutError):
        return False
    return box.alive


def _argv(program: Program) -> list[str]:
    match program.language:
        case Language.PYTHON:
            source = _inside("prelude.py") + program.source
            return ["python3", "-I", "-S", "-B", "-c", source, *program.arguments]
        case Language.SHELL:
            return ["sh", "-c", program.source, "sh", *program.arguments]
        case Language.ARGV:
            return list(program.arguments)


def _inside(name: str) -> str:
    return (resources.files(__package__) / "inside" / name).read_text()
