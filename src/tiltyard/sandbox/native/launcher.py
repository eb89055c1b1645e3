"""The host's side of tiltyard-launcher: starting it, asking it, hearing of its sandboxes' ends."""

import array
import asyncio
import errno
import itertools
import os
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiltyard.core.errors import SandboxDied, SandboxError, SandboxRefused
from tiltyard.sandbox.native.create import CreateOrder
from tiltyard.sandbox.native.netns import Handed, NetworkKind
from tiltyard.sandbox.protocol import text

_REPLY_BYTES_MAX = 4096
_FDS_MAX = 4
_REQUEST_BYTES_MAX = 65_536  # the same in native/launcher.c
_START_TIMEOUT_S = 20.0
_REQUEST_TIMEOUT_S = 20.0
_WORKER_TIMEOUT_S = 80.0
"""The launcher ends a worker after 60 s."""
_EXIT_TIMEOUT_S = 6.0
"""It gives its sandboxes 4 s to be gone."""
_REQUEST_IMAGE, _REQUEST_SNAPSHOT, _REQUEST_DROP, _REQUEST_COMPARE = 1, 3, 4, 5  # see `CreateOrder`
_REPLY_OK, _REPLY_FAILED, _REPLY_GONE = 1, 2, 3
_KEPT = "kept"
_DOCTOR = "run `tiltyard doctor`; it tries each kernel feature and says what to enable."


