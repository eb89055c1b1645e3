"""One case let loose in one sandbox: its programs, what the host asks meanwhile, what it was told.

A provider has to have only `Box`; for what a case asks beyond that and it has not, `NotOffered` is
raised, and the case counts as not tried.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import ExecResult, Pty, Stdin
from tiltyard.sandbox.conformance.asking import Asker
from tiltyard.sandbox.conformance.boxes import (
    Box,
    Freezable,
    Maker,
    NotOffered,
    freezable,
    networked,
    spawner,
)
from tiltyard.sandbox.conformance.case import (
    Beyond,
    Case,
    FileReply,
    Language,
    NotRun,
    Observed,
    Program,
    Stays,
    Surroundings,
)
from tiltyard.sandbox.conformance.far import FarSide
from tiltyard.sandbox.conformance.host import Host
from tiltyard.sandbox.conformance.neighbour import PATIENCE, Patience
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram

KILL_TIMEOUT_S = 20.0
RUN_WALL_S = 20.0
FORKS = 2
FED_BLOCK = bytes(16_384)


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
    far: FarSide | None = None
    """The resolver that the provider was opened with. None: it takes none, and cases about a way
    out are not run, because they would ask the machine's own."""

    patience: Patience = PATIENCE
    """How late the host and the neighbour may be."""

    @property
    def far_port(self) -> int:
        return 0 if self.far is None else self.far.port


