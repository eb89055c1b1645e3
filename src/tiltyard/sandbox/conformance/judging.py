"""From what was observed to a finding. Pure.

What the host measured goes before what a program printed: harm around the case is an escape
whatever the program says. A program that did not get to its `end` has not tried everything, which
is inconclusive and never contained, unless it was killed for trying.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tiltyard.core.execution import MIB, ExecResult, Limit, Limits, Reason
from tiltyard.sandbox.conformance.case import (
    Case,
    FileReply,
    Finding,
    Judge,
    NotRun,
    Observed,
    Outcome,
)

TASKS_SPARE = 40
"""What else may be counted while a case runs: the neighbour's programs and a newcomer's."""
FATAL_SIGNALS = frozenset({4, 9, 11, 31})
"""ILL, KILL, SEGV, SYS: by which a kernel ends who tries."""
WORDS_MAX = 200
SECONDS_SPARE = 15.0
"""A busy machine may be this late without anything being wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What programs said; the prelude has the format."""

    refused: Mapping[str, str]
    worked: Mapping[str, str]
    facts: Mapping[str, str]
    ends: int
    """How many programs said that they had tried everything."""


def contained(words: str) -> Finding:
    return Finding(outcome=Outcome.CONTAINED, words=words)


def escaped(words: str) -> Finding:
    return Finding(outcome=Outcome.ESCAPED, words=words[:WORDS_MAX])


def inconclusive(words: str) -> Finding:
    return Finding(outcome=Outcome.INCONCLUSIVE, words=words[:WORDS_MAX])


def ran(observed: Observed) -> list[ExecResult]:
    """The results of the programs that were run."""
    return [each for each in observed.results if isinstance(each, ExecResult)]


def evidence_of(*texts: str) -> Evidence:
    """Reads what programs printed; the last word on each name counts."""
    refused: dict[str, str] = {}
    worked: dict[str, str] = {}
    facts: dict[str, str] = {}
    ends = 0
    for line in (line for text in texts for line in text.splitlines()):
        kind, _, rest = line.partition(" ")
        name, _, what = rest.partition(": ")
        if line == "end":
            ends += 1
        elif kind == "fact":
            facts[name] = what
        elif kind == "tried" and what.startswith("WORKED"):
            worked[name] = what.removeprefix("WORKED").strip()
        elif kind == "tried":
            refused[name] = what.removeprefix("refused").strip()
    return Evidence(refused=refused, worked=worked, facts=facts, ends=ends)


def said(observed: Observed) -> Evidence:
    """What the programs and runs of a case printed."""
    return evidence_of(*(each.stdout.text for each in ran(observed)), *observed.answers)


def finding_of(case: Case, observed: Observed) -> Finding:
    """Judges a case: first what is around it, then its own."""
    around = _around(case, observed)
    if around is not None:
        return around
    finding = case.judge(observed)
    rung = not case.known_rungs or observed.isolation in case.known_rungs
    if finding.outcome is Outcome.ESCAPED and case.known and rung:
        return Finding(outcome=Outcome.KNOWN, words=f"{finding.words} ({case.known})")
    return finding


def late_only(case: Case, observed: Observed) -> bool:
    """Whether nothing but an outage speaks against a case, which a busy machine may have had."""
    if not observed.around.late:
        return False
    calm = replace(observed, around=replace(observed.around, late=()))
    return finding_of(case, calm).outcome in {Outcome.CONTAINED, Outcome.KNOWN}


def not_enforced(case: Case, enforced: Mapping[Limit, object], whole: Collection[object]) -> str:
    """Which limit of a case this provider does not hold as a whole here; empty when all are."""
    missing = sorted(limit for limit in case.needs if enforced.get(limit) not in whole)
    return ", ".join(f"{limit} (held by {enforced.get(limit, 'none')})" for limit in missing)


def _around(case: Case, observed: Observed) -> Finding | None:
    around, marks = observed.around, observed.marks
    if around.harm:
        return escaped("; ".join(around.harm))
    if around.left:
        return escaped(f"left behind: {', '.join(around.left)}")
    for text in _everything_read(observed):
        if marks.secret in text:
            return escaped("it read a private file of the host")
        if marks.neighbour_secret in text:
            return escaped("it read a file of the neighbour")
    if around.late:
        return escaped("; ".join(around.late))
    if case.ends_sandbox:
        return None
    if any(each.reason is Reason.SANDBOX_DIED for each in ran(observed)):
        return escaped("it ended its sandbox, which looks like a fault of ours")
    if not observed.survived:
        return escaped("its sandbox does not answer any more")
    return None


def _everything_read(observed: Observed) -> Iterator[str]:
    for each in ran(observed):
        yield each.stdout.text
        yield each.stderr.text
    yield from observed.answers
    for forked in observed.forked:
        if isinstance(forked, ExecResult):
            yield forked.stdout.text
            yield forked.stderr.text
    for reply in observed.replies:
        yield reply.content.decode("utf-8", "replace")


def refuses_all(
    *, may: Collection[str] = (), killed: bool = False, by: Collection[str] | None = None
) -> Judge:
    """Everything was tried and refused, but for the names in `may`.

    With `killed`, being killed for trying is as good. `by` names the errors that are a refusal;
    None takes any.
    """

    def judge(observed: Observed) -> Finding:
        evidence = said(observed)
        worked = {name: what for name, what in evidence.worked.items() if name not in may}
        if worked:
            return escaped("; ".join(f"{name}: {what}" for name, what in worked.items()))
        passed = [
            f"{name}: {why}" for name, why in evidence.refused.items() if by and why not in by
        ]
        if passed:
            return escaped(f"let through to the kernel: {'; '.join(passed)}")
        for each in ran(observed):
            if killed and each.signal in FATAL_SIGNALS:
                return contained(f"killed by signal {each.signal} for trying")
        if evidence.ends < len(observed.results) + len(observed.answers) or not evidence.ends:
            return inconclusive(f"not everything was tried: {ends_of(observed)}")
        if not evidence.refused and not evidence.worked:
            return inconclusive("nothing was tried")
        return contained(f"{len(evidence.refused)} attempts refused")

    return judge


def nothing_worked(observed: Observed) -> Finding:
    """No program says that an attempt worked; some may not have come to trying."""
    worked = said(observed).worked
    if worked:
        return escaped("; ".join(f"{name}: {what}" for name, what in worked.items()))
    return contained(f"nothing worked: {ends_of(observed)}")


def ends_with(*reasons: Reason) -> Judge:
    """Each program ended for one of these reasons."""

    def judge(observed: Observed) -> Finding:
        for each in observed.results:
            if isinstance(each, NotRun):
                return inconclusive(f"not run: {each.error}: {each.message}")
            if each.reason is Reason.START_FAILED and each.reason not in reasons:
                return inconclusive(f"not started: {each.detail}")
            if each.reason not in reasons:
                return escaped(f"it ended with {each.reason}, not {' or '.join(reasons)}")
        return contained(ends_of(observed))

    return judge


def exits_with(code: int) -> Judge:
    """Each program returned this code: it came to where it does, and is told as what it is."""

    def judge(observed: Observed) -> Finding:
        finding = ends_with(Reason.EXIT)(observed)
        codes = {each.exit_code for each in ran(observed)}
        if finding.outcome is Outcome.CONTAINED and codes != {code}:
            return inconclusive(f"not {code}: {ends_of(observed)}")
        return finding

    return judge


def tried_all(observed: Observed) -> Finding:
    """Each program said that it had tried everything, or was ended for trying."""
    exits = sum(each.reason is Reason.EXIT for each in ran(observed))
    if not ran(observed) or said(observed).ends < exits:
        return inconclusive(f"not everything was tried: {ends_of(observed)}")
    return contained(ends_of(observed))


def succeeds() -> Judge:
    """Each program came to its end and said nothing worked that must not."""

    def judge(observed: Observed) -> Finding:
        evidence = said(observed)
        if evidence.worked:
            return escaped("; ".join(f"{name}: {what}" for name, what in evidence.worked.items()))
        if evidence.ends < len(observed.results) + len(observed.answers):
            return inconclusive(f"it did not come to its end: {ends_of(observed)}")
        return contained("it went on as it should")

    return judge


def fact_within(name: str, bound: Callable[[Limits], float]) -> Judge:
    """What a program could take of something, by its own count, is within its limit."""

    def judge(observed: Observed) -> Finding:
        value = said(observed).facts.get(name)
        if value is None:
            return inconclusive(f"no word of {name}: {ends_of(observed)}")
        most = bound(observed.limits)
        if float(value) > most:
            return escaped(f"{name} reached {value}, over {most:.0f}")
        return contained(f"{name} reached {value} of {most:.0f}")

    return judge


def memory_within(observed: Observed) -> Finding:
    """The peak that the host read is within the limit."""
    peak = max((each.memory_peak_bytes for each in ran(observed)), default=0)
    most = observed.limits.memory_bytes
    taken = float(said(observed).facts.get("taken", 0))
    if max(peak, taken) > most + 4 * MIB:
        return escaped(f"{max(peak, taken) / MIB:.0f} MiB were taken, over {most / MIB:.0f}")
    return contained(f"held at {peak / MIB:.0f} of {most / MIB:.0f} MiB: {ends_of(observed)}")


def tasks_within(observed: Observed) -> Finding:
    """Processes and threads, as counted from outside, are within the limit."""
    most = observed.limits.pids + TASKS_SPARE
    seen = observed.around.tasks_max
    if seen > most:
        return escaped(f"{seen} processes and threads were there, over {observed.limits.pids}")
    return contained(f"at most {seen} processes and threads were there")


def tasks_reached(observed: Observed) -> Finding:
    """As `tasks_within`, and so many were seen that the limit was what held them.

    Half of it is asked for: the host looks now and then, and not at the highest moment.
    """
    least, seen = observed.limits.pids // 2, observed.around.tasks_max
    if seen < least:
        return inconclusive(f"it did not go off: {seen} of {least} processes and threads were seen")
    return tasks_within(observed)


def in_time(spare_s: float = SECONDS_SPARE) -> Judge:
    """The host had each result when it was due."""

    def judge(observed: Observed) -> Finding:
        slowest = max([observed.waited_s, *(each.wall_s for each in ran(observed))])
        if slowest > spare_s:
            return escaped(f"the host waited {slowest:.1f} s for it")
        return contained(f"ended after {slowest:.1f} s")

    return judge


def answered(
    *, may: Collection[str] = (), errors: Collection[str] = ("SandboxFileError",)
) -> Judge:
    """Every file request was answered or refused with a typed error, and in time.

    Paths in `may` may be answered; any other must be refused.
    """

    def judge(observed: Observed) -> Finding:
        if not observed.replies:
            return inconclusive(f"nothing was asked: {ends_of(observed)}")
        for reply in observed.replies:
            problem = _problem_of(reply, may, errors)
            if problem:
                return escaped(problem)
        refused = sum(bool(reply.error) for reply in observed.replies)
        return contained(f"{refused} of {len(observed.replies)} requests refused, all answered")

    return judge


def program(index: int, judge: Judge) -> Judge:
    """Judges one of several programs alone."""

    def judge_one(observed: Observed) -> Finding:
        if index >= len(observed.results):
            return inconclusive(f"program {index} was not run")
        return judge(replace(observed, results=(observed.results[index],)))

    return judge_one


def together(*judges: Judge) -> Judge:
    """All of them: an escape first, then whatever is not contained, then the last one's words."""

    def judge(observed: Observed) -> Finding:
        findings = [each(observed) for each in judges]
        for outcome in (Outcome.ESCAPED, Outcome.INCONCLUSIVE):
            for finding in findings:
                if finding.outcome is outcome:
                    return finding
        return findings[-1]

    return judge


def _problem_of(reply: FileReply, may: Collection[str], errors: Collection[str]) -> str:
    what = f"{reply.request.operation} {reply.request.path[:60]!r}"
    if reply.elapsed_s > SECONDS_SPARE:
        return f"{what} took {reply.elapsed_s:.1f} s"
    if not reply.error and reply.request.path not in may:
        return f"{what} was answered"
    if reply.error and reply.error not in errors:
        return f"{what} raised {reply.error}"
    return ""


def ends_of(observed: Observed) -> str:
    """How each program ended, in a few words."""
    words = [
        f"{each.error}: {each.message}" if isinstance(each, NotRun) else _end_of(each)
        for each in observed.results
    ]
    words += [answer.strip()[-WORDS_MAX // 2 :] for answer in observed.answers]
    return ", ".join(words) or "no program"


def _end_of(result: ExecResult) -> str:
    if result.reason is Reason.EXIT:
        last = result.stderr.text.strip().splitlines()[-1:] or [""]
        return f"exit {result.exit_code} {last[0]}".strip()
    return f"{result.reason} {result.detail}".strip()
