"""Random inputs for the templates: small, so that a run is short, and near each other, so that
equal elements, boundaries and empty containers come up often."""

from random import Random

_LETTERS = "abcde"
_KEYS = ("a", "b", "c", "d", "e")


def whole(rng: Random, low: int = -9, high: int = 9) -> int:
    """An integer of low..high, both included."""
    return rng.randint(low, high)


def near(rng: Random, constant: str, spread: int = 2) -> int:
    """An integer within `spread` of a template's constant: half the time, the boundary itself."""
    middle = int(constant)
    return middle if rng.random() < 0.3 else rng.randint(middle - spread, middle + spread)


def wholes(
    rng: Random, low: int = -9, high: int = 9, *, shortest: int = 0, longest: int = 7
) -> list[int]:
    """A list of integers of low..high."""
    return [rng.randint(low, high) for _ in range(rng.randint(shortest, longest))]


def word(rng: Random, letters: str = _LETTERS, *, shortest: int = 0, longest: int = 7) -> str:
    """A string over few letters."""
    return "".join(rng.choice(letters) for _ in range(rng.randint(shortest, longest)))


def words(rng: Random, *, shortest: int = 0, longest: int = 5) -> list[str]:
    """A list of short non-empty words."""
    count = rng.randint(shortest, longest)
    return [word(rng, shortest=1, longest=4) for _ in range(count)]


def sentence(rng: Random, *, shortest: int = 0, longest: int = 5) -> str:
    """Short words joined by single spaces."""
    return " ".join(words(rng, shortest=shortest, longest=longest))


def key(rng: Random) -> str:
    """One of the keys that `table` uses."""
    return rng.choice(_KEYS)


def table(
    rng: Random, low: int = 0, high: int = 9, *, shortest: int = 0, longest: int = 5
) -> dict[str, int]:
    """A dict from few string keys to integers, in random order of insertion."""
    keys = rng.sample(_KEYS, rng.randint(shortest, min(longest, len(_KEYS))))
    return {name: rng.randint(low, high) for name in keys}
