"""Sizes and durations as people write them, `512M` and `1h30m`, and back."""

import re

from tiltyard.core.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.IGNORECASE)
_SECONDS = (86_400, 3600, 60, 1)


def parse_size(option: str, words: str) -> int:
    """Bytes; K, M, G and T are powers of 1024. Raises `UsageError`."""
    found = _SIZE.fullmatch(words.strip())
    if found is None:
        raise UsageError(
            f"{option}: {words!r} is no size.", fix="write it like 512M, 2G or 1048576."
        )
    unit_bytes: int = 1024 ** _POWERS[found[2].lower()]
    return round(float(found[1]) * unit_bytes)


def parse_duration(option: str, words: str) -> float:
    """Seconds. Raises `UsageError`."""
    found = _DURATION.fullmatch(words.strip())
    if found is None or not any(found.groups()):
        raise UsageError(
            f"{option}: {words!r} is no duration.", fix="write it like 90s, 10m or 1h30m."
        )
    parts = zip(found.groups(), _SECONDS, strict=True)
    return sum(float(number) * unit_s for number, unit_s in parts if number)


def shown_size(size_bytes: int | None) -> str:
    """`12.5 MiB`; a dash for None."""
    if size_bytes is None:
        return "-"
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def shown_duration(seconds: float) -> str:
    """`1h02m`, `3m07s` or `12s`."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= 48:
        return f"{hours // 24}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"
