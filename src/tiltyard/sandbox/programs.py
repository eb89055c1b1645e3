"""The programs of one sandbox: started, known while they run, found again by their ids.

Every program is started here, whether its caller waits for it or not, and so are zygotes and their
runs. Whether the sandbox may still be used is for its owner to say, in `supervised`.
"""

import asyncio
import errno
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tiltyard.core.errors import ProcessUnknown, SandboxRefused
from tiltyard.core.execution import Enforcement, Limit, SandboxSpec
from tiltyard.core.ids import ProcessId, SandboxId
from tiltyard.sandbox.course import Course, Settled
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.footprint import Footprint
from tiltyard.sandbox.hold import Hold
from tiltyard.sandbox.orders import OUTPUT_BYTES_MAX, Environment, Order, limits_under
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.protocol import (
    EXECUTIONS_MAX,
    ExitFlag,
    FrameType,
    ProgramLimits,
    RawExit,
    SpawnFlag,
    limits_field,
    spawn_body,
)
from tiltyard.sandbox.supervisor import Execution, Supervisor

ENDED_KEPT_MAX = 16
"""Ended background programs that can still be asked how they ended; each keeps up to 256 KiB."""
RUN_GENERATION = 2
"""The supervisor is the first process, its zygote a child of it, and a run a child of that."""
ONE_USER = "user-namespace"
"""The rung on which a sandbox has no other user than its root."""


class Programs:
    """Starts the programs of one sandbox, and knows those that run."""

    def __init__(
        self,
        *,
        sandbox_id: SandboxId,
        spec: SandboxSpec,
        supervisor: Supervisor,
        hold: Hold,
        isolation: str,
        enforced: Mapping[Limit, Enforcement],
        environment: Mapping[str, str],
    ) -> None:
        self._sandbox_id = sandbox_id
        self._spec = spec
        self._supervisor = supervisor
        self._hold = hold
        self._isolation = isolation
        self._enforced = enforced
        self._environment = Environment(environment)
        self._running: dict[ProcessId, Process] = {}
        self._ended: OrderedDict[ProcessId, Process] = OrderedDict()

    @property
    def running(self) -> tuple[Process, ...]:
        return tuple(self._running.values())

    def find(self, id_: ProcessId) -> Process:
        """Raises `ProcessUnknown`."""
        found = self._running.get(id_) or self._ended.get(id_)
        if found is None:
            raise ProcessUnknown(
                f"sandbox {self._sandbox_id} has no process {id_!r}.",
                fix=f"list the running ones; the last {ENDED_KEPT_MAX} that ended are known too.",
            )
        return found

    def start(self, order: Order, *, keep: bool) -> Process:
        """Starts a program and returns at once; with `keep`, it can be found after its end.

        Raises `ValueError` for an order that makes no sense, `SandboxRefused` for a user that this
        sandbox cannot have.
        """
        if problem := order.problem():
            raise ValueError(f"sandbox {self._sandbox_id}: {problem}")
        if order.other_user and self._isolation == ONE_USER:
            raise SandboxRefused(
                f"sandbox {self._sandbox_id} has no user {order.user!r}: it has only its root.",
                fix="run Tiltyard as root, where each sandbox has 65,536 ids, or leave `user` out.",
            )
        limits = self.limits(
            wall_s=order.timeout_s or 0.0,
            cpu_s=order.cpu_s,
            output_bytes_max=order.output_bytes_max,
        )
        try:
            body = order.body(environment=self._environment, limits=limits)
        except ValueError as error:
            raise ValueError(f"sandbox {self._sandbox_id}: {error}") from None
        before = self._hold.read_usage(reset_peak=self._supervisor.running == 0)
        full = self._supervisor.running >= EXECUTIONS_MAX
        execution = self._supervisor.execution()
        course = self._course(execution, limits=limits, before=before, idle_s=order.idle_s or 0.0)
        process = Process(
            execution=execution,
            course=course,
            order=order,
            isolation=self._isolation,
            enforced=self._enforced,
        )
        self._running[process.id] = process
        if full:
            # It would be refused inside as well; but what is on the way there is bounded like this.
            self._supervisor.refuse(execution, _no_room())
        else:
            execution.order(FrameType.SPAWN, body)
        execution.at_end(lambda _: self._forget(process, keep=keep))
        return process

    def limits(
        self, *, wall_s: float, cpu_s: int = 0, output_bytes_max: int = OUTPUT_BYTES_MAX
    ) -> ProgramLimits:
        """The limits of one program under the sandbox's spec."""
        return limits_under(
            self._spec,
            self._enforced,
            wall_s=wall_s,
            cpu_s=cpu_s,
            output_bytes_max=output_bytes_max,
        )

    def start_zygote(self, argv: Sequence[str]) -> Execution:
        """Starts a zygote, which has no deadline, and returns at once."""
        execution = self._supervisor.execution()
        body = spawn_body(
            argv=argv,
            variables=self._environment.field({}),
            cwd="/",
            stdin=b"",
            limits=self.limits(wall_s=0),
            flags=SpawnFlag.ZYGOTE,
        )
        execution.order(FrameType.SPAWN, body)
        return execution

    def fork(self, zygote: Execution, *, limits: ProgramLimits) -> Execution:
        """Has a zygote fork a run, and returns at once."""
        execution = self._supervisor.execution()
        execution.order(FrameType.FORK, struct.pack("<I", zygote.id) + limits_field(limits))
        return execution

    def count_anew(self) -> Usage:
        """A reading before a run, from which its peak of memory counts anew where that can be."""
        return self._hold.read_usage(reset_peak=True)

    async def footprint_of_runs(self) -> Footprint | None:
        """What the zygotes' runs hold, seen from outside; None when the sandbox is gone."""
        return await self._hold.footprint(generations=RUN_GENERATION)

    async def footprint(self) -> Footprint | None:
        """What all in it holds, its supervisor too, seen from outside; None when it is gone.

        The I/O of programs that have ended is in it: the supervisor waited for them.
        """
        return await self._hold.footprint(generations=0)

    async def settle(
        self, execution: Execution, *, limits: ProgramLimits, before: Usage
    ) -> Settled:
        """Waits for the end of a zygote's run and decides what it meant.

        `before` is a reading from before its start. Whatever happens here, the run is not left
        running.
        """
        course = self._course(execution, limits=limits, before=before)
        try:
            return await course.settled()
        finally:
            course.kill()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """A block in which we stop programs: it does not count against their deadlines."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        self._supervisor.paused = True
        try:
            yield
        finally:
            self._supervisor.paused = False
            for process in self._running.values():
                process.put_off(loop.time() - begun_s)

    def _course(
        self, execution: Execution, *, limits: ProgramLimits, before: Usage, idle_s: float = 0.0
    ) -> Course:
        return Course(
            execution,
            supervisor=self._supervisor,
            hold=self._hold,
            cpus=self._spec.limits.cpus,
            limits=limits,
            idle_s=idle_s,
            before=before,
        )

    def _forget(self, process: Process, *, keep: bool) -> None:
        del self._running[process.id]
        if keep:
            self._ended[process.id] = process
            if len(self._ended) > ENDED_KEPT_MAX:
                self._ended.popitem(last=False)


def _no_room() -> RawExit:
    return RawExit(
        status=errno.EAGAIN,
        flags=ExitFlag.NOT_STARTED,
        wall_s=0.0,
        cpu_s=0.0,
        memory_peak_bytes=0,
        stdout_bytes=0,
        stderr_bytes=0,
        call="executions at once",
    )
