"""`tiltyard doctor`: what this machine gives, what it lacks, and how to mend that."""

import dataclasses
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltyard.cli.boundary import EXIT_CANNOT, EXIT_LOOK, EXIT_OK
from tiltyard.sandbox.capabilities import CapabilityReport, Health
from tiltyard.wiring import probe_machine

_STYLES = {Health.OK: "green", Health.WEAK: "yellow", Health.MISSING: "red"}


async def doctor(*, as_json: bool) -> int:
    """Probes, prints, and returns the exit code."""
    report = await probe_machine()
    if as_json:
        print(json.dumps(_plain(report), indent=2))  # noqa: T201 - the command's output
    else:
        _show(report)
    if not report.usable:
        return EXIT_CANNOT
    weak = any(finding.health is Health.WEAK for finding in report.findings)
    return EXIT_LOOK if weak else EXIT_OK


def _plain(report: CapabilityReport) -> dict[str, object]:
    return {
        "usable": report.usable,
        "isolation": report.isolation,
        "enforced": dict(report.enforced),
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
    }


def _show(report: CapabilityReport) -> None:
    console = Console(highlight=False)
    table = Table(title="What this machine gives", title_justify="left")
    for name in ("feature", "", "detail", "fix"):
        table.add_column(name, overflow="fold")
    for finding in report.findings:
        mark = f"[{_STYLES[finding.health]}]{finding.health}[/]"
        table.add_row(finding.feature, mark, Text(finding.detail), Text(finding.fix))
    console.print(table)
    if report.enforced:
        limits = Table(title="By what each limit is held", title_justify="left")
        limits.add_column("limit")
        limits.add_column("held by")
        for limit, by in report.enforced.items():
            limits.add_row(limit, by)
        console.print(limits)
    verdict = "Sandboxes work here." if report.usable else "No sandbox can be made here yet."
    console.print(verdict, style="bold")
