"""When to try again: pure rules."""

from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given, strategies as st

from tiltyard.agents.retrying import backoff_s, retry_after_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        (None, None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:30", None),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("9" * 5000, 999_999_999.0),
    ],
)
def test_what_a_server_asks_for(header: str | None, expected_s: float | None) -> None:
    assert retry_after_s(header, NOW) == expected_s


@given(st.text())
def test_no_header_makes_it_fail(header: str) -> None:
    wait_s = retry_after_s(header, NOW)
    assert wait_s is None or wait_s >= 0


def test_waits_double_are_spread_and_bounded() -> None:
    rng = Random(1)  # noqa: S311
    waits = {failures: [backoff_s(failures, rng) for _ in range(200)] for failures in range(1, 12)}
    for failures, seen in waits.items():
        longest = min(20.0, 2.0 ** (failures - 1))
        assert longest / 2 <= min(seen) < 0.55 * longest
        assert 0.95 * longest < max(seen) <= longest
