"""Judging a solution by ordinary pytest files, run where the solution never is.

Each test file gets a tester run and a candidate run of its own. This process only passes their
messages on: requests from the tester, replies from the candidate, results from the tester. Which
tests there are is fixed beforehand with the reference; a test counts as passed for one explicit
pass of its id, and everything else, also silence, is a failure.

A tester never runs a solution's code, but it works on a solution's values, and those can be made to
take all its time or memory. So a tester that does not get through is not at once a fault of the
tests: see `Cut`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tiltyard.core.errors import GraderError, SandboxDied
from tiltyard.core.execution import Reason
from tiltyard.core.task import PytestSuite
from tiltyard.core.values import Value
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.sandbox.streams import ChannelClosed
from tiltyard.sandbox.zygotes import Run
from tiltyard.verify.crossing import HANG_GRACE_S, STATUS_OF, framed, words_of
from tiltyard.verify.evidence import plain
from tiltyard.verify.inside import codec
from tiltyard.verify.split.candidate import Candidate, Gone, raised_by

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
REQUESTS_MAX = 100_000
"""Of one file's tests to the solution: an endless iterator ends there at the latest."""
BUSY_SHARE_MIN = 0.2
"""Of its wall time, the CPU time that a tester must have used to count as busy with its values;
half of the time it may have waited for the solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A session that ended before its tests did.

    With a solution's values it is the solution's doing, if the tests do get through with the
    reference's; the verifier tries that before it decides.
    """

    status: CheckStatus
    evidence: str
    idle: bool = False
    """Whether it had time and did not use it: it waited for what a value told it to, or it was not
    given any CPU time. Once proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What the reference decides for all solutions, beside which tests there are."""

    names: tuple[str, ...] = ()
    """What `from solution import *` brings."""
    deciding: tuple[str, ...] = ()
    """In which tests an object of the solution decides what, as the tester puts it."""

    def joined(self, other: "Fixed") -> "Fixed":
        """Of two files of tests."""
        return Fixed(names=self.names or other.names, deciding=self.deciding + other.deciding)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What one test file's session said."""

    file: str
    collected: tuple[str, ...]
    results: Mapping[str, tuple[str, str]]
    """By test id: the tester's status, and what went wrong in words."""
    errors: str
    """What could not be collected; empty when everything was."""
    gone: Gone | None
    """How the candidate ended, when it ended before the tests did."""
    cut: Cut | None
    """How the session itself ended, when it ended before its tests did."""
    fixed: Fixed
    """As this run would have it; counts when it was the reference's."""


def test_files(suite: PytestSuite) -> tuple[str, ...]:
    """The files that hold tests; the others are their helpers."""
    return tuple(path for path in sorted(suite.files) if _holds_tests(path))


