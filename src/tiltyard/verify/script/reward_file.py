"""The number that a task's script left behind: read strictly, because whatever it says is paid."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

DIRECTORY = "/logs/verifier"
JSON = f"{DIRECTORY}/reward.json"
TEXT = f"{DIRECTORY}/reward.txt"
BYTES_MAX = 64 * 1024
MEASURES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the files say, or why they say nothing."""

    reward: float | None
    """From 0 to 1; None when there is none that can be believed."""
    problem: str = ""
    measures: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Further numbers of `reward.json`, by name."""


def read(as_json: bytes | None, as_text: bytes | None) -> Written:
    """Reads both files; None stands for one that is not there.

    With both the lower one counts: they contradict each other where a solution's process writes the
    higher one beside the script, and that must not end in a fault.
    """
    if as_json is None and as_text is None:
        return _none("the script wrote neither reward.json nor reward.txt")
    if as_json is None:
        return _of_text(as_text or b"")
    written = _of_json(as_json)
    if as_text is None or written.reward is None:
        return written
    other = _of_text(as_text)
    if other.reward is None:
        return other
    return replace(written, reward=min(written.reward, other.reward))


def _none(problem: str) -> Written:
    return Written(reward=None, problem=problem)


def _of_text(content: bytes) -> Written:
    try:
        value = float(content.decode("ascii").strip())
    except ValueError:
        value = None
    if value is None or b"_" in content:  # Python reads 0_1 as 1
        return _none(f"reward.txt holds no number: {content[:60]!r}")
    return _number(value, "reward.txt")


def _of_json(content: bytes) -> Written:
    try:
        tree = json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return _none(f"reward.json is no JSON, or has a name twice: {content[:60]!r}")
    numbers = {"reward": tree} if _is_number(tree) else tree
    if not isinstance(numbers, dict) or not all(map(_is_number, numbers.values())):
        return _none("reward.json must hold a number, or numbers by name")
    if len(numbers) > MEASURES_MAX:
        return _none(f"reward.json holds more than {MEASURES_MAX} numbers")
    if "reward" not in numbers and len(numbers) != 1:
        return _none(f"reward.json has no 'reward' among {sorted(numbers)[:10]}")
    name = "reward" if "reward" in numbers else next(iter(numbers))
    found = _number(float(numbers[name]), f"reward.json: {name!r}")
    others = {each: float(value) for each, value in numbers.items() if each != name}
    if not all(map(math.isfinite, others.values())):
        return _none("reward.json holds a number that is not finite")
    return Written(reward=found.reward, problem=found.problem, measures=others)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A mapping; a name that is there twice says two things. Raises `ValueError`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _is_number(value: object) -> bool:
    # A whole number that no float holds is refused here and not when it is turned into one.
    return type(value) is float or (type(value) is int and abs(value) < 2**53)


def _number(value: float, what: str) -> Written:
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        return _none(f"{what} is {value:g}, not between 0 and 1")
    return Written(reward=value)
