"""The egress proxy of one sandbox: it listens inside the sandbox and connects from outside.

Theory of operation. `native/network.c` made the listening socket in the sandbox's own network
namespace; whatever connects to it is a program of that sandbox, so nobody has to say who he is, and
no other sandbox can. The first byte tells SOCKS5 from HTTP. A connection passes three stages, each
bounded in time and bytes: reading what is asked (`requests`, `socks`), judging and connecting
(`outward`), relaying (`relay`). What comes out of the sandbox is hostile; what fails is told to the
program in its own protocol and never raised here.

Bandwidth is not limited here but by the kernel, on the loopback that all of this crosses.
"""

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass

import structlog

from tiltyard.core.errors import SandboxDied, SandboxError
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network import socks
from tiltyard.sandbox.network.decisions import EgressLog, Form
from tiltyard.sandbox.network.lookups import Lookups
from tiltyard.sandbox.network.outward import NotConnected, Outward, Wanted
from tiltyard.sandbox.network.relay import Inlet, Relay, linger
from tiltyard.sandbox.network.requests import (
    ESTABLISHED,
    HEAD_BYTES_MAX,
    RequestRefused,
    parse_head,
    refusal,
)
from tiltyard.sandbox.network.resolver import Resolver
from tiltyard.sandbox.network.rules import Cause, Rules
from tiltyard.sandbox.network.sharing import Pace, Places, Turns
from tiltyard.sandbox.network.waiting import readable

