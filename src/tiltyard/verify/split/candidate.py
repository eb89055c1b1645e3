"""The trusted end of a candidate's channel: requests out, decoded replies in."""

import asyncio
from dataclasses import dataclass

from tiltyard.core.errors import SandboxDied
from tiltyard.core.execution import Reason
from tiltyard.core.values import Value
from tiltyard.core.verdict import CheckStatus
from tiltyard.sandbox.ending import Ending
from tiltyard.sandbox.streams import ChannelClosed
from tiltyard.sandbox.zygotes import Run
from tiltyard.verify.split.inside import codec

REPLY_BYTES_MAX = codec.BYTES_MAX + 65_536
HANG_GRACE_S = 5.0
"""After a run's own deadline; past this the sandbox, not the solution, is at fault."""

END_GRACE_S = 2.0

_STATUS = {
    Reason.EXIT: CheckStatus.NO_REPLY,
    Reason.KILLED: CheckStatus.NO_REPLY,
    Reason.SIGNAL: CheckStatus.CRASH,
    Reason.WALL_TIMEOUT: CheckStatus.TIMEOUT,
    Reason.CPU_TIMEOUT: CheckStatus.TIMEOUT,
    Reason.OOM: CheckStatus.OOM,
    Reason.OUTPUT: CheckStatus.OUTPUT_LIMIT,
    Reason.DISK: CheckStatus.NO_REPLY,
    Reason.PIDS: CheckStatus.NO_REPLY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The candidate ended before it answered. Its own doing, as the trusted side saw it."""

    status: CheckStatus
    evidence: str


class Candidate:
    """A solution in its own run. Requests may be sent ahead; replies come in their order."""

    def __init__(self, run: Run, *, deadline_s: float) -> None:
        self._run = run
        self._deadline_s = deadline_s

    def send(self, *requests: Value) -> None:
        """Sends requests in order, in one go."""
        self._run.send(b"".join(codec.frame(codec.encode(request)) for request in requests))

    def send_encoded(self, request: bytes) -> None:
        self._run.send(codec.frame(request))

    async def receive_encoded(self) -> bytes | Gone:
        """The next reply as bytes, not looked at. Raises `SandboxDied` when the fault is ours."""
        try:
            async with asyncio.timeout(self._deadline_s + HANG_GRACE_S):
                length = int.from_bytes(await self._run.channel.take(4), "little")
                if length > REPLY_BYTES_MAX:
                    return Gone(
                        status=CheckStatus.OUTPUT_LIMIT, evidence=f"a reply of {length} bytes"
                    )
                return await self._run.channel.take(length)
        except ChannelClosed:
            return await self._why_gone()
        except TimeoutError:
            raise SandboxDied("a candidate's sandbox does not keep its deadline") from None

    async def receive(self) -> tuple[Value, ...] | Gone:
        """The next reply, decoded. A reply that is no tuple of the protocol is a forged one."""
        payload = await self.receive_encoded()
        if isinstance(payload, Gone):
            return payload
        try:
            reply = codec.decode(payload)
        except codec.BadBytesError as error:
            return Gone(
                status=CheckStatus.BAD_VALUE_TYPE, evidence=f"an undecodable reply: {error}"
            )
        if type(reply) is not tuple or not reply or type(reply[0]) is not str:
            return Gone(status=CheckStatus.BAD_VALUE_TYPE, evidence="a reply outside the protocol")
        return reply

    async def _why_gone(self) -> Gone:
        # Mostly it is dying already, and how tells us why. It may also have closed the channel and
        # lived on: what it does then is of no interest.
        ending = await self._run.end(grace_s=END_GRACE_S)
        if ending.reason not in _STATUS:
            raise SandboxDied(f"a candidate's run was lost: {ending.reason} {ending.detail}")
        return Gone(status=_STATUS[ending.reason], evidence=_words(ending, self._run))


def _words(ending: Ending, run: Run) -> str:
    ended = {
        Reason.SIGNAL: f"ended by signal {ending.signal}",
        Reason.EXIT: f"exited with code {ending.exit_code} without an answer",
    }.get(ending.reason, f"ended: {ending.reason}")
    last = run.stderr.result().text.strip()[-300:]
    return f"{ended}; last output: {last}" if last else ended
