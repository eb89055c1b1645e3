"""Where calls are measured: fresh runs for what is measured, and others where inputs are made.

Theory of operation. A measurement is a run of its own in a kept interpreter that has never seen any
solution. The run first loads an empty module; when it has answered, its cgroup is read: whatever is
used from then on was used for what is loaded next, in whatever thread, child or daemon, and nothing
that the solution does to its process can make it less. Clocks inside are never asked.
"""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tiltyard.core.checks import Inputs
from tiltyard.core.errors import SandboxError, UnsoundTask
from tiltyard.core.execution import MIB, SandboxSpec
from tiltyard.core.task import ProgramCase
from tiltyard.core.values import Value
from tiltyard.core.verdict import CheckStatus
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, Run, ZygoteCells, ZygoteProgram
from tiltyard.verify.crossing import beside_the_loop, framed
from tiltyard.verify.inside import codec
from tiltyard.verify.room import Room
from tiltyard.verify.shipping import shared, shipped
from tiltyard.verify.split.candidate import Candidate, Gone, Reply, words_of_reply
from tiltyard.verify.split.fresh import InputTooLargeError, program_case

POLL_S = 0.01
"""How often a run that works is looked at, to end it when it has used enough."""
GENERATE_S = 30.0
"""Wall time for one input."""
GENERATOR_LIFE_S = 3600.0
GENERATED_BYTES_MAX = 4 * MIB
"""Of what one run of the generator makes; with the next input it stays below what a run may say."""
SEED_BITS = 48
_GENERATE = """

def tiltyard_generate(seed, size):
    import random
    return generate(random.Random(seed), size)
"""
_DIGITS_MAX = 4000
"""Python reads no longer decimal integers."""


class NotCountedError(SandboxError):
    """No cgroup counts CPU time here, so nothing can be billed from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call in a process of its own, as billed from outside."""

    reply: Reply | Gone
    cpu_s: float
    """Of loading the solution and of the call, with everything that it started."""
    over: bool
    """It was ended because it had used more than it might."""


class Session:
    """One run with a solution loaded into it."""

    def __init__(self, run: Run, *, wall_s: float) -> None:
        self.run = run
        self.candidate = Candidate(run, deadline_s=wall_s)
        self.start_s = 0.0
        """What the run's cgroup had counted before the solution came."""

    async def begin(self) -> None:
        """Has it load nothing. Raises `SandboxError`: whatever goes wrong here is ours."""
        loaded = await self.load("empty", b"")
        if isinstance(loaded, Gone) or loaded.kind != "loaded":
            raise SandboxError(f"a run could not load nothing: {words_of_reply(loaded)}")
        self.start_s = self.counted_s()

    def counted_s(self) -> float:
        """CPU time until now. Raises `NotCountedError`."""
        cpu_s = self.run.used().cpu_s
        if cpu_s is None:
            raise NotCountedError("no cgroup counts CPU time here", fix="see `tiltyard doctor`.")
        return cpu_s

    async def load(self, module: str, source: bytes) -> Reply | Gone:
        self.candidate.ask(framed(("load", module, source)))
        return await self.candidate.receive()

    async def call(self, request: bytes) -> Reply | Gone:
        """Makes one call that `call_of` encoded."""
        self.candidate.ask(request)
        return await self.candidate.receive()


class Bench(Room):
    """Use with `async with`, and by one measure at a time: each would disturb the others."""

    def __init__(self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec) -> None:
        """`spec` is what runs are limited by."""
        answering = shipped("tiltyard.verify.split.mode", "candidate.py")
        files = shared() | answering | shipped(__name__, "measured.py")
        program = ZygoteProgram(files=files, main="measured.py")
        self._cells = partial(
            ZygoteCells, provider, interpreter=interpreter, program=program, spec=spec
        )
        self._measured = self._cells(cells_max=1)
        self._generators = self._cells(cells_max=1)
        super().__init__(self._measured, self._generators)

    @asynccontextmanager
    async def session(self, *, wall_s: float) -> AsyncIterator[Session]:
        """A run for a solution, begun. Raises `SandboxError`."""
        async with self._measured.run(wall_s=wall_s) as run:
            session = Session(run, wall_s=wall_s)
            await session.begin()
            yield session

    @asynccontextmanager
    async def cold_session(self, *, wall_s: float) -> AsyncIterator[Session]:
        """As `session`, in a sandbox made for it: no run was ever charged to it before."""
        async with self._cells(cells_max=1) as cells, cells.run(wall_s=wall_s) as run:
            session = Session(run, wall_s=wall_s)
            await session.begin()
            yield session

    async def call_cold(
        self, *, module: str, source: bytes, request: bytes, cpu_s_max: float, wall_s: float
    ) -> Called:
        """Loads a solution in a run of its own and makes one call. Raises `SandboxError`."""
        async with self.session(wall_s=wall_s) as session:
            watch = Watch(
                lambda: session.run.used().cpu_s,
                session.run.kill,
                since_s=session.start_s,
                cpu_s_max=cpu_s_max,
            )
            try:
                session.candidate.ask(framed(("load", module, source)), request)
                reply = await session.candidate.receive()
                if isinstance(reply, Reply) and reply.kind == "loaded":
                    reply = await session.candidate.receive()
            finally:
                watch.stop()
            now_s = session.run.used().cpu_s  # None when its cell was lost with it
            used_s = (watch.seen_s if now_s is None else now_s) - session.start_s
            timed_out = isinstance(reply, Gone) and reply.status is CheckStatus.TIMEOUT
            return Called(reply=reply, cpu_s=used_s, over=watch.over or timed_out)

    @asynccontextmanager
    async def generator(self, inputs: Inputs, *, seed: int) -> AsyncIterator["Generator"]:
        """The task's generator, in sandboxes that no solution enters."""
        async with AsyncExitStack() as opened:
            yield Generator(self._generators, inputs, seed=seed, opened=opened)


