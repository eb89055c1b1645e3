"""When a refused request is tried again, and how long that waits. Pure: time and chance come in."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random

ATTEMPTS_MAX = 6
"""With the waits below a server may be away for about half a minute, as when it is restarted."""

ATTEMPTS_UNREACHED_MAX = 2
"""For a server that has not answered once: its URL is probably wrong, and each of many rollouts
would wait for nothing."""

RETRY_AFTER_S_MAX = 120.0
"""A server that asks for a longer wait is not going to serve this run."""

_FIRST_WAIT_S = 1.0
_WAIT_S_MAX = 20.0


def backoff_s(failures: int, rng: Random) -> float:
    """How long to wait after this many failures: doubling, bounded, spread by chance.

    Spread, because the rollouts that one failure hit together must not come back together.
    """
    longest = min(_WAIT_S_MAX, _FIRST_WAIT_S * 2.0 ** (failures - 1))
    return longest * rng.uniform(0.5, 1.0)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """The wait that a `Retry-After` header asks for (RFC 9110, 10.2.3); None when it asks none.

    A header that cannot be read counts as none.
    """
    if header is None:
        return None
    if header.strip().isascii() and header.strip().isdigit():
        return float(header.strip()[:9])
    try:
        at = parsedate_to_datetime(header)
        return max(0.0, (at - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None
