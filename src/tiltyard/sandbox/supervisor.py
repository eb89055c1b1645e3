"""The host's end of one sandbox's control socket: frames out, frames in, each to whom it belongs.

`Supervisor` is the asyncio protocol on the socket: it numbers requests, cuts frames, and gives each
to the execution or the reply that waits for it. When the socket ends, everything that waits is told
at once. It decides nothing about what an end meant.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import cast
from weakref import WeakSet

from tiltyard.core.errors import SandboxDied, SandboxRefused
from tiltyard.core.execution import Stream
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.protocol import (
    CHUNK_BYTES_MAX,
    VERSION,
    Frame,
    FrameReader,
    FrameType,
    ProtocolError,
    RawExit,
    frame,
    parse_error,
    parse_exit,
    parse_u32,
)
from tiltyard.sandbox.streams import Capture, ChannelInbox, Chunks, InputWindow

REQUEST_TIMEOUT_S = 30.0
"""For requests that no program can prolong: the supervisor must answer these."""


class Execution:
    """One running program or zygote run. Made by `Sandbox`; ends exactly once."""

    def __init__(self, supervisor: "Supervisor", id_: int) -> None:
        self._supervisor = supervisor
        self._readers: WeakSet[Chunks] = WeakSet()
        self._at_end: list[Callable[[RawExit | None], None]] = []
        self._loop = asyncio.get_running_loop()
        self.id = id_
        self.started_s = self._loop.time()
        """On the event loop's clock, like `heard_s`."""
        self.heard_s = self.started_s
        """When it last wrote something."""
        self.stdout = Capture()
        self.stderr = Capture()
        self.channel = ChannelInbox()
        self.input = InputWindow()
        self.ended: asyncio.Future[RawExit | None] = self._loop.create_future()
        """The facts of its end; None when the sandbox was lost first."""

    def send(self, data: bytes) -> None:
        """Sends bytes into the program's channel. What it never reads is dropped at its end."""
        for at in range(0, len(data), CHUNK_BYTES_MAX):
            self._supervisor.send(FrameType.INPUT, self.id, data[at : at + CHUNK_BYTES_MAX])

    def order(self, type_: FrameType, body: bytes = b"") -> None:
        """Sends a frame about it; does nothing when it has ended."""
        if not self.ended.done():
            self._supervisor.send(type_, self.id, body)

    def kill(self) -> None:
        """Asks for its end, with all that it started. `ended` tells when that is done."""
        self.order(FrameType.KILL)

    def chunks(self) -> Chunks:
        """A new reader of its output, from its beginning as far as that is kept."""
        reader = Chunks()
        reader.begin_with(Stream.STDOUT, self.stdout.result())
        reader.begin_with(Stream.STDERR, self.stderr.result())
        if self.ended.done():
            reader.close()
        else:
            self._readers.add(reader)
        return reader

    def at_end(self, call: Callable[[RawExit | None], None]) -> None:
        """Has a function called in the same step as its end becomes known."""
        if self.ended.done():
            call(self.ended.result())
        else:
            self._at_end.append(call)

    def handle(self, received: Frame) -> None:
        match received.type:
            case FrameType.STDOUT:
                self._heard(Stream.STDOUT, self.stdout, received.body)
            case FrameType.STDERR:
                self._heard(Stream.STDERR, self.stderr, received.body)
            case FrameType.CHANNEL if received.body:
                self.channel.feed(received.body)
            case FrameType.CHANNEL:
                self.channel.close()
            case FrameType.TAKEN if received.body:
                if not self.input.taken(parse_u32(received.body)):
                    raise ProtocolError("more input was taken than sent")
            case FrameType.TAKEN:
                self.input.close()
            case FrameType.EXIT:
                self.end(parse_exit(received.body))
            case _:
                raise ProtocolError(f"{received.type.name} for an execution")

    def end(self, raw: RawExit | None) -> None:
        if self.ended.done():
            return
        self.channel.close()
        self.input.close()
        if self._readers:  # to walk an empty set of weak references costs more than all else here
            for reader in self._readers:
                reader.close()
        self.ended.set_result(raw)
        calls, self._at_end = self._at_end, []
        for call in calls:
            call(raw)

    def _heard(self, stream: Stream, capture: Capture, block: bytes) -> None:
        self.heard_s = self._loop.time()
        capture.feed(block)
        if self._readers:
            for reader in self._readers:
                reader.feed(stream, block)


