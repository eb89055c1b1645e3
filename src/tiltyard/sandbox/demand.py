"""How many warm sandboxes of one spec are worth keeping, learned from who asked for them lately.

Theory of operation. Think of a shelf on which there are always enough. Whoever asks takes one from
it; another is made in the time that making takes, or when one that was in use ends, because that is
when the pool replaces it. What is missing from the shelf at its worst is what should have been on
it: 32 that ask at once miss 32, and one caller who comes back as often as it likes misses one. The
most of the last `REMEMBERED_S` is the target; nothing is averaged, because a burst is not half
served by half of it.

Pure: the clock is the caller's.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil

REMEMBERED_S = 60.0
"""Groups of attempts follow each other within tens of seconds; an idle sandbox costs 0.8 MB."""
MAKE_S_FIRST = 0.02
"""Taken for the time of making at first: rather too long, for then more are kept."""
MAKE_S_MIN = 0.000_1
WEIGHT = 0.25
"""Of the latest time: one that was made while the machine was busy says little."""


@dataclass(frozen=True, slots=True)
class _Peak:
    at_s: float
    missing: int


class Demand:
    """The demand for one spec: never below `warm`, never above `warm_max`."""

    def __init__(self, *, warm: int, warm_max: int) -> None:
        if not 0 <= warm <= warm_max:
            raise ValueError(f"warm {warm} must be between 0 and warm_max {warm_max}")
        self._warm = warm
        self._warm_max = warm_max
        self._make_s = MAKE_S_FIRST
        self._missing = 0.0
        self._seen_s = 0.0
        """When `_missing` was right; what was made since is not taken off yet."""
        self._peaks: deque[_Peak] = deque()
        """Ever later and ever lower, all above `warm`: so no more than there are numbers."""

    def asked(self, now_s: float) -> None:
        """Somebody takes one. Times never go back."""
        made = max(now_s - self._seen_s, 0.0) / self._make_s
        self._seen_s = now_s
        # More than may be kept is of no interest, and would only take longer to forget.
        self._missing = min(max(self._missing - made, 0.0) + 1.0, self._warm_max)
        missing = ceil(self._missing)
        if missing <= self._warm:
            return
        while self._peaks and self._peaks[-1].missing <= missing:
            self._peaks.pop()
        self._peaks.append(_Peak(now_s, missing))

    def ended(self) -> None:
        """One that was taken has ended, and brings about the next."""
        self._missing = max(self._missing - 1.0, 0.0)

    def timed(self, make_s: float) -> None:
        """One was made, and nothing beside it when that began."""
        self._make_s += (max(make_s, MAKE_S_MIN) - self._make_s) * WEIGHT

    def target(self, now_s: float) -> int:
        """How many are worth keeping now. Falls with time alone, and only to what is remembered."""
        while self._peaks and self._peaks[0].at_s + REMEMBERED_S <= now_s:
            self._peaks.popleft()
        return self._peaks[0].missing if self._peaks else self._warm

    @property
    def falls_s(self) -> float | None:
        """When the target is next lower unless somebody asks; None when it stays as it is."""
        return self._peaks[0].at_s + REMEMBERED_S if self._peaks else None
