"""`tiltyard conformance`: the hostile suite against a provider, case by case, with an exit code.

What is not enforced here is counted and shown with the limit that lacks; it never looks like
something that was contained. The same goes for what is known to be open.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltyard.cli.boundary import EXIT_LOOK, EXIT_OK
from tiltyard.sandbox.conformance.case import Case, CaseReport, Outcome
from tiltyard.sandbox.conformance.catalogue import CASES, chosen
from tiltyard.sandbox.conformance.runner import run_cases
from tiltyard.wiring import open_subject

_STYLES = {
    Outcome.CONTAINED: "green",
    Outcome.ESCAPED: "bold red",
    Outcome.INCONCLUSIVE: "red",
    Outcome.NOT_ENFORCED: "yellow",
    Outcome.NOT_TRIED: "yellow",
    Outcome.KNOWN: "yellow",
}


async def conformance(provider: str, *, only: Sequence[str], as_json: bool, list_only: bool) -> int:
    """Runs the cases, prints, and returns the exit code."""
    cases = chosen(only)
    if list_only:
        _list(cases, as_json=as_json)
        return EXIT_OK
    errors = Console(stderr=True, highlight=False)

    def started(case: Case) -> None:
        errors.print(Text.assemble((f"{case.family}/{case.name}", "bold"), f": {case.tries} ... "))

    def ended(report: CaseReport) -> None:
        mark = (str(report.outcome), _STYLES[report.outcome])
        errors.print(Text.assemble("  ", mark, f" in {report.elapsed_s:.1f} s"))

    async with open_subject(provider) as subject:
        isolation = subject.maker.isolation
        reports = await run_cases(cases, subject, started=started, ended=ended)
    if as_json:
        print(json.dumps(_plain(provider, isolation, reports), indent=2))  # noqa: T201 - the output
    else:
        _show(provider, isolation, reports)
    bad = {Outcome.ESCAPED, Outcome.INCONCLUSIVE}
    return EXIT_LOOK if any(report.outcome in bad for report in reports) else EXIT_OK


def _plain(provider: str, isolation: str, reports: Sequence[CaseReport]) -> dict[str, object]:
    return {
        "provider": provider,
        "isolation": isolation,
        "counts": _counts(reports),
        "cases": [dataclasses.asdict(report) for report in reports],
    }


def _counts(reports: Sequence[CaseReport]) -> dict[str, int]:
    counted = Counter(report.outcome for report in reports)
    return {str(outcome): counted[outcome] for outcome in Outcome}


def _show(provider: str, isolation: str, reports: Sequence[CaseReport]) -> None:
    console = Console(highlight=False)
    title = f"Hostile programs against {provider} ({isolation})"
    table = Table(title=title, title_justify="left")
    figures = ("s", "host late ms", "neighbour ms")
    for name in ("family", "case", "outcome", "why", *figures):
        table.add_column(
            name,
            overflow="fold",
            no_wrap=name == "case",
            justify="right" if name in figures else "left",
        )
    for report in reports:
        mark = Text(report.outcome, style=_STYLES[report.outcome])
        around = report.around
        # Nobody was asked beside a case that was not run.
        times = [around.lag_ms, around.answer_ms] if around.beats else []
        spent = [f"{report.elapsed_s:.1f}", *(f"{each:.0f}" for each in times)]
        table.add_row(report.family, report.name, mark, Text(report.words), *spent)
    console.print(table)
    if ran := [report.around for report in reports if report.around.beats]:
        host_ms = max(around.lag_ms for around in ran)
        answer_ms = max(around.answer_ms for around in ran)
        console.print(
            f"At the most the host was late by {host_ms:.0f} ms, and the neighbour answered after "
            f"{answer_ms:.0f} ms."
        )
    line = ", ".join(f"{count} {name}" for name, count in _counts(reports).items() if count)
    console.print(f"{len(reports)} of {len(CASES)} cases: {line}.", style="bold")


def _list(cases: Sequence[Case], *, as_json: bool) -> None:
    if as_json:
        named = [
            {"family": case.family, "name": case.name, "tries": case.tries, "safe": case.safe}
            for case in cases
        ]
        print(json.dumps(named, indent=2))  # noqa: T201 - the output
        return
    table = Table(title=f"{len(cases)} cases", title_justify="left")
    for name in ("family", "case", "tries", "has to come to"):
        # A name is there to be given to --only: never in two parts.
        table.add_column(name, overflow="fold", no_wrap=name == "case")
    for case in cases:
        table.add_row(case.family, case.name, Text(case.tries), Text(case.safe))
    Console(highlight=False).print(table)