def _holds_tests(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


async def run_file(
    *,
    tester: Run,
    candidate: Candidate,
    module: str,
    source: bytes,
    file: str,
    suite: PytestSuite,
    fixed: Fixed | None,
    deadline_s: float,
    requests_max: int = REQUESTS_MAX,
) -> FileReport:
    """Runs one test file. Raises `SandboxDied` or `GraderError` when the fault is ours.

    `fixed` is None for the reference, which decides it.
    """
    gone: Gone | None = None
    candidate.ask(framed(("load", module, source)))
    loaded = await candidate.receive()
    if isinstance(loaded, Gone):
        gone = loaded
    elif loaded.kind != "loaded":
        why = f"while loading: {raised_by(loaded)}"
        gone = Gone(status=CheckStatus.EXCEPTION, evidence=why)
    files = dict[Value, Value](suite.files.items())
    given: Value = None
    if fixed is not None:
        given = (list[Value](fixed.names), list[Value](fixed.deciding))
    tester.send(framed(("run", module, file, files, suite.inplace, given)))
    used = Fixed()
    requests = 0
    results: dict[str, tuple[str, str]] = {}
    collected: tuple[str, ...] = ()
    errors = ""
    cut: Cut | None = None
    async for message in _messages(tester, deadline_s):
        match message:
            case Cut():
                cut = message
            case ("ask", bytes(request)):
                requests += 1
                if requests > requests_max:
                    words = f"more than {requests_max} requests from one file of tests"
                    gone = gone or Gone(status=CheckStatus.OUTPUT_LIMIT, evidence=words)
                gone = gone or await _pass_on(tester, candidate, request)
                if gone is not None:
                    tester.send(framed(("gone", gone.evidence)))
            case ("result", str(test_id), str(status), str(words)):
                results[test_id] = (status, plain(words, characters_max=1000))
            case ("end", list(ids), str(said), (names, list(deciding))):
                collected, errors = tuple(map(str, ids)), said
                star = names if isinstance(names, list) else []
                used = Fixed(names=tuple(map(str, star)), deciding=tuple(map(str, deciding)))
                break
            case _:
                raise GraderError(f"{file}: the tester said {message[:1]!r}")
    return FileReport(
        file=file,
        collected=collected,
        results=results,
        errors=errors,
        gone=gone,
        cut=cut,
        fixed=used,
    )


async def _pass_on(tester: Run, candidate: Candidate, request: bytes) -> Gone | None:
    """One request there and its reply back, neither looked into; or how the candidate ended."""
    candidate.ask(codec.frame(request))
    reply = await candidate.receive_encoded()
    if isinstance(reply, Gone):
        return reply
    tester.send(framed(("reply", reply)))
    return None


async def _messages(tester: Run, deadline_s: float) -> AsyncIterator[tuple[Value, ...] | Cut]:
    """What the tester says, until the caller has heard enough; a `Cut` is the last."""
    while True:
        try:
            async with asyncio.timeout(deadline_s + HANG_GRACE_S):
                length = int.from_bytes(await tester.channel.take(4), "little")
                if length > MESSAGE_BYTES_MAX:
                    raise GraderError(f"the tester sent a message of {length} bytes")
                message = codec.decode(await tester.channel.take(length))
        except ChannelClosed:
            yield await _cut(tester, deadline_s)
            return
        except TimeoutError:
            raise SandboxDied("a tester's sandbox does not keep its deadline") from None
        except codec.BadBytesError as error:
            raise GraderError(f"the tester broke its protocol: {error}") from None
        if not isinstance(message, tuple):
            raise GraderError("the tester broke its protocol")
        yield message


async def _cut(tester: Run, deadline_s: float) -> Cut:
    ending = await tester.end()
    status = STATUS_OF.get(ending.reason)
    idle = ending.reason is Reason.WALL_TIMEOUT and tester.cpu_s < deadline_s * BUSY_SHARE_MIN
    if status is None:
        raise SandboxDied(f"a tester's run was lost: {ending.reason} {ending.detail}")
    words = f"the tests did not get through: {words_of(ending, tester)}"
    return Cut(status=status, evidence=words, idle=idle)


def checks_of(expected: tuple[str, ...], reports: tuple[FileReport, ...]) -> tuple[Check, ...]:
    """One check per expected id, in order."""
    checks = {
        test_id: _check(test_id, status, words, report.gone)
        for report in reports
        for test_id, (status, words) in report.results.items()
    }
    by_file = {report.file: report for report in reports}
    return tuple(checks.get(test_id) or _silent(test_id, by_file) for test_id in expected)


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


def _silent(test_id: str, by_file: Mapping[str, FileReport]) -> Check:
    """A test that never reported, and why not, as far as that is known."""
    report = by_file.get(test_id.partition("::")[0])
    why = None if report is None else report.cut or report.gone
    if why is not None:
        return Check(id=test_id, status=why.status, evidence=why.evidence)
    if report is not None and report.errors:
        words = f"the tests cannot be collected: {plain(report.errors)}"
        return Check(id=test_id, status=CheckStatus.EXCEPTION, evidence=words)
    return Check(id=test_id, status=CheckStatus.NOT_RUN, evidence="it never reported")
