"""Judging a solution by plain calls: ask, decode, compare. What is expected never leaves."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial

from tiltyard.core.task import CallCase, CallSuite, Compare
from tiltyard.core.values import Value
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.verify.compare import accepted, same
from tiltyard.verify.crossing import beside_the_loop, framed
from tiltyard.verify.evidence import shown
from tiltyard.verify.split.candidate import Candidate, Gone, Reply, first_name, raised_by, text_at

SUITES_KEPT_MAX = 256
SUITE_KEPT_BYTES_MAX = 256 * 1024
"""A larger suite is encoded anew each time; running it costs more."""


class EncodedSuites:
    """The encoded requests of the suites judged last: a group's answers all meet the same one."""

    def __init__(self) -> None:
        # By identity, because a suite's arguments are mutable and have no hash; holding the suite
        # keeps its identity from being another one's.
        self._kept: OrderedDict[int, tuple[CallSuite, tuple[bytes, ...]]] = OrderedDict()

    def of(self, suite: CallSuite) -> tuple[bytes, ...]:
        """Raises `codec.BadValueError` for a case whose values cannot cross."""
        kept = self._kept.get(id(suite))
        if kept is not None:
            self._kept.move_to_end(id(suite))
            return kept[1]
        requests = requests_of(suite)
        if sum(map(len, requests)) <= SUITE_KEPT_BYTES_MAX:
            self._kept[id(suite)] = (suite, requests)
            if len(self._kept) > SUITES_KEPT_MAX:
                self._kept.popitem(last=False)
        return requests


def requests_of(suite: CallSuite) -> tuple[bytes, ...]:
    """All calls of a suite, framed. Raises `codec.BadValueError` where arguments cannot cross."""
    return tuple(map(framed, _requests(suite)))


async def judge_calls(
    candidate: Candidate,
    *,
    module: str,
    source: bytes,
    suite: CallSuite,
    requests: tuple[bytes, ...],
) -> tuple[Check, ...]:
    """Runs every case; returns one check for each, in the suite's order.

    `requests` are the suite's. They are sent ahead, since none depends on an earlier answer: the
    solution sees inputs only. Raises `SandboxDied` when the fault is ours.
    """
    candidate.ask(framed(("load", module, source)), *requests)
    loaded = await candidate.receive()
    if isinstance(loaded, Gone):
        return _not_run(suite.cases, loaded.status, f"while loading: {loaded.evidence}")
    if loaded.kind != "loaded":
        return _not_run(suite.cases, CheckStatus.EXCEPTION, f"while loading: {raised_by(loaded)}")
    checks: list[Check] = []
    for case in suite.cases:
        replies: list[Reply] = []
        for _ in range(1 + len(case.then)):
            reply = await candidate.receive()
            if isinstance(reply, Gone):
                left = suite.cases[len(checks) :]
                return (*checks, *_not_run(left, reply.status, reply.evidence))
            replies.append(reply)
        judge = partial(_check, case, tolerance=suite.float_tolerance)
        size = sum(reply.size_bytes for reply in replies)
        checks.append(await beside_the_loop(size, judge, replies))
        # Replies that came together are worked off without waiting: let others have their turn.
        await asyncio.sleep(0)
    return tuple(checks)


def _requests(suite: CallSuite) -> Iterator[Value]:
    for number, case in enumerate(suite.cases, start=1):
        keep = number if case.then else 0
        yield ("call", 0, case.target, case.args, {}, keep, case.arguments_kept)
        for call in case.then:
            yield ("call", number, call.name, call.args, {}, 0, False)


def _not_run(cases: tuple[CallCase, ...], status: CheckStatus, why: str) -> tuple[Check, ...]:
    """The first of the cases met the end; those after it never ran."""
    if not cases:
        return ()
    statuses = (status, *(CheckStatus.NOT_RUN for _ in cases[1:]))
    return tuple(
        Check(id=case.id, status=each, evidence=why, weight=case.weight)
        for case, each in zip(cases, statuses, strict=True)
    )


def _check(case: CallCase, replies: list[Reply], *, tolerance: float) -> Check:
    status, evidence = _judge(case, replies, tolerance=tolerance)
    return Check(id=case.id, status=status, evidence=evidence, weight=case.weight)


def _judge(case: CallCase, replies: list[Reply], *, tolerance: float) -> tuple[CheckStatus, str]:
    for reply in replies:
        if reply.kind == "bad":
            size = text_at(reply, 0) == "size"
            status = CheckStatus.OUTPUT_LIMIT if size else CheckStatus.BAD_VALUE_TYPE
            return status, f"{_called(case)} gave {text_at(reply, 1)}"
    *before, last = replies
    for reply in (*before, *(() if case.raises else (last,))):
        if reply.kind == "raised":
            return CheckStatus.EXCEPTION, f"{_called(case)} raised {raised_by(reply)}"
    if not case.raises:
        return _judge_values(case, replies, tolerance=tolerance)
    if last.kind == "raised" and first_name(last) == case.raises:
        arguments = (last if len(replies) == 1 else replies[0]).rest[-1]
        if case.arguments_kept and not same(case.args, _tuple(arguments), tolerance=tolerance):
            changed = f"{_called(case)} changed its arguments to {shown(arguments)}"
            return CheckStatus.WRONG_ANSWER, changed
        return CheckStatus.PASSED, ""
    got = raised_by(last) if last.kind == "raised" else "nothing"
    return CheckStatus.WRONG_ANSWER, f"{_called(case)} raised {got}, expected {case.raises}"


def _judge_values(
    case: CallCase, replies: list[Reply], *, tolerance: float
) -> tuple[CheckStatus, str]:
    made, answers = (replies[:1], replies[1:]) if case.then else ([], replies)
    kinds = ["kept"] * len(made) + ["value"] * len(answers)
    if [reply.kind for reply in replies] != kinds or any(len(each.rest) != 2 for each in replies):
        return CheckStatus.BAD_VALUE_TYPE, f"{_called(case)}: a reply outside the protocol"
    values = [reply.rest[0] for reply in answers]
    got: Value = values if case.then else values[0]
    if not accepted(case.compare, case.expected, got, tolerance=tolerance):
        how = {Compare.UNORDERED: " in any order", Compare.ANY_OF: ", one of them"}
        expected = f"{shown(case.expected)}{how.get(case.compare, '')}"
        return CheckStatus.WRONG_ANSWER, f"{_called(case)} gave {shown(got)}, expected {expected}"
    arguments = replies[0].rest[1]
    if case.arguments_kept and not same(case.args, _tuple(arguments), tolerance=tolerance):
        changed = f"{_called(case)} changed its arguments to {shown(arguments)}"
        return CheckStatus.WRONG_ANSWER, changed
    return CheckStatus.PASSED, ""


def _tuple(value: Value) -> Value:
    """Arguments may come back as a list; their own types are compared, not the holder's."""
    return tuple(value) if isinstance(value, list) else value


def _called(case: CallCase) -> str:
    arguments = ", ".join(map(shown, case.args))
    steps = "".join(f".{call.name}(...)" for call in case.then[:3])
    return f"{case.target}({arguments}){steps}"