class Supervisor(asyncio.Protocol):
    """The host's end of the control socket."""

    def __init__(self, sandbox_id: SandboxId) -> None:
        self._sandbox_id = sandbox_id
        self._reader = FrameReader()
        self._later = bytearray()
        self._ids = itertools.count(1)
        self._transport: asyncio.Transport | None = None
        self._executions: dict[int, Execution] = {}
        self._replies: dict[int, asyncio.Future[Frame]] = {}
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the control socket has ended."""
        self.gave_up = False
        """True when it ended because the host no longer believed in it, not because it ended."""
        self.paused = False
        """While programs are made to stand still, their time does too."""

    @property
    def running(self) -> int:
        """How many executions have not ended, zygotes included."""
        return len(self._executions)

    async def ready(self) -> None:
        """Waits for HELLO. Raises `SandboxRefused` with the failing call, or `SandboxDied`."""
        await asyncio.shield(self._hello)

    def execution(self) -> Execution:
        """Makes the record of a new execution; the caller sends SPAWN or FORK with its id."""
        execution = Execution(self, next(self._ids))
        self._executions[execution.id] = execution
        if self.lost.done():
            self._forget(execution.id).end(None)
        return execution

    def refuse(self, execution: Execution, raw: RawExit) -> None:
        """Ends an execution that is not to be sent at all."""
        self._executions.pop(execution.id, None)
        execution.end(raw)

    async def request(self, type_: FrameType, body: bytes) -> Frame:
        """Sends a request and waits for its one reply."""
        id_ = next(self._ids)
        if self.lost.done():
            raise SandboxDied(f"sandbox {self._sandbox_id} has ended")
        reply: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._replies[id_] = reply
        try:
            self.send(type_, id_, body)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await reply
        except TimeoutError:
            self.give_up()
            raise SandboxDied(f"sandbox {self._sandbox_id} does not answer {type_.name}") from None
        finally:
            self._replies.pop(id_, None)

    def send(self, type_: FrameType, id_: int, body: bytes = b"") -> None:
        if self._transport is not None and not self.lost.done():
            self._transport.write(bytes(self._later) + frame(type_, id_, body))
            self._later.clear()

    def send_later(self, type_: FrameType, id_: int) -> None:
        """Sends it with the next frame, which it comes before: nobody waits for it until then."""
        self._later += frame(type_, id_)

    def give_up(self) -> None:
        """Ends the connection to a supervisor that breaks the protocol or does not answer."""
        self.gave_up = True
        self.abort()

    def abort(self) -> None:
        """Ends the connection, and with it the sandbox."""
        if self._transport is not None:
            self._transport.abort()

    async def disconnect(self) -> None:
        """Ends the connection and waits until its socket is closed."""
        self.abort()
        await asyncio.wait((self.lost,))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for received in self._reader.feed(data):
                self._handle(received)
        except ProtocolError:
            self.give_up()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base's
        died = SandboxDied(f"sandbox {self._sandbox_id} has ended")
        if not self.lost.done():
            self.lost.set_result(None)
        if not self._hello.done():
            self._hello.set_exception(died)
            self._hello.exception()  # whoever waits gets it; nobody need be waiting
        for execution_id in tuple(self._executions):
            self._forget(execution_id).end(None)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(died)

    def _handle(self, received: Frame) -> None:
        if received.id == 0:
            self._handle_start(received)
        elif received.id in self._executions:
            # Forgotten only when it has ended: with an EXIT that cannot be read, it is a lost one.
            self._executions[received.id].handle(received)
            if received.type is FrameType.EXIT:
                self._forget(received.id)
        elif received.id in self._replies:
            reply = self._replies[received.id]
            if not reply.done():
                reply.set_result(received)
        # Else: a frame for what was given up on meanwhile; its end has been reported.

    def _handle_start(self, received: Frame) -> None:
        if self._hello.done():
            raise ProtocolError("a second HELLO")
        if received.type is FrameType.HELLO and parse_u32(received.body) == VERSION:
            self._hello.set_result(None)
            return
        if received.type is not FrameType.ERROR:
            raise ProtocolError(f"{received.type.name} instead of HELLO")
        code, call = parse_error(received.body)
        self._hello.set_exception(
            SandboxRefused(
                f"sandbox {self._sandbox_id} could not be built: {call}: {os.strerror(code)}.",
                fix="run `tiltyard doctor`; it tries each kernel feature and says what to enable.",
            )
        )

    def _forget(self, execution_id: int) -> Execution:
        return self._executions.pop(execution_id)
