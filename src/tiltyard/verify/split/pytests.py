"""Judging a solution by ordinary pytest files, run where the solution never is.

Each test file gets a tester run and a candidate run of its own. This process only passes their
messages on: requests from the tester, replies from the candidate, results from the tester. Which
tests there are is fixed beforehand with the reference; a test counts as passed for one explicit
pass of its id, and everything else, also silence, is a failure.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tiltyard.core.errors import GraderError
from tiltyard.core.task import PytestSuite
from tiltyard.core.values import Value
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.sandbox.streams import ChannelClosed
from tiltyard.sandbox.zygotes import Run
from tiltyard.verify.split.candidate import HANG_GRACE_S, Candidate, Gone
from tiltyard.verify.split.inside import codec

MESSAGE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What one test file's session said."""

    collected: tuple[str, ...]
    results: Mapping[str, tuple[str, str]]
    """By test id: the tester's status, and what went wrong in words."""
    errors: str
    """What could not be collected; empty when everything was."""
    gone: Gone | None
    """How the candidate ended, when it ended before the tests did."""


def test_files(suite: PytestSuite) -> tuple[str, ...]:
    """The files that hold tests; the others are their helpers."""
    return tuple(
        name
        for name in sorted(suite.files)
        if name.startswith("test_") or name.endswith("_test.py")
    )


async def run_file(
    *,
    tester: Run,
    candidate: Candidate,
    module: str,
    source: bytes,
    file: str,
    suite: PytestSuite,
    deadline_s: float,
) -> FileReport:
    """Runs one test file. Raises `SandboxDied` or `GraderError` when the fault is ours."""
    gone: Gone | None = None
    candidate.send(("load", module, source))
    loaded = await candidate.receive()
    if isinstance(loaded, Gone):
        gone = loaded
    elif loaded[0] != "loaded":
        gone = Gone(status=CheckStatus.EXCEPTION, evidence=f"while loading: {loaded[1:]}")
    tester.send(codec.frame(codec.encode(("run", module, file, dict(suite.files)))))
    results: dict[str, tuple[str, str]] = {}
    async for message in _messages(tester, deadline_s):
        match message:
            case ("ask", bytes(request)):
                gone = gone or await _pass_on(tester, candidate, request)
                if gone is not None:
                    tester.send(codec.frame(codec.encode(("gone", gone.evidence))))
            case ("result", str(test_id), str(status), str(words)):
                results[test_id] = (status, words)
            case ("end", list(collected), str(errors)):
                ids = tuple(str(each) for each in collected)
                return FileReport(collected=ids, results=results, errors=errors, gone=gone)
            case _:
                raise GraderError(f"{file}: the tester said {message[0]!r}")
    raise GraderError(f"{file}: the tester ended early")


async def _pass_on(tester: Run, candidate: Candidate, request: bytes) -> Gone | None:
    """One request there and its reply back, neither looked into; or how the candidate ended."""
    candidate.send_encoded(request)
    reply = await candidate.receive_encoded()
    if isinstance(reply, Gone):
        return reply
    tester.send(codec.frame(codec.encode(("reply", reply))))
    return None


async def _messages(tester: Run, deadline_s: float) -> AsyncIterator[tuple[Value, ...]]:
    while True:
        try:
            async with asyncio.timeout(deadline_s + HANG_GRACE_S):
                length = int.from_bytes(await tester.channel.take(4), "little")
                if length > MESSAGE_BYTES_MAX:
                    raise GraderError(f"the tester sent a message of {length} bytes")
                message = codec.decode(await tester.channel.take(length))
        except (ChannelClosed, TimeoutError):
            ending = await tester.end()
            last = tester.stderr.result().text[-500:]
            raise GraderError(f"the tests' own process ended: {ending.reason}. {last}") from None
        if not isinstance(message, tuple):
            raise GraderError("the tester broke its protocol")
        yield message


def checks_of(expected: tuple[str, ...], reports: tuple[FileReport, ...]) -> tuple[Check, ...]:
    """One check per expected id, in order."""
    checks = {
        test_id: _check(test_id, status, words, report.gone)
        for report in reports
        for test_id, (status, words) in report.results.items()
    }
    silent = "it never reported"
    return tuple(
        checks.get(test_id) or Check(id=test_id, status=CheckStatus.NOT_RUN, evidence=silent)
        for test_id in expected
    )


def _check(test_id: str, status: str, words: str, gone: Gone | None) -> Check:
    match status:
        case "passed":
            return Check(id=test_id, status=CheckStatus.PASSED)
        case "gone" if gone is not None:
            return Check(id=test_id, status=gone.status, evidence=gone.evidence)
        case "wrong":
            return Check(id=test_id, status=CheckStatus.WRONG_ANSWER, evidence=words)
        case _:
            return Check(id=test_id, status=CheckStatus.EXCEPTION, evidence=words)