class Attack:
    """The attacked sandbox, and what is known of it so far."""

    def __init__(self, case: Case, subject: Subject, host: Host) -> None:
        self._case = case
        self._subject = subject
        self._host = host
        self._box: Box | None = None
        self._results: list[ExecResult | NotRun] = []
        self._replies: list[FileReply] = []
        self._answers: list[str] = []
        self._forked: list[ExecResult | NotRun] = []
        self._fed_bytes = 0
        self._waited_s = 0.0
        self._beyond = Beyond()
        self._survived = True
        self.witness: ExecResult | NotRun | None = None

    async def open(self) -> None:
        if not self._case.runs:
            self._box = await self._subject.maker.create(self._case.spec(self._subject.far_port))

    async def close(self) -> None:
        if self._box is not None:
            await self._box.close()

    async def let_loose(self, group: asyncio.TaskGroup) -> None:
        """Runs what the case has, and asks what it asks."""
        case, box = self._case, self._box
        if box is None:
            await self._let_runs_loose()
            return
        going: dict[int, tuple[Program, Process]] = {}
        ended: dict[int, ExecResult | NotRun] = {}
        racer: asyncio.Task[ExecResult | NotRun] | None = None
        last = len(case.programs) - 1
        for index, program in enumerate(case.programs):
            if index == last:
                for other in [i for i, (p, _) in going.items() if p.stays is Stays.UNTIL_KILLED]:
                    ended[other] = await going.pop(other)[1].kill()
            if program.stays is not Stays.TO_ITS_END:
                going[index] = (program, await self._spawn(box, program))
            elif index == last and case.racing:
                racer = group.create_task(self.run_in(box, program))
            else:
                ended[index] = await self.run_in(box, program)
        asker = Asker(box, self._subject.maker, str(self._host.secret_path))
        for request in case.requests:
            self._replies.append(await asker.ask(request))
        if racer is not None:
            ended[last] = await racer
        for index, (_, process) in going.items():
            ended[index] = await process.kill()
        self._results = [ended[index] for index in sorted(ended)]
        if case.in_forks is not None:
            await self._run_in_forks(freezable(box), case.in_forks)

    def look_beyond(self, neighbour: Box) -> None:
        """What of the attack came to the far side, before the sandbox and its record go."""
        far, box = self._subject.far, self._box
        if far is None or not self._case.reaches_out or box is None:
            return
        own = networked(box).egress
        other = networked(neighbour).egress
        let_out = [each for each in own.decisions if each.allowed] if own else []
        self._beyond = Beyond(
            asked=tuple(far.asked),
            arrived=tuple(far.arrived),
            flooded_bytes=far.flooded_bytes,
            let_out=tuple(f"{each.host}:{each.port}" for each in let_out),
            denied=own.counts.denied if own else 0,
            by_neighbour=other.counts.allowed + other.counts.denied if other else 0,
        )

    async def see_whether_it_survived(self) -> None:
        """Last of all, because it kills whatever the attack still has going."""
        if self._box is not None:
            self._survived = await _answers(self._box)

    async def run_in(self, box: Box, program: Program) -> ExecResult | NotRun:
        """Runs a program. What the provider refuses to run is as good as a result."""
        now = asyncio.get_running_loop().time
        started_s = now()
        try:
            if program.terminal or program.fed_bytes:
                return await self._run_fed(await self._spawn(box, program), program)
            limit = {}
            if program.output_bytes_max is not None:
                limit["output_bytes_max"] = program.output_bytes_max
            return await box.run(
                _argv(program),
                timeout_s=program.timeout_s,
                cpu_s=program.cpu_s,
                stdin=program.stdin,
                cwd=program.cwd,
                env=self._variables(),
                **limit,
            )
        except NotOffered:
            raise
        except (SandboxError, ValueError) as error:
            return NotRun(error=type(error).__name__, message=str(error))
        finally:
            self._waited_s = max(self._waited_s, now() - started_s)

    def observed(self, neighbour_secret: str, around: Surroundings) -> Observed:
        maker = self._subject.maker
        return Observed(
            results=tuple(self._results),
            replies=tuple(self._replies),
            answers=tuple(self._answers),
            witness=self.witness if isinstance(self.witness, ExecResult) else None,
            forked=tuple(self._forked),
            fed_bytes=self._fed_bytes,
            waited_s=self._waited_s,
            beyond=self._beyond,
            survived=self._survived,
            limits=self._case.limits,
            enforced=maker.enforced,
            isolation=maker.isolation,
            marks=self._host.marks(neighbour_secret),
            around=around,
        )

    def _variables(self) -> dict[str, str]:
        limits = self._case.limits
        way_out = {"FAR_PORT": str(self._subject.far_port)} if self._case.reaches_out else {}
        return (
            self._host.variables
            | way_out
            | {
                "MEMORY_BYTES": str(limits.memory_bytes),
                "PIDS": str(limits.pids),
                "OPEN_FILES": str(limits.open_files),
                "DISK_BYTES": str(limits.disk_bytes),
                "INODES": str(limits.inodes),
            }
        )

    async def _spawn(self, box: Box, program: Program) -> Process:
        limit = {}
        if program.output_bytes_max is not None:
            limit["output_bytes_max"] = program.output_bytes_max
        fed = program.fed_bytes and not program.terminal
        return await spawner(box).spawn(
            _argv(program),
            timeout_s=program.timeout_s,
            cpu_s=program.cpu_s,
            stdin=Stdin.STREAMED if fed else program.stdin,
            cwd=program.cwd,
            env=self._variables(),
            pty=Pty() if program.terminal else None,
            **limit,
        )

    async def _run_fed(self, process: Process, program: Program) -> ExecResult:
        async with asyncio.TaskGroup() as group:
            if program.fed_bytes:
                group.create_task(self._feed(process, program.fed_bytes))
            return await process.wait()

    async def _feed(self, process: Process, bytes_max: int) -> None:
        """Writes until all is written or nobody takes any more, which the program's end is too."""
        with suppress(SandboxError):
            while self._fed_bytes < bytes_max and await process.write(FED_BLOCK):
                self._fed_bytes += len(FED_BLOCK)

    async def _run_in_forks(self, box: Freezable, program: Program) -> None:
        async with await box.snapshot() as snapshot:
            for _ in range(FORKS):
                fork = await self._subject.maker.create(snapshot.spec)
                try:
                    self._forked.append(await self.run_in(fork, program))
                finally:
                    await fork.close()

    async def _let_runs_loose(self) -> None:
        kept = self._subject.kept
        assert kept is not None  # noqa: S101 - `run_case` runs no such case without
        # A run has the interpreter's environment, so it is told of the host in its source.
        told = f"os.environ.update({self._variables()!r})\n"
        program = ZygoteProgram(files={"runs.py": _inside("runs.py")}, main="runs.py")
        async with ZygoteCells(
            kept.provider,
            interpreter=kept.interpreter,
            program=program,
            spec=self._case.spec(self._subject.far_port),
            cells_max=1,
        ) as cells:
            for source in self._case.runs:
                raw = (_inside("prelude.py") + told + source).encode()
                async with cells.run(wall_s=RUN_WALL_S) as run:
                    run.send(len(raw).to_bytes(4, "little") + raw)
                    ending = await run.ended()
                    said = run.stdout.result().text + run.stderr.result().text
                    self._answers.append(f"{said}\nfact ending: {ending.reason}\n")


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
