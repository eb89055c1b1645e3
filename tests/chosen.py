"""Which parameters a sweep has: all for `long`, a sample of them for the ordinary suite."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

SHARED_CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
"""Beside the repository; tests reach it by the fixture `shared_cases`, which skips without it."""


def sampled(names: Iterable[str], sample: Collection[str]) -> list[Any]:
    """A parameter for each name, marked `long` unless it is one of the sample."""
    return [
        name if name in sample else pytest.param(name, marks=pytest.mark.long) for name in names
    ]


def shared_cheats() -> list[Mapping[str, Any]]:
    """The cases of `cheats`; one that says only that they are absent where they are."""
    kept = SHARED_CASES / "cheats" / "cases.json"
    if not kept.is_file():
        return [{"id": "absent", "kind": "absent"}]
    found: list[Mapping[str, Any]] = json.loads(kept.read_text())
    return found
