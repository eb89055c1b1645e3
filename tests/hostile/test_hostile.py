"""Every hostile case against the native provider, as root and as an ordinary user.

What a limit that is missing here would have to hold is skipped with that limit's name; what is open
as documented is an expected failure. Neither is a pass.
"""

import pytest

from tiltyard.sandbox.conformance.attack import Subject
from tiltyard.sandbox.conformance.case import Case, Outcome
from tiltyard.sandbox.conformance.catalogue import CASES
from tiltyard.sandbox.conformance.host import Host
from tiltyard.sandbox.conformance.runner import run_case

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
        for case in CASES
    ],
)
async def test_it_is_contained(case: Case, subject: Subject, host: Host) -> None:
    report = await run_case(case, subject, host)

    match report.outcome:
        case Outcome.NOT_ENFORCED | Outcome.NOT_TRIED:
            pytest.skip(f"{report.outcome}: {report.words}")
        case Outcome.KNOWN:
            pytest.xfail(f"open, as documented: {report.words}")
        case _:
            assert report.outcome is Outcome.CONTAINED, report.words
            assert report.around.beats > 0
