"""Lets cases loose, one at a time, and looks at everything around.

One at a time, because then what happens to the host or to the neighbour has one cause. Everything
that was made for a case is closed with it, whatever became of it, and only then is what is left
counted. A case against which nothing but an outage speaks is let loose once more.
"""

import asyncio
from collections.abc import Callable, Iterable

from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import Enforcement
from tiltyard.sandbox.conformance.attack import Attack, Subject
from tiltyard.sandbox.conformance.boxes import NotOffered
from tiltyard.sandbox.conformance.case import (
    Case,
    CaseReport,
    Finding,
    Observed,
    Outcome,
    Surroundings,
)
from tiltyard.sandbox.conformance.host import Host, harm_between, left_behind
from tiltyard.sandbox.conformance.judging import (
    escaped,
    finding_of,
    inconclusive,
    late_only,
    not_enforced,
)
from tiltyard.sandbox.conformance.neighbour import Neighbour

CASE_TIMEOUT_S = 150.0
"""More than all time limits inside a case together: over it, something did not hold."""
WHOLE = frozenset(Enforcement) - {Enforcement.NONE, Enforcement.RLIMIT}


async def run_cases(
    cases: Iterable[Case],
    subject: Subject,
    *,
    started: Callable[[Case], None] = lambda _: None,
    ended: Callable[[CaseReport], None] = lambda _: None,
) -> tuple[CaseReport, ...]:
    """Runs cases one after another; `started` and `ended` are told of each."""
    reports: list[CaseReport] = []
    async with Host() as host:
        for case in cases:
            started(case)
            report = await run_case(case, subject, host)
            ended(report)
            reports.append(report)
    return tuple(reports)


async def run_case(case: Case, subject: Subject, host: Host) -> CaseReport:
    """Runs one case and judges it."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    around, tries = Surroundings(), 1
    missing = not_enforced(case, subject.maker.enforced, WHOLE)
    if missing:
        finding = Finding(outcome=Outcome.NOT_ENFORCED, words=missing)
    elif case.runs and subject.kept is None:
        words = "this provider has no kept interpreters"
        finding = Finding(outcome=Outcome.NOT_TRIED, words=words)
    elif case.reaches_out and subject.far is None:
        words = "this provider cannot be given the suite's resolver"
        finding = Finding(outcome=Outcome.NOT_TRIED, words=words)
    else:
        try:
            observed = await _observe_in_time(case, subject, host)
            finding = finding_of(case, observed)
            if late_only(case, observed):
                tries, first = 2, observed.around
                observed = await _observe_in_time(case, subject, host)
                finding = finding_of(case, observed)
                words = f"{finding.words} (second try; at the first {'; '.join(first.late)})"
                finding = Finding(outcome=finding.outcome, words=words)
            around = observed.around
        except NotOffered as error:
            finding = Finding(outcome=Outcome.NOT_TRIED, words=error.message)
        except SandboxRefused as error:
            # A sandbox that may change its image is an offer, and not on every machine.
            outcome = Outcome.NOT_ENFORCED if case.writable else Outcome.INCONCLUSIVE
            finding = Finding(outcome=outcome, words=error.message)
        except TimeoutError:
            finding = escaped(f"the host did not get its answers within {CASE_TIMEOUT_S:.0f} s")
        except SandboxError as error:
            finding = inconclusive(f"{type(error).__name__}: {error.message}")
    return CaseReport(
        name=case.name,
        family=case.family,
        outcome=finding.outcome,
        words=_printable(finding.words),
        elapsed_s=loop.time() - start_s,
        tries=tries,
        around=around,
    )


def _printable(words: str) -> str:
    """What a program said goes to a terminal: without its control characters."""
    return "".join(each if each.isprintable() else " " for each in words)


async def _observe_in_time(case: Case, subject: Subject, host: Host) -> Observed:
    async with asyncio.timeout(CASE_TIMEOUT_S):
        return await _observe(case, subject, host)


async def _observe(case: Case, subject: Subject, host: Host) -> Observed:
    if subject.far is not None:
        subject.far.begin()
    before = host.read(subject.places())
    spec = case.neighbour_spec(subject.far_port)
    neighbour = Neighbour(
        subject.maker, await subject.maker.create(spec), spec, patience=subject.patience
    )
    attack = Attack(case, subject, host)
    try:
        async with asyncio.TaskGroup() as group:
            try:
                await neighbour.settle_in(group)
                if case.beside is not None:
                    await attack.run_in(neighbour.box, case.beside)
                await attack.open()
                neighbour.watch(group)
                await attack.let_loose(group)
                await neighbour.last_look()
                if case.witness is not None:
                    attack.witness = await attack.run_in(neighbour.box, case.witness)
                attack.look_beyond(neighbour.box)
                await attack.see_whether_it_survived()
            finally:
                # Its own program ends with it; else the group would wait for that for ever.
                await asyncio.shield(neighbour.leave())
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from None
    finally:
        await asyncio.shield(attack.close())
    after = await host.settled(before, subject.places)
    around = Surroundings(
        harm=(*harm_between(before, after), *neighbour.harm),
        left=left_behind(before, after),
        tasks_max=neighbour.tasks_max,
        lag_ms=neighbour.lag_ms,
        answer_ms=neighbour.answer_ms,
        late=neighbour.late,
        beats=neighbour.beats,
    )
    return attack.observed(neighbour.secret, around)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