class Generator:
    """Makes inputs. None is made twice."""

    def __init__(
        self, cells: ZygoteCells, inputs: Inputs, *, seed: int, opened: AsyncExitStack
    ) -> None:
        self._cells = cells
        self.inputs = inputs
        self._seeds = random.Random(seed)  # noqa: S311 - so that its seed tells all inputs
        self._opened = opened
        self._session: Session | None = None
        self._made_bytes = 0

    async def request(self, size: int) -> bytes | None:
        """One call of the solution's function, encoded; None when its input may not cross.

        Raises `GraderError` when the generator fails.
        """
        reply = await self._made(size)
        if reply is None:
            return None
        arguments = reply.rest[0]
        if not isinstance(arguments, tuple):
            raise UnsoundTask(
                f"the generator of inputs made none of size {size}: {words_of_reply(reply)}",
                fix="have `generate(rng, size)` return a tuple of arguments.",
            )
        return await beside_the_loop(reply.size_bytes, self._call_of, arguments)

    async def case(self, size: int) -> ProgramCase | None:
        """One run of a program; None when its input may not cross, or is more than it may have.

        Raises `GraderError` when the generator fails.
        """
        reply = await self._made(size)
        if reply is None:
            return None
        try:
            return program_case(
                reply.rest[0], id_=f"size {size}", stdin_bytes_max=GENERATED_BYTES_MAX
            )
        except InputTooLargeError:
            return None
        except ValueError as error:
            raise UnsoundTask(
                f"the generator of inputs made none of size {size}: {error}",
                fix="have `generate(rng, size)` return standard input as text or bytes.",
            ) from None

    async def _made(self, size: int) -> Reply | None:
        """A value that the generator gave; None when it may not cross. Raises `GraderError`."""
        seed = self._seeds.getrandbits(SEED_BITS)
        ask = framed(("call", 0, "tiltyard_generate", (seed, size), {}, 0, False))
        try:
            async with asyncio.timeout(GENERATE_S):
                reply = await (await self._ready()).call(ask)
        except TimeoutError:
            raise UnsoundTask(
                f"the generator of inputs made none of size {size} in {GENERATE_S:.0f} s"
            ) from None
        if isinstance(reply, Reply) and reply.kind == "bad" and reply.rest[:1] == ("size",):
            return None
        if isinstance(reply, Gone) or reply.kind != "value":
            raise UnsoundTask(
                f"the generator of inputs made none of size {size}: {words_of_reply(reply)}",
                fix="have `generate(rng, size)` return an input.",
            )
        self._made_bytes += reply.size_bytes
        return reply

    async def _ready(self) -> Session:
        """A run with the generator in it: a new one when the last has said much of what it may."""
        if self._session is None or self._made_bytes > GENERATED_BYTES_MAX:
            self._session = None
            self._made_bytes = 0
            await self._opened.aclose()
            run = await self._opened.enter_async_context(self._cells.run(wall_s=GENERATOR_LIFE_S))
            session = Session(run, wall_s=GENERATOR_LIFE_S)
            await session.begin()
            loaded = await session.load("generator", (self.inputs.source + _GENERATE).encode())
            if isinstance(loaded, Gone) or loaded.kind != "loaded":
                raise UnsoundTask(
                    f"the generator of inputs cannot be loaded: {words_of_reply(loaded)}"
                )
            self._session = session
        return self._session

    def _call_of(self, arguments: tuple[Value, ...]) -> bytes:
        return call_of(self.inputs.target, arguments)


def call_of(target: str, arguments: tuple[Value, ...]) -> bytes:
    """A call of a function of the solution, as a run reads it."""
    if all(map(_is_json, arguments)):
        request = ["call", 0, target, list(arguments), {}, 0, False]
        return codec.frame(json.dumps(request, separators=(",", ":")).encode())
    return framed(("call", 0, target, arguments, {}, 0, False))


def _is_json(value: Value) -> bool:
    """Whether JSON gives back the very same value."""
    if value is None or isinstance(value, (bool, str)):
        return True
    if isinstance(value, int):
        return value.bit_length() < _DIGITS_MAX * 3
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_json, value.values()))
    return False


class Watch:
    """Ends what is measured when it has used more CPU time than it may."""

    def __init__(
        self,
        counted: Callable[[], float | None],
        end: Callable[[], None],
        *,
        since_s: float,
        cpu_s_max: float,
    ) -> None:
        """`counted` is what was used until now, and `since_s` what that was at the start."""
        self._counted = counted
        self._end = end
        self._most_s = since_s + cpu_s_max
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(POLL_S, self._look)
        self.seen_s = since_s
        self.over = False

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        counted_s = self._counted()
        if counted_s is not None:
            self.seen_s = counted_s
        if self.seen_s > self._most_s:
            self.over = True
            self._end()
            return
        self._timer = self._loop.call_later(POLL_S, self._look)
