"""`tiltyard doctor`: what this machine gives, what it lacks, and how to mend that."""

import dataclasses
import json

from rich.console import Console
from rich.table import Table

from tiltyard.cli.boundary import EXIT_CANNOT, EXIT_LOOK, EXIT_OK
from tiltyard.cli.plain import shown
from tiltyard.sandbox.capabilities import CapabilityReport, Health
from tiltyard.wiring import probe_machine

_STYLES = {Health.OK: "green", Health.WEAK: "yellow", Health.MISSING: "red"}


async def doctor(*, as_json: bool) -> int:
    """Probes, prints, and returns the exit code."""
    report = await probe_machine()
    if as_json:
        print(json.dumps(_plain(report), indent=2))  # noqa: T201 - the command's output
    else:
        show_report(report)
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


def show_report(report: CapabilityReport) -> None:
    """Prints a report as tables, the advice below the first, and the verdict last."""
    console = Console(highlight=False, markup=False)
    console.print("What this machine gives", style="italic")
    wide = max((len(finding.feature) for finding in report.findings), default=0)
    for finding in report.findings:
        # Lines and no table, which would break a path in two.
        line = shown(f"  {finding.feature:<{wide}}  ")
        line.append(f"{finding.health:<8}", _STYLES[finding.health]).append_text(
            shown(finding.detail)
        )
        console.print(line, soft_wrap=True)
    for fix, features in _fixes(report).items():
        console.print(shown(f"{', '.join(features)}: {fix}"), soft_wrap=True)
    if report.enforced:
        limits = Table(title="By what each limit is held", title_justify="left")
        limits.add_column("limit")
        limits.add_column("held by")
        for limit, by in report.enforced.items():
            limits.add_row(limit, by)
        console.print(limits)
    console.print(_verdict(report), style="bold")


def _fixes(report: CapabilityReport) -> dict[str, list[str]]:
    """Each piece of advice with the features that it is for."""
    fixes: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.fix:
            fixes.setdefault(finding.fix, []).append(finding.feature)
    return fixes


def _verdict(report: CapabilityReport) -> str:
    if not report.usable:
        return "No sandbox can be made here yet."
    weak = [finding.feature for finding in report.findings if finding.health is Health.WEAK]
    if weak:
        return f"Sandboxes work here, but these hold less strictly: {', '.join(weak)}."
    return "Sandboxes work here, and every limit is held."
