"""Another constant in the place of one, in the same words. Pure.

A submission reads the tests. If false constants were larger, had other quotes or always the same
letter at their end, it would know them by that, and be paid for believing the others.
"""

import ast
import math
import random
import re
from decimal import Decimal

from tiltyard.verify.overlay.nearness import EXACT, Near

SIGNIFICANT_MAX = 5
"""Digits of a number with a point, one of which is another: later ones may be rounding."""
FAR = 10.0
"""Times what is near: a right answer that is as far off as it may be is not near another number."""
DRAWS_MAX = 30
_MEASURABLE = 1e300
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_QUOTED = re.compile(r"(?P<prefix>[a-zA-Z]*)(?P<quote>'''|\"\"\"|'|\")")
_MANTISSA = re.compile(r"[0-9.]+")


def other(old: object, rng: random.Random, near: Near | None) -> object:
    """A value of the same look that is not the old one, nor near it; None: nobody knows what is."""
    match old:
        case bool():
            return not old
        case int() if near == EXACT:
            return _whole(old, rng)
        case float() if near == EXACT:
            return _broken(old, rng)
        case int() | float() if near is not None and abs(old) < _MEASURABLE:
            return _beyond(old, rng, FAR * near.reach(old))
        case int():
            return old * rng.randint(3, 9) + rng.choice((-1, 1)) * 1000
        case float():
            return old * rng.randint(3, 9) + 17.5
        case str():
            return _text(old, rng)
        case bytes():
            return _text(old.decode("latin-1"), rng).encode("latin-1")
        case complex():
            return old * rng.randint(2, 9) if old else complex(0, rng.randint(1, 9))
        case _:
            return rng.choice((0, False, ""))


def _beyond(old: float, rng: random.Random, least: float) -> float:
    """A number further than `least` from the old one, other in one digit if it can be."""
    for _ in range(DRAWS_MAX):
        new = _whole(old, rng) if isinstance(old, int) else _broken(old, rng)
        if abs(new - old) > least:
            return new
    step = rng.choice((-1, 1)) * rng.uniform(1.2, 3.0) * least
    if isinstance(old, int):
        return old + math.floor(step) if step < 0 else old + math.ceil(step)
    new = round(old + step, len(repr(old).partition(".")[2]))
    return new if abs(new - old) > least else old + step


def _whole(old: int, rng: random.Random) -> int:
    digits = str(abs(old))
    said = len(digits.rstrip("0"))
    # A round number stays one.
    if len(digits) > 1 and (len(digits) - said > 1 or rng.random() < 0.5):
        new = int(_with_digit(digits, rng.randrange(said), rng))
        return new if old > 0 else -new
    step = rng.choice((-1, 1)) * rng.randint(1, 9)
    near = old + step
    # What is counted is seldom negative.
    return near if (near < 0) == (old < 0) else old - step


def _broken(old: float, rng: random.Random) -> float:
    text = repr(old)
    mantissa = _MANTISSA.match(text.lstrip("-"))
    if mantissa is None:
        return 17.5
    shift = len(text) - len(text.lstrip("-"))
    places = [at + shift for at, char in enumerate(mantissa[0]) if char != "."]
    first = next((at for at, place in enumerate(places) if text[place] != "0"), 0)
    at = rng.choice(places[first : first + SIGNIFICANT_MAX])
    return float(_with_digit(text, at, rng))


def _with_digit(digits: str, at: int, rng: random.Random) -> str:
    least = 0 if any(char in "123456789" for char in digits[:at]) else 1
    new = rng.choice([each for each in range(least, 10) if str(each) != digits[at]])
    return f"{digits[:at]}{new}{digits[at + 1 :]}"


def _text(old: str, rng: random.Random) -> str:
    """Only letters and digits change, and not merely their case: to the rest, such as blanks, a
    right solution's own `==` may be indifferent."""
    places = [at for at, char in enumerate(old) if char.isascii() and char.isalnum()]
    if not places:
        return f"{old}{rng.choice(_LETTERS)}"
    at = rng.choice(places)
    char = old[at]
    alike = [each for each in old if each.isascii() and _same_kind(each, char)]
    way = rng.randrange(4)
    if way == 0 and char.isalpha() and len(alike) > 2:
        return old[:at] + old[at + 1 :] if rng.random() < 0.5 else old[:at] + char + old[at:]
    if way == 1 and at + 1 < len(old) and _same_kind(old[at + 1], char):
        swapped = old[:at] + old[at + 1] + char + old[at + 2 :]
        if swapped.lower() != old.lower():
            return swapped
    every = _LETTERS.upper() if char.isupper() else _LETTERS if char.isalpha() else "0123456789"
    # The letters of "XIV" or "GATTACA" are not of the whole alphabet.
    some = [each for each in (alike if way else every) if each != char]
    return old[:at] + rng.choice(some or [each for each in every if each != char]) + old[at + 1 :]


def _same_kind(one: str, another: str) -> bool:
    return (one.isupper(), one.islower(), one.isdecimal()) == (
        another.isupper(),
        another.islower(),
        another.isdecimal(),
    )


def like(text: bytes, value: object) -> bytes:
    """How `value` is written by whoever wrote its like as `text`."""
    own = text.decode()
    for candidate in _candidates(own, value):
        try:
            read = ast.literal_eval(candidate)
        except (SyntaxError, ValueError):
            continue
        if type(read) is type(value) and read == value:
            return candidate.encode()
    return repr(value).encode()


def _candidates(own: str, value: object) -> list[str]:
    match value:
        case str() | bytes():
            return _quoted(own, value)
        case bool():
            return []
        case int():
            base = {"0x": "#x", "0o": "#o", "0b": "#b"}.get(
                own[:2].lower(), "_" if "_" in own else ""
            )
            said = format(value, base)
            return [said[:2] + said[2:].upper() if any(map(str.isupper, own[2:])) else said]
        case float():
            return _pointed(own, value)
        case _:
            return []


def _pointed(own: str, value: float) -> list[str]:
    if "e" in own.lower():
        said = f"{Decimal(repr(value)).normalize():e}"
        return [said if "+" in own else said.replace("+", "")]
    decimals = len(own.partition(".")[2].replace("_", ""))
    return [f"{value:{'_' if '_' in own else ''}.{decimals}f}"]


def _quoted(own: str, value: str | bytes) -> list[str]:
    match = _QUOTED.match(own)
    if match is None:
        return []
    prefix, quote = match["prefix"], match["quote"]
    whole = value.decode("latin-1") if isinstance(value, bytes) else value
    old = own[match.end() : -len(quote)]
    body = repr(value).removeprefix("b")[1:-1].replace("\\'", "'")
    body = body.replace(quote[0], f"\\{quote[0]}")
    escaped = f"{prefix.replace('r', '').replace('R', '')}{quote}{body}{quote}"
    raw = f"{prefix}{quote}{whole}{quote}"
    return [raw, escaped] if "\\" not in old or "r" in prefix.lower() else [escaped]