class StepFailed(SandboxRefused):
    """The launcher could not do what it was asked for."""

    def __init__(self, message: str, *, fix: str, step: str) -> None:
        super().__init__(message, fix=fix)
        self.step = step
        """Where it stopped: most often a system call, as the C sources name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One message of the launcher, with the descriptors that came with it."""

    kind: int
    errno: int
    """Of a sandbox that is gone: the number of its out-of-memory kills."""
    id: str
    step: str
    fds: tuple[int, ...]

    def check(self, what: str) -> None:
        """Raises `StepFailed` when the launcher could not do it."""
        if self.kind == _REPLY_OK:
            return
        message = f"{what}: {self.step}: {os.strerror(self.errno)}."
        raise StepFailed(message, fix=_DOCTOR, step=self.step)

    def all_fds(self, count: int) -> tuple[int, ...]:
        """What comes with a new sandbox. Raises `SandboxError` when it did not get through."""
        if len(self.fds) == count:
            return self.fds
        self.drop()
        raise SandboxError(
            f"sandbox {self.id} was lost: this process may open no more descriptors.",
            fix="raise `ulimit -n`, or use fewer sandboxes at once.",
        )

    def drop(self) -> None:
        """Closes what came with it. A sandbox whose control socket is closed ends itself."""
        for fd in self.fds:
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What was left of a sandbox at its end."""

    oom_kills: int = 0
    """How many of its processes the kernel had killed for want of memory."""
    cgroups_kept: bool = False
    """They are there, empty and with their limits, for another."""
    unused: Sequence[str] = ()
    """What was to be removed when it was made, and has not been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new sandbox. All descriptors belong to whoever gets it."""

    control: socket.socket
    pidfd: int
    handed: Handed | None
    """Of one that has a proxy."""


class Launcher:
    """One launcher process. Dies with this process; `close` ends it with all its sandboxes."""

    def __init__(self, process: subprocess.Popen[bytes], requests: socket.socket) -> None:
        self._process = process
        self._socket = requests
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._gone: dict[str, asyncio.Future[End]] = {}
        self._numbers = itertools.count(1)
        self._sending = asyncio.Lock()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the launcher has ended, however it did."""
        self._loop.add_reader(requests.fileno(), self._on_readable)

    @classmethod
    async def start(
        cls,
        *,
        launcher: Path,
        stage: Path,
        cgroups: Mapping[str, str],
        held: Sequence[socket.socket] = (),
    ) -> "Launcher":
        """Starts the process, which keeps the sockets `held` open for as long as it lives.

        `cgroups` are the directories below which it makes its sandboxes', each with what it lets
        them have when it has to make it anew (`handed_on`).

        Raises `SandboxRefused` with the failing call and the fix.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)
        host = -1
        try:
            # A child of this process may hold our end of the socket longer than we live.
            host = os.pidfd_open(os.getpid())
            argv = [str(launcher), str(theirs.fileno()), str(host), str(stage)]
            argv += [f"{path}={controllers}" for path, controllers in cgroups.items()]
            process = subprocess.Popen(  # noqa: ASYNC220 - vfork and exec of a small program, once
                argv,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), host, *(each.fileno() for each in held)),
                start_new_session=True,  # a terminal's Ctrl-C is this process's to handle
                env={},
            )
        except OSError as error:
            ours.close()
            raise SandboxRefused(
                f"cannot start {launcher}: {error.strerror}.",
                fix="build the package again: `make`.",
            ) from None
        finally:
            theirs.close()
            if host >= 0:
                os.close(host)
        self = cls(process, ours)
        try:
            reply = await self._reply_to("launcher", _START_TIMEOUT_S)
            reply.check("the sandbox launcher cannot work here")
        except BaseException:
            await self.close()
            raise
        return self

    async def add_image(self, number: int, description: bytes) -> None:
        """Stages an image under a number. Raises `SandboxRefused`."""
        name = f"image-{number}"
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:  # noqa: ASYNC230 - memory, not a disk
                file.write(description)
            request = struct.pack("<I", _REQUEST_IMAGE) + text(name) + struct.pack("<I", number)
            reply = await self._ask(name, request, fd)
        finally:
            os.close(fd)
        reply.check("the image cannot be staged")

    async def create(self, order: CreateOrder, *, gone: "asyncio.Future[End]") -> Made:
        """Makes a sandbox.

        `gone` is done when it is reaped and its cgroups are removed or kept; also when none was
        made, and when the launcher has ended.

        Raises `SandboxRefused`. When cancelled half-way the sandbox ends by itself, because nobody
        holds its control socket.
        """
        self._gone[order.id] = gone
        try:
            await self._send(order.id, order.encode(), None)
        except BaseException:
            # Nobody has touched any of them.
            self._end(order.id, End(cgroups_kept=order.there, unused=order.unused))
            raise
        reply = await self._reply_to(order.id, _REQUEST_TIMEOUT_S)
        reply.check(f"sandbox {order.id} cannot be made")
        proxied = order.network.kind is NetworkKind.PROXY
        control, pidfd, *more = reply.all_fds(4 if proxied else 2)
        handed = None
        if more:
            listener, netlink = (socket.socket(fileno=fd) for fd in more)
            handed = Handed(listener=listener, netlink=netlink, errno=reply.errno, call=reply.step)
        return Made(control=socket.socket(fileno=control), pidfd=pidfd, handed=handed)

    @property
    def alive(self) -> bool:
        return not self.lost.done()

    def check_alive(self) -> None:
        """Raises `SandboxDied` when the process has ended."""
        if not self.alive:
            raise SandboxDied("the sandbox launcher has ended.", fix="open a new provider.")

    async def snapshot(self, number: int, sandbox_id: str) -> None:
        """Copies a sandbox's layer into snapshot `number`. Raises `SandboxError`."""
        name = f"snapshot-{number}"
        request = struct.pack("<I", _REQUEST_SNAPSHOT) + text(name)
        request += struct.pack("<I", number) + text(sandbox_id)
        reply = await self._ask(name, request, None, timeout_s=_WORKER_TIMEOUT_S)
        reply.check(f"sandbox {sandbox_id}: its files cannot be frozen")

    async def drop(self, number: int) -> bool:
        """Gives up snapshot `number`; False while it is still being made."""
        name = f"drop-{number}-{next(self._numbers)}"
        request = struct.pack("<I", _REQUEST_DROP) + text(name) + struct.pack("<I", number)
        reply = await self._ask(name, request, None)
        return reply.errno != errno.EBUSY

    async def changes(self, sandbox_id: str) -> bytes:
        """The records of what a sandbox changed (native/differences.h). Raises `SandboxError`."""
        name = f"compare-{sandbox_id}-{next(self._numbers)}"
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            request = struct.pack("<I", _REQUEST_COMPARE) + text(name) + text(sandbox_id)
            reply = await self._ask(name, request, fd, timeout_s=_WORKER_TIMEOUT_S)
            reply.check(f"sandbox {sandbox_id}: its changes cannot be listed")
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    async def close(self) -> None:
        """Ends the launcher and every sandbox of it; idempotent."""
        if not self.lost.done():
            self._lose()
        try:
            await asyncio.to_thread(self._process.wait, _EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _ask(
        self, id_: str, request: bytes, fd: int | None, *, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> Reply:
        await self._send(id_, request, fd)
        return await self._reply_to(id_, timeout_s)

    async def _send(self, id_: str, request: bytes, fd: int | None) -> None:
        """Sends a request; whatever is raised, it was not sent."""
        if len(request) > _REQUEST_BYTES_MAX:
            raise SandboxRefused(
                f"the request for {id_} has {len(request)} bytes, more than {_REQUEST_BYTES_MAX}.",
                fix="use fewer or shorter cgroup paths.",
            )
        fds = [] if fd is None else [fd]
        if not self._sending.locked() and self._sent(request, fds):
            return
        try:
            # The socket takes a few hundred messages; a full one means that the launcher is behind.
            async with self._sending, asyncio.timeout(_REQUEST_TIMEOUT_S):
                while not self._sent(request, fds):
                    await self._writable()
        except TimeoutError:
            raise SandboxError("the sandbox launcher does not take requests.") from None

    def _sent(self, request: bytes, fds: Sequence[int]) -> bool:
        """Sends it, or returns False when there is no room."""
        self.check_alive()
        try:
            socket.send_fds(self._socket, [request], fds)
        except BlockingIOError:
            return False
        except OSError as error:
            raise SandboxDied(f"the sandbox launcher has ended: {error.strerror}.") from None
        return True

    async def _writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        fileno = self._socket.fileno()
        self._loop.add_writer(fileno, _wake, ready)
        try:
            await asyncio.wait((ready, self.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.lost.done():  # else `_lose` has done it, and the number may be another's
                self._loop.remove_writer(fileno)

    async def _reply_to(self, id_: str, timeout_s: float) -> Reply:
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[id_] = reply
        try:
            async with asyncio.timeout(timeout_s):
                return await reply
        except BaseException as error:
            # The answer may have come in the same turn of the loop that cancelled the wait for it.
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                reply.result().drop()
            if isinstance(error, TimeoutError):
                raise SandboxError(f"the sandbox launcher did not answer for {id_}.") from None
            raise
        finally:
            self._waiting.pop(id_, None)

    def _on_readable(self) -> None:
        while not self.lost.done():
            try:
                data, fds = _receive(self._socket)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._lose()
                return
            self._take(_parse(data, fds))

    def _take(self, reply: Reply) -> None:
        if reply.kind == _REPLY_GONE:
            self._end(reply.id, End(oom_kills=reply.errno, cgroups_kept=reply.step == _KEPT))
            return
        if reply.kind == _REPLY_FAILED:
            self._end(reply.id, End())  # when it is of a sandbox: there is none
        waiting = self._waiting.get(reply.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
            return
        reply.drop()  # nobody wants it any more

    def _end(self, id_: str, end: End) -> None:
        gone = self._gone.pop(id_, None)
        if gone is not None and not gone.done():
            gone.set_result(end)

    def _lose(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self.lost.set_result(None)
        for id_ in tuple(self._gone):
            self._end(id_, End())
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(SandboxDied("the sandbox launcher has ended."))


def _receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    """One message. `socket.recv_fds` of Python 3.11 drops its flags, and the descriptors would be
    inherited by programs that this process starts."""
    fds = array.array("i")
    room = socket.CMSG_SPACE(_FDS_MAX * fds.itemsize)
    data, ancillary, _, _ = requests.recvmsg(_REPLY_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
    return data, fds.tolist()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _parse(data: bytes, fds: Sequence[int]) -> Reply:
    kind, errno, length = struct.unpack_from("<III", data)
    id_ = data[12 : 12 + length].decode()
    (step_length,) = struct.unpack_from("<I", data, 12 + length)
    step = data[16 + length : 16 + length + step_length].decode()
    return Reply(kind=kind, errno=errno, id=id_, step=step, fds=tuple(fds))
