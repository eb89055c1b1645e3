"""One run of a project's tests, heard by the trusted side.

The project shares the tests' process, so whatever comes over the channel may be its word. Nothing
of it is an error of ours; what it is worth is decided with the plan (`mode.py`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
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
    framed,
    words_of,
)
from tiltyard.verify.evidence import plain
from tiltyard.verify.inside import codec

MESSAGE_BYTES_MAX = 4 * MIB
MESSAGES_SPARE = 20_000
"""Copies with many parameters say more than the tests do."""
AT_ONCE_MAX = 256
"""Messages that are read before the event loop has its turn."""
WORDS_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended that did not come to its end."""

    status: CheckStatus
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was heard of one run."""

    results: Mapping[str, list[tuple[str, str]]]
    """By id in the run, each status and words that were said of it."""
    collected: tuple[str, ...] = ()
    errors: str = ""
    """What could not be collected; empty when everything was."""
    ended: Ended | None = None
    """Set when it ended before its tests did."""
    forged: str = ""
    """What was said that the runner never says."""
    cpu_s: float = 0.0

    def passed(self, run_id: str) -> bool:
        """Whether passes were said of it, and nothing else."""
        said = self.results.get(run_id, [])
        return bool(said) and all(status == "passed" for status, _ in said)


def request_of(
    files: Mapping[str, bytes], chosen: tuple[str, ...], places: tuple[str, ...]
) -> bytes:
    """The order to run `chosen` in a tree of these files."""
    order: tuple[Value, ...] = (
        "run",
        tuple(files),
        tuple(map(len, files.values())),
        chosen,
        places,
    )
    return framed(order) + b"".join(files.values())


async def run_tests(run: Run, request: bytes, *, tests: int, deadline_s: float) -> Report:
    """Runs them and listens. Raises `SandboxDied` when the fault is ours."""
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    collected: tuple[str, ...] = ()
    errors = forged = ""
    ended: Ended | None = None
    run.send(request)
    for number in range(tests + MESSAGES_SPARE):
        if number % AT_ONCE_MAX == 0:
            await asyncio.sleep(0)
        match await _message(run, deadline_s):
            case Ended() as ended:
                break
            case ("result", str(test_id), str(status), str(words)):
                said = plain(words, characters_max=WORDS_CHARACTERS_MAX)
                results[test_id].append((status, said))
            case ("end", list(ids), str(said)):
                collected, errors = tuple(map(str, ids)), said
                break
            case _:
                forged = "sent what no test run sends"
                break
    else:
        forged = "sent more results than there are tests"
    if ended is None:
        await run.end()
    return Report(
        results=results,
        collected=collected,
        errors=plain(errors, characters_max=WORDS_CHARACTERS_MAX),
        ended=ended,
        forged=forged,
        cpu_s=run.cpu_s,
    )


async def _message(run: Run, deadline_s: float) -> object:
    """The next message, decoded, or how the run ended; None for what is no message."""
    payload = run.channel.take_framed()
    if payload is None:
        try:
            async with asyncio.timeout(deadline_s + HANG_GRACE_S):
                length = int.from_bytes(await run.channel.take(4), "little")
                if length > MESSAGE_BYTES_MAX:
                    return None
                payload = await run.channel.take(length)
        except ChannelClosed:
            return await _ended(run)
        except TimeoutError:
            raise SandboxDied("a test run's sandbox does not keep its deadline") from None
    if len(payload) > MESSAGE_BYTES_MAX:
        return None
    try:
        return await beside_the_loop(len(payload), codec.decode, payload)
    except codec.BadBytesError:
        return None


async def _ended(run: Run) -> Ended:
    # A project may also close the channel and live on: what it does then is of no interest.
    ending = await run.end(grace_s=END_GRACE_S)
    if ending.reason not in STATUS_OF:
        raise SandboxDied(f"a test run was lost: {ending.reason} {ending.detail}")
    return Ended(status=STATUS_OF[ending.reason], evidence=words_of(ending, run))