CONNECTIONS_MAX = 64
"""Of one sandbox at once. More wait in the kernel's queue, and then it refuses them."""
TELL_TIMEOUT_S = 5.0
"""For an answer of a few bytes, which a socket takes at once."""
CONNECTIONS_PER_S = 500
"""Of one sandbox, after the first `CONNECTIONS_MAX`: each costs this process more than the program
that opens it, and its neighbours are served by the same process."""
ACCEPT_RETRY_S = 0.2
"""When this process has no descriptor left."""
END_TIMEOUT_S = 5.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a connection is borne."""

    ask_s: float = 10.0
    """From its start to the whole of what it asks: longer, and it is held for its own sake."""
    resolve_s: float = 10.0
    """For one look-up, the wait for its turn included."""
    idle_s: float = 120.0
    """Without a byte in either direction."""
    total_s: float = 3600.0


PATIENCE = Patience()


class EgressProxy:
    """Serves one sandbox until it is cancelled. Made by `Proxies`."""

    def __init__(
        self,
        sandbox_id: SandboxId,
        listener: socket.socket,
        *,
        rules: Rules,
        lookups: Lookups,
        places: Places,
        turns: Turns,
        patience: Patience,
    ) -> None:
        """`listener` becomes its own."""
        self.log = EgressLog(sandbox_id)
        self._sandbox_id = sandbox_id
        self._listener = listener
        self._outward = Outward(sandbox_id, rules=rules, lookups=lookups, log=self.log)
        self._places = places
        self._turns = turns
        self._patience = patience
        self._pace = Pace(per_s=CONNECTIONS_PER_S, at_once=CONNECTIONS_MAX)
        self._own_places = asyncio.Semaphore(CONNECTIONS_MAX)
        self._connections: dict[asyncio.Task[None], None] = {}

    @property
    def held(self) -> int:
        return len(self._connections)

    def give_up_oldest(self) -> None:
        for oldest in self._connections:
            if not oldest.cancelling():
                oldest.cancel()
                return

    async def serve(self) -> None:
        """Accepts and serves until it is cancelled; then nothing of it is left open."""
        self._listener.settimeout(0)
        self._places.join(self)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._own_places.acquire()
                    await readable(self._listener)
                    # Not before somebody comes: a sandbox at rest holds no place.
                    await self._places.take(self)
                    if not self._accept_one(group):
                        self._give_places()
                        await asyncio.sleep(ACCEPT_RETRY_S)
                    await asyncio.sleep(self._pace.wait_s(asyncio.get_running_loop().time()))
        except Exception as error:  # noqa: BLE001 - the top of a task that nobody waits for
            # Programs of this sandbox find nobody there; its neighbours are not disturbed.
            _log.error("egress_proxy_failed", sandbox_id=self._sandbox_id, error=repr(error))
        finally:
            self._places.leave(self)
            self._listener.close()

    def _accept_one(self, group: asyncio.TaskGroup) -> bool:
        """Starts serving the next connection, in the places that were taken for it."""
        try:
            near, _ = self._listener.accept()
        except OSError as error:  # it has gone again, or this process has no descriptor left
            _log.warning("egress_accept_failed", sandbox_id=self._sandbox_id, error=error.strerror)
            return False
        near.settimeout(0)
        connection = group.create_task(self._serve_one(near))
        # Not by the task: one that is cancelled before its first step runs none of itself.
        connection.add_done_callback(lambda ended: self._ended(ended, near))
        self._connections[connection] = None
        self.log.open = self.held
        return True

    def _ended(self, connection: "asyncio.Task[None]", near: socket.socket) -> None:
        near.close()
        self._connections.pop(connection, None)
        self.log.open = self.held
        self._give_places()

    def _give_places(self) -> None:
        self._own_places.release()
        self._places.give()

    async def _serve_one(self, near: socket.socket) -> None:
        try:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._patience.total_s):
                await self._talk(Inlet(near))
        except (OSError, EOFError):
            pass  # the program broke off, or its time was over
        except Exception as error:  # noqa: BLE001 - the top of a task that nobody waits for
            # One connection is lost; the sandbox and its other connections are not.
            _log.error("egress_failed", sandbox_id=self._sandbox_id, error=repr(error))

    async def _talk(self, inlet: Inlet) -> None:
        try:
            async with asyncio.timeout(self._patience.ask_s):
                first = await inlet.first()
                form = Form.SOCKS5 if first == bytes((socks.VERSION,)) else Form.HTTP
                if form is Form.SOCKS5:
                    asked = await _socks_asked(inlet)
                else:
                    head = await inlet.take_through(b"\r\n\r\n", bytes_max=HEAD_BYTES_MAX)
        except socks.SocksRefused as refused:
            await _tell(inlet, socks.reply(refused.code))
            return
        except OverflowError:
            await _tell(inlet, refusal(431, f"the head is over {HEAD_BYTES_MAX} bytes"))
            return
        if form is Form.SOCKS5:
            await self._serve_socks(inlet, asked)
        else:
            await self._serve_http(inlet, head)

    async def _serve_socks(self, inlet: Inlet, asked: socks.SocksRequest) -> None:
        wanted = Wanted(form=Form.SOCKS5, host=asked.host, port=asked.port)
        try:
            far = await self._outward.connect(wanted)
        except NotConnected as refused:
            await _tell(inlet, socks.reply(_socks_code(refused.cause)))
            return
        with far:
            await _send(inlet, socks.reply(socks.SocksReply.CONNECTED))
            await self._relay(inlet, far).tunnel()

    async def _serve_http(self, inlet: Inlet, head: bytes) -> None:
        try:
            asked = parse_head(head)
        except RequestRefused as refused:
            await _tell(inlet, refusal(refused.status, refused.message))
            return
        form = Form.CONNECT if asked.tunnel else Form.HTTP
        try:
            far = await self._outward.connect(Wanted(form=form, host=asked.host, port=asked.port))
        except NotConnected as refused:
            await _tell(inlet, _http_refusal(asked.host, asked.port, refused.cause))
            return
        with far:
            relay = self._relay(inlet, far)
            if asked.tunnel:
                await _send(inlet, ESTABLISHED)
                await relay.tunnel()
            else:
                await relay.exchange(asked.head, asked.body_bytes)

    def _relay(self, inlet: Inlet, far: socket.socket) -> Relay:
        return Relay(
            inlet,
            far,
            up=self._count_up,
            down=self._count_down,
            idle_s=self._patience.idle_s,
            turns=self._turns,
        )

    def _count_up(self, count: int) -> None:
        self.log.up_bytes += count

    def _count_down(self, count: int) -> None:
        self.log.down_bytes += count


class Proxies:
    """The proxies of one provider: `open`, `start` for each sandbox, `aclose` for what is left."""

    def __init__(
        self, resolver: Resolver, *, places: Places | None = None, patience: Patience = PATIENCE
    ) -> None:
        """`resolver` is closed with it; `places` None takes what this process can spare."""
        self._patience = patience
        self._resolver = resolver
        self._places = Places() if places is None else places
        self._lookups = Lookups(resolver, patience_s=patience.resolve_s)
        self._group = asyncio.TaskGroup()
        self._turns = Turns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False

    async def open(self) -> None:
        await self._lookups.open()
        await self._group.__aenter__()
        self._open = True

    async def aclose(self) -> None:
        """Ends every proxy; idempotent."""
        self._open = False
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)
        await self._lookups.aclose()
        self._resolver.close()

    def start(self, sandbox_id: SandboxId, listener: socket.socket, rules: Rules) -> "Served":
        """Starts the proxy of a sandbox on its listening socket, which becomes its own.

        Raises `SandboxDied` when they are closed; the socket stays the caller's then.
        """
        if not self._open:
            raise SandboxDied(f"sandbox {sandbox_id} has ended with its provider.")
        proxy = EgressProxy(
            sandbox_id,
            listener,
            rules=rules,
            lookups=self._lookups,
            places=self._places,
            turns=self._turns,
            patience=self._patience,
        )
        task = self._group.create_task(proxy.serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step runs none of itself.
        task.add_done_callback(lambda _: listener.close())
        return Served(sandbox_id, proxy.log, task)


class Served:
    """One proxy that runs, as the provider holds it."""

    def __init__(self, sandbox_id: SandboxId, log: EgressLog, task: "asyncio.Task[None]") -> None:
        self.log = log
        self._sandbox_id = sandbox_id
        self._task = task

    def stop(self) -> None:
        """Ends it and all its connections, soon; idempotent."""
        self._task.cancel()

    async def ended(self) -> None:
        """Returns when nothing of it is open. Raises `SandboxError` when that takes too long."""
        _, pending = await asyncio.wait((self._task,), timeout=END_TIMEOUT_S)
        if pending:
            raise SandboxError(f"the network proxy of sandbox {self._sandbox_id} does not end.")


async def _socks_asked(inlet: Inlet) -> socks.SocksRequest:
    _, count = await inlet.take(2)
    if socks.NO_AUTHENTICATION not in await inlet.take(count):
        await _send(inlet, socks.NO_METHOD_ACCEPTED)
        raise EOFError
    await _send(inlet, socks.METHOD_ACCEPTED)
    head = await inlet.take(socks.REQUEST_HEAD_BYTES)
    return socks.parse_request(head + await inlet.take(socks.request_bytes(head) - len(head)))


def _socks_code(cause: Cause | None) -> socks.SocksReply:
    match cause:
        case None:
            return socks.SocksReply.REFUSED
        case Cause.LOOKUPS_BUSY:
            return socks.SocksReply.FAILED
        case Cause.UNRESOLVED:
            return socks.SocksReply.HOST_UNREACHABLE
        case _:
            return socks.SocksReply.NOT_ALLOWED


def _http_refusal(host: str, port: int, cause: Cause | None) -> bytes:
    match cause:
        case None:
            return refusal(502, f"{host}:{port} does not accept the connection")
        case Cause.UNRESOLVED:
            return refusal(502, f"{host} has no address")
        case Cause.LOOKUPS_BUSY:
            return refusal(503, f"{host} was not looked up: other look-ups of this sandbox hang")
        case Cause.MALFORMED:
            return refusal(400, "the host is neither a name nor an address in its usual spelling")
        case _:
            return refusal(403, f"{host}:{port} may not be reached from this sandbox ({cause})")


async def _send(inlet: Inlet, answer: bytes) -> None:
    async with asyncio.timeout(TELL_TIMEOUT_S):
        await asyncio.get_running_loop().sock_sendall(inlet.socket, answer)


async def _tell(inlet: Inlet, answer: bytes) -> None:
    with suppress(OSError):
        await _send(inlet, answer)
        await linger(inlet.socket)
