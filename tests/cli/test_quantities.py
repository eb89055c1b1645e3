"""Sizes and durations as people write them."""

import pytest

from tiltyard.cli.quantities import parse_duration, parse_size, shown_duration, shown_size
from tiltyard.core.errors import UsageError


@pytest.mark.parametrize(
    ("words", "size"),
    [("0", 0), ("1048576", 1048576), ("512M", 512 * 2**20), ("1.5 GiB", 3 * 2**29), ("2kb", 2048)],
)
def test_sizes(words: str, size: int) -> None:
    assert parse_size("--memory", words) == size


@pytest.mark.parametrize("words", ["", "M", "-1M", "1Q", "1M2", "1e9", "nan"])
def test_what_is_no_size(words: str) -> None:
    with pytest.raises(UsageError, match=r"--memory: .* is no size"):
        parse_size("--memory", words)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5s", 0.5), ("2d1s", 172801)],
)
def test_durations(words: str, seconds: float) -> None:
    assert parse_duration("--ttl", words) == seconds


@pytest.mark.parametrize("words", ["", "h", "-1s", "1m1h", "soon", "1.5h"])
def test_what_is_no_duration(words: str) -> None:
    with pytest.raises(UsageError, match=r"--ttl: .* is no duration"):
        parse_duration("--ttl", words)


def test_what_is_shown() -> None:
    assert [shown_size(each) for each in (None, 12, 2048, 150 * 2**20, 2**60)] == [
        "-",
        "12 B",
        "2.0 KiB",
        "150 MiB",
        "1048576 TiB",
    ]
    assert [shown_duration(each) for each in (-3, 12, 187, 3720, 200_000)] == [
        "0s",
        "12s",
        "3m07s",
        "1h02m",
        "2d07h",
    ]
