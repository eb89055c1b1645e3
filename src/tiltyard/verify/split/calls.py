"""Judging a solution by plain calls: ask, decode, compare. What is expected never leaves."""

from collections.abc import Iterator

from tiltyard.core.task import CallCase, CallSuite
from tiltyard.core.values import Value
from tiltyard.core.verdict import Check, CheckStatus
from tiltyard.verify.compare import same, shown
from tiltyard.verify.split.candidate import Candidate, Gone

_Reply = tuple[Value, ...]


async def judge_calls(
    candidate: Candidate, *, module: str, source: bytes, suite: CallSuite
) -> tuple[Check, ...]:
    """Runs every case; returns one check for each, in the suite's order.

    All requests are sent ahead, since none depends on an earlier answer: the solution sees inputs
    only. Raises `SandboxDied` when the fault is ours.
    """
    candidate.send(("load", module, source), *_requests(suite))
    loaded = await candidate.receive()
    if isinstance(loaded, Gone):
        return _not_run(suite.cases, loaded.status, f"while loading: {loaded.evidence}")
    if loaded[0] != "loaded":
        return _not_run(suite.cases, CheckStatus.EXCEPTION, f"while loading: {_raised(loaded)}")
    checks: list[Check] = []
    for case in suite.cases:
        replies: list[_Reply] = []
        for _ in range(1 + len(case.then)):
            reply = await candidate.receive()
            if isinstance(reply, Gone):
                left = suite.cases[len(checks) :]
                return (*checks, *_not_run(left, reply.status, reply.evidence))
            replies.append(reply)
        checks.append(_check(case, replies, tolerance=suite.float_tolerance))
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
    met = Check(id=cases[0].id, status=status, evidence=why)
    rest = (Check(id=case.id, status=CheckStatus.NOT_RUN, evidence=why) for case in cases[1:])
    return (met, *rest)


def _check(case: CallCase, replies: list[_Reply], *, tolerance: float) -> Check:
    status, evidence = _judge(case, replies, tolerance=tolerance)
    return Check(id=case.id, status=status, evidence=evidence)


def _judge(case: CallCase, replies: list[_Reply], *, tolerance: float) -> tuple[CheckStatus, str]:
    called = _call_text(case)
    for reply in replies:
        if reply[0] == "bad":
            size = len(reply) > 1 and reply[1] == "size"
            status = CheckStatus.OUTPUT_LIMIT if size else CheckStatus.BAD_VALUE_TYPE
            return status, f"{called} gave {_words(reply, 2)}"
    *before, last = replies
    for reply in (*before, *(() if case.raises else (last,))):
        if reply[0] == "raised":
            return CheckStatus.EXCEPTION, f"{called} raised {_raised(reply)}"
    if case.raises:
        if last[0] == "raised" and _first_name(last) == case.raises:
            return CheckStatus.PASSED, ""
        got = _raised(last) if last[0] == "raised" else "nothing"
        return CheckStatus.WRONG_ANSWER, f"{called} raised {got}, expected {case.raises}"
    return _judge_values(case, replies, called, tolerance=tolerance)


def _judge_values(
    case: CallCase, replies: list[_Reply], called: str, *, tolerance: float
) -> tuple[CheckStatus, str]:
    answers = replies[1:] if case.then else replies
    if case.then and replies[0][0] != "kept":
        return CheckStatus.BAD_VALUE_TYPE, f"{called}: a reply outside the protocol"
    if any(reply[0] != "value" or len(reply) != 3 for reply in answers):
        return CheckStatus.BAD_VALUE_TYPE, f"{called}: a reply outside the protocol"
    values = [reply[1] for reply in answers]
    got: Value = values if case.then else values[0]
    if not same(case.expected, got, tolerance=tolerance):
        return (
            CheckStatus.WRONG_ANSWER,
            f"{called} gave {shown(got)}, expected {shown(case.expected)}",
        )
    if case.arguments_kept and not same(case.args, _tuple(answers[0][2]), tolerance=tolerance):
        return (
            CheckStatus.WRONG_ANSWER,
            f"{called} changed its arguments to {shown(answers[0][2])}",
        )
    return CheckStatus.PASSED, ""


def _tuple(value: Value) -> Value:
    """Arguments may come back as a list; their own types are compared, not the holder's."""
    return tuple(value) if isinstance(value, list) else value


def _call_text(case: CallCase) -> str:
    arguments = ", ".join(map(shown, case.args))
    steps = "".join(f".{call.name}(...)" for call in case.then[:3])
    return f"{case.target}({arguments}){steps}"


def _raised(reply: _Reply) -> str:
    return f"{_first_name(reply)}: {_words(reply, 2)}"


def _first_name(reply: _Reply) -> str:
    names = reply[1] if len(reply) > 1 else None
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else "?"


def _words(reply: _Reply, index: int) -> str:
    value = reply[index] if len(reply) > index else ""
    return value[:300] if isinstance(value, str) else ""
