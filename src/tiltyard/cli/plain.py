"""Stored text and records in a form that any terminal and any JSON reader takes.

A model's reply and a program's output may hold anything: lone surrogates that no stream encodes,
sequences that a terminal obeys. What a command prints of them goes through here. Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rich.text import Text

_KEPT = frozenset("\n\t")
"""The only unprintable characters that a terminal may get; a line's end is one of them."""


def visible(text: str) -> str:
    """The text with everything that a terminal would obey, or cannot show, escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _KEPT else _escaped(char)
        for char in text.replace("\r\n", "\n")
    )


def shown(text: str, style: str = "") -> Text:
    """`visible` text for a console, in which nothing is markup."""
    return Text(visible(text), style=style)


def json_tree(value: object) -> Any:
    """A record as what `json.dumps` takes: objects, lists, and only numbers that JSON has.

    Bytes become text; a number that is not finite becomes its name.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_tree(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_tree(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [json_tree(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()
