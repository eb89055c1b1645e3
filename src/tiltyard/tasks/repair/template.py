"""What a family of repair tasks is made of.

A template is source text with `$name` places. A seed picks one option for each place, so that a
family has dozens of texts and yet a small vocabulary: a model of a million parameters must be
able to learn it. The names below are shared by all families for that reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from string import Template as Text
from types import MappingProxyType
from typing import TypeAlias

from tiltyard.core.task import MethodCall

LINE_COLUMNS_MAX = 60

LISTS = ("items", "values", "nums")
TEXTS = ("text", "word", "line")
MAPS = ("table", "prices", "stock")
SUMS = ("total", "result")
OUTS = ("out", "result")
COUNTS = ("count", "n")
LIMITS = ("limit", "bound")

Picked: TypeAlias = Mapping[str, str]
"""The option that the seed picked for each place of a template."""

DrawArgs: TypeAlias = Callable[[Random, Picked], tuple[object, ...]]
"""Draws arguments, every one a `Value`; typed loosely because a list[int] is not a list[Value]."""
DrawCalls: TypeAlias = Callable[[Random, Picked], tuple[MethodCall, ...]]


class Topic(StrEnum):
    """What a family is about. Results are reported by topic as well as by family."""

    NUMBERS = "numbers"
    STRINGS = "strings"
    LISTS = "lists"
    DICTS = "dicts"
    RECURSION = "recursion"
    CLASSES = "classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One family: a correct source with places, and how inputs for it are drawn."""

    family: str
    topic: Topic
    says: str
    """What the code should do, in one or two short sentences, with the same places."""
    source: str
    args: DrawArgs
    calls: DrawCalls | None = None
    """For a class: the method calls on the object made with `args`. None for a function."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The choices for each place: constants and a few variable names."""
    class_name: str | None = None
    """The class that the tests drive; None when they call the function named like the family."""

    @property
    def target(self) -> str:
        """The function or class of the source that the tests call."""
        return self.class_name or self.family

    def pick(self, rng: Random) -> Picked:
        """One option for each place, in the order of `options`."""
        return {place: rng.choice(choices) for place, choices in self.options.items()}

    def render(self, picked: Picked) -> str:
        """The correct source, ending in a newline."""
        return Text(self.source).substitute(picked).strip("\n") + "\n"

    def describe(self, picked: Picked) -> str:
        """The description with its places filled."""
        return Text(self.says).substitute(picked)
