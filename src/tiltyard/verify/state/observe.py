"""State checks: what a task demands of the sandbox as its agent left it, each with a weight.

Files are read by the sandbox's supervisor, which the agent cannot reach. Processes, ports and HTTP
are asked by a program that is run in the agent's sandbox, since nothing else stands in its network:
it says values only, and a sandbox whose root made it lie could as well have run the server that
gives the same answer. A database is opened in another sandbox. No path and no text of the agent's
is followed, executed or searched with a backtracking engine here.
"""

import base64
import errno
import json
import stat
from collections.abc import Sequence
from typing import TypeAlias

import re2

from tiltyard.core.checks import StateCheck, StateKind
from tiltyard.core.errors import SandboxDied, SandboxError, SandboxFileError, UnsoundTask
from tiltyard.core.execution import MIB, SandboxSpec, Stream
from tiltyard.core.files import FileKind
from tiltyard.core.verdict import Component, Evidence, Gap
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.crossing import beside_the_loop, framed
from tiltyard.verify.evidence import plain
from tiltyard.verify.room import Room
from tiltyard.verify.shipping import shared, shipped
from tiltyard.verify.split.candidate import Candidate, Gone

CONTENT_BYTES_MAX = MIB
DATABASE_BYTES_MAX = 6 * MIB
"""Of the file, and of its write-ahead log; both go in one message."""
ANSWER_BYTES_MAX = 4 * MIB
"""Of a probe: more than a whole content in base64, or than all command lines take in JSON."""
PROBE_TIMEOUT_S = 15.0
"""Later than it ends itself."""
QUERY_TIMEOUT_S = 10.0
PID_BYTES_MAX = 32
_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""What the system says of a path at which nothing is."""

Processes: TypeAlias = list[tuple[int, str]]


class Unmet(Exception):
    """An assertion does not hold, with why."""


class StateChecks(Room):
    """Looks at sandboxes that agents left. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int = 1
    ) -> None:
        """`spec` is what databases are opened under."""
        self._probe = shipped(__name__, "probe.py")["probe.py"]
        self._python = interpreter.python
        files = shared("channel.py") | shipped(__name__, "rows.py")
        self._readers = ZygoteCells(
            provider,
            interpreter=interpreter,
            program=ZygoteProgram(files=files, main="rows.py"),
            spec=spec,
            cells_max=cells_max,
        )
        super().__init__(self._readers)

    async def observe(self, sandbox: Sandbox, checks: Sequence[StateCheck]) -> Component:
        """One component, `state`: the weighted share of the checks that hold, each as evidence.

        A sandbox that was lost is a gap of the infrastructure's. Raises `GraderError` for a check
        that cannot be made, such as a bad pattern.
        """
        found: list[Evidence] = []
        held = 0.0
        try:
            for check in checks:
                try:
                    await self._look(sandbox, check)
                except (Unmet, SandboxFileError) as unmet:
                    words = plain(str(unmet))
                else:
                    words = "holds"
                    held += check.weight
                found.append(
                    Evidence(
                        message=words,
                        code=check.id,
                        path=check.path,
                        value=float(words == "holds"),
                    )
                )
        except SandboxError as error:
            lost = Evidence(message=plain(str(error)))
            return Component(name="state", raw=None, gap=Gap.INFRA, evidence=(*found, lost))
        total = sum(check.weight for check in checks)
        share = held / total if total > 0 else 0.0
        return Component(
            name="state", raw=share, unit="share", normalised=share, evidence=tuple(found)
        )

    async def _look(self, sandbox: Sandbox, check: StateCheck) -> None:
        match check.kind:
            case StateKind.FILE:
                await _file(sandbox, check)
            case StateKind.ABSENT:
                await _absent(sandbox, check)
            case StateKind.PROCESS:
                processes = await self._processes(sandbox)
                if not any(_found(check, command) for _, command in processes):
                    raise Unmet(f"none of {len(processes)} processes matches")
            case StateKind.SERVICE:
                await self._service(sandbox, check)
            case StateKind.PORT:
                if await self._ask(sandbox, ["port", check.port]) is not True:
                    raise Unmet(f"nothing accepts connections at port {check.port}")
            case StateKind.HTTP:
                await self._http(sandbox, check)
            case StateKind.SQL:
                await self._sql(sandbox, check)

    async def _ask(self, sandbox: Sandbox, question: Sequence[object]) -> object:
        """What the probe answers; anything but an answer is the sandbox's own doing."""
        async with sandbox.stream(
            [self._python, "-I", "-S", "-B", "-c", self._probe, json.dumps(question)],
            timeout_s=PROBE_TIMEOUT_S,
            output_bytes_max=ANSWER_BYTES_MAX,
        ) as asked:
            # A result keeps the two ends of a long output only.
            pieces = [chunk async for chunk in asked.chunks() if chunk.stream is Stream.STDOUT]
            result = await asked.wait()
        if result.lost:
            raise SandboxDied(f"sandbox {sandbox.id} was lost while it was looked at")
        whole = result.ok and not any(piece.skipped_bytes for piece in pieces)
        said = b"".join(piece.data for piece in pieces) if whole else b""
        try:
            answer: object = json.loads(said)
        except (ValueError, RecursionError):
            last = plain(result.stderr.text.strip()[-200:])
            raise Unmet(f"no answer to {question[0]}: {result.reason} {last}") from None
        return answer

    async def _processes(self, sandbox: Sandbox) -> Processes:
        answer = await self._ask(sandbox, ["processes"])
        match answer:
            case list(entries):
                return [
                    (pid, command)
                    for entry in entries
                    if isinstance(entry, list) and len(entry) == 2
                    for pid, command in (entry,)
                    if isinstance(pid, int) and isinstance(command, str)
                ]
            case _:
                raise Unmet("no list of processes")

    async def _service(self, sandbox: Sandbox, check: StateCheck) -> None:
        content = await sandbox.files.read(check.path, bytes_max=PID_BYTES_MAX)
        if not content.strip().isdigit():
            raise Unmet(f"no pid: {content!r}")
        running = dict(await self._processes(sandbox))
        command = running.get(int(content))
        if command is None:
            raise Unmet(f"no process {int(content)} runs")
        if check.matches is not None and not _found(check, command):
            raise Unmet(f"process {int(content)} is {command[:200]!r}")

    async def _http(self, sandbox: Sandbox, check: StateCheck) -> None:
        path = check.path or "/"
        match await self._ask(sandbox, ["http", check.port, path, CONTENT_BYTES_MAX + 1]):
            case [int(status), str(encoded)]:
                if status != check.status:
                    raise Unmet(f"status {status}, not {check.status}")
                try:
                    _compare(check, base64.b64decode(encoded, validate=True))
                except ValueError:
                    raise Unmet("an answer outside the protocol") from None
            case _:
                raise Unmet("an answer outside the protocol")

    async def _sql(self, sandbox: Sandbox, check: StateCheck) -> None:
        database = await sandbox.files.read(check.path, bytes_max=DATABASE_BYTES_MAX)
        try:
            log = await sandbox.files.read(f"{check.path}-wal", bytes_max=DATABASE_BYTES_MAX)
        except SandboxFileError:
            log = b""
        async with self._readers.run(wall_s=QUERY_TIMEOUT_S) as run:
            reader = Candidate(run, deadline_s=QUERY_TIMEOUT_S)
            request = ("rows", database, log, check.query)
            reader.ask(await beside_the_loop(len(database) + len(log), framed, request))
            reply = await reader.receive()
        if isinstance(reply, Gone):
            raise Unmet(f"the database cannot be read: {reply.status}, {reply.evidence}")
        match reply.kind, reply.rest:
            case "rows", (list(rows),):
                got = tuple(tuple(map(str, row)) for row in rows if isinstance(row, list))
                if got != check.rows:
                    raise Unmet(f"gave {plain(str(got[:5]))}")
            case "error", (str(words),):
                raise Unmet(plain(words))
            case _:
                raise Unmet("an answer outside the protocol")


