"""What the doctor tells, by what was found."""

from dataclasses import replace

import pytest

from tiltyard.cli.doctor import show_report
from tiltyard.core.execution import Enforcement, Limit
from tiltyard.sandbox.capabilities import CapabilityReport, Finding, Health

OK = Finding(feature="kernel", health=Health.OK, detail="Linux")
FIX = "run as root, or `systemd-run --user --scope -p Delegate=yes`; else limits are weaker, " * 3
LONG = "/a/path/of" + "/many/directories" * 10
WEAK = [Finding(feature=name, health=Health.WEAK, detail="none", fix=FIX) for name in ("cpu", "io")]
MISSING = Finding(feature="sandbox", health=Health.MISSING, detail="no", fix="allow it")


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([OK], "Sandboxes work here, and every limit is held."),
        ([OK, *WEAK], "Sandboxes work here, but these hold less strictly: cpu, io."),
        ([OK, *WEAK, MISSING], "No sandbox can be made here yet."),
    ],
)
def test_the_last_line_is_the_verdict(
    capsys: pytest.CaptureFixture[str], findings: list[Finding], verdict: str
) -> None:
    report = CapabilityReport(
        findings=tuple(findings), isolation="root", enforced={Limit.CPU: Enforcement.NONE}
    )
    show_report(report)

    assert capsys.readouterr().out.splitlines()[-1] == verdict


def test_advice_is_whole_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(
        CapabilityReport(findings=(replace(OK, detail=LONG), *WEAK), isolation="root", enforced={})
    )

    lines = capsys.readouterr().out.splitlines()
    assert f"  kernel  ok      {LONG}" in lines
    assert f"cpu, io: {FIX}".rstrip() in [line.rstrip() for line in lines]
