"""The trusted end of a candidate's channel: requests out, decoded replies in."""

import asyncio
from collections import deque
from dataclasses import dataclass

from tiltyard.core.errors import SandboxDied
from tiltyard.core.execution import MIB
from tiltyard.core.values import Value
from tiltyard.core.verdict import CheckStatus
from tiltyard.sandbox.streams import ChannelClosed
from tiltyard.sandbox.zygotes import Run
from tiltyard.verify.crossing import (
    END_GRACE_S,
    HANG_GRACE_S,
    STATUS_OF,
    beside_the_loop,
    words_of,
)
from tiltyard.verify.evidence import plain
from tiltyard.verify.inside import codec

REPLY_BYTES_MAX = codec.BYTES_MAX - 65_536
"""Less than a message has: a reply is passed on to the tests inside one."""
AHEAD_BYTES_MAX = 4 * MIB
"""Requests that may wait in a run's input; the supervisor ends a run at 16 MiB unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The candidate ended before it answered. Its own doing, as the trusted side saw it."""

    status: CheckStatus
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a candidate answered to one request: exact builtins, and hostile."""

    kind: str
    rest: tuple[Value, ...]
    size_bytes: int


class Candidate:
    """A solution in its own run. Replies come in the order of the requests."""

    def __init__(self, run: Run, *, deadline_s: float) -> None:
        self._run = run
        self._deadline_s = deadline_s
        self._later: deque[bytes] = deque()
        self._ahead: deque[int] = deque()
        self._ahead_bytes = 0

    def ask(self, *frames: bytes) -> None:
        """Asks in order what `framed` made. Goes ahead of the replies as far as there is room."""
        self._later.extend(frames)
        self._send_ahead()

    def _send_ahead(self) -> None:
        batch: list[bytes] = []
        while self._later:
            size = len(self._later[0])
            if self._ahead and self._ahead_bytes + size > AHEAD_BYTES_MAX:
                break
            batch.append(self._later.popleft())
            self._ahead.append(size)
            self._ahead_bytes += size
        if batch:
            self._run.send(b"".join(batch))

    async def receive_encoded(self) -> bytes | Gone:
        """The next reply as bytes, not looked at. Raises `SandboxDied` when the fault is ours."""
        # Mostly it has come already, together with others.
        payload = self._run.channel.take_framed()
        if payload is None:
            try:
                async with asyncio.timeout(self._deadline_s + HANG_GRACE_S):
                    length = int.from_bytes(await self._run.channel.take(4), "little")
                    if length > REPLY_BYTES_MAX:
                        return _too_large(length)
                    payload = await self._run.channel.take(length)
            except ChannelClosed:
                return await self._why_gone()
            except TimeoutError:
                raise SandboxDied("a candidate's sandbox does not keep its deadline") from None
        if len(payload) > REPLY_BYTES_MAX:
            return _too_large(len(payload))
        # A reply that nobody asked for yet makes no room; it only gets ahead of itself.
        if self._ahead:
            self._ahead_bytes -= self._ahead.popleft()
        self._send_ahead()
        return payload

    async def receive(self) -> Reply | Gone:
        """The next reply, decoded. A reply that is no tuple of the protocol is a forged one."""
        payload = await self.receive_encoded()
        if isinstance(payload, Gone):
            return payload
        try:
            value = await beside_the_loop(len(payload), codec.decode, payload)
        except codec.BadBytesError as error:
            return Gone(
                status=CheckStatus.BAD_VALUE_TYPE, evidence=f"an undecodable reply: {error}"
            )
        if type(value) is not tuple or not value or type(value[0]) is not str:
            return Gone(status=CheckStatus.BAD_VALUE_TYPE, evidence="a reply outside the protocol")
        return Reply(kind=value[0], rest=value[1:], size_bytes=len(payload))

    async def _why_gone(self) -> Gone:
        # Mostly it is dying already, and how tells us why. It may also have closed the channel and
        # lived on: what it does then is of no interest.
        ending = await self._run.end(grace_s=END_GRACE_S)
        if ending.reason not in STATUS_OF:
            raise SandboxDied(f"a candidate's run was lost: {ending.reason} {ending.detail}")
        return Gone(status=STATUS_OF[ending.reason], evidence=words_of(ending, self._run))


def _too_large(length: int) -> Gone:
    return Gone(status=CheckStatus.OUTPUT_LIMIT, evidence=f"a reply of {length} bytes")


def first_name(reply: Reply) -> str:
    """The class of the exception that a reply tells of, or the builtin one nearest to it."""
    names = reply.rest[0] if reply.rest else None
    name = names[0] if isinstance(names, list) and names else None
    return plain(name) if isinstance(name, str) else "?"


def text_at(reply: Reply, index: int) -> str:
    """A text of a reply, for evidence; empty where there is none."""
    value = reply.rest[index] if len(reply.rest) > index else ""
    return plain(value) if isinstance(value, str) else ""


def raised_by(reply: Reply) -> str:
    """The exception that a reply tells of, in words."""
    return f"{first_name(reply)}: {text_at(reply, 1)}"


def words_of_reply(reply: Reply | Gone) -> str:
    """What a reply says, in words for evidence."""
    if isinstance(reply, Gone):
        return reply.evidence
    if reply.kind == "raised":
        return f"raised {raised_by(reply)}"
    return plain(" ".join(str(each) for each in (reply.kind, *reply.rest[:2])))