async def _file(sandbox: Sandbox, check: StateCheck) -> None:
    status = await sandbox.files.stat(check.path, follow_links=False)
    if status.kind is not FileKind.FILE:
        raise Unmet(f"it is a {status.kind}")
    mode = stat.S_IMODE(status.mode)
    if check.mode is not None and mode != check.mode:
        raise Unmet(f"its mode is {mode:#o}, not {check.mode:#o}")
    if check.equals is not None or check.matches is not None:
        _compare(check, await sandbox.files.read(check.path, bytes_max=CONTENT_BYTES_MAX))


async def _absent(sandbox: Sandbox, check: StateCheck) -> None:
    try:
        status = await sandbox.files.stat(check.path, follow_links=False)
    except SandboxFileError as error:
        if error.errno not in _NOTHING:
            raise
        return
    raise Unmet(f"there is a {status.kind}")


def _compare(check: StateCheck, content: bytes) -> None:
    if check.equals is not None and content != check.equals.encode():
        raise Unmet(f"holds {content[:100]!r}")
    if check.matches is not None and not _found(check, content.decode("utf-8", "replace")):
        raise Unmet(f"does not match in {content[:100]!r}")


def _found(check: StateCheck, text: str) -> bool:
    """Whether the pattern is found; in time linear in the text, whatever both are."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?m){check.matches or ''}", options).search(text) is not None
    except re2.error as error:
        raise UnsoundTask(
            f"state check {check.id}: {check.matches!r} is no pattern: {error}",
            fix="use RE2's syntax: no look-around and no back-references.",
        ) from None
