"""What canaries make of a test, as text."""

import random

from tiltyard.verify.overlay.canaries import Canary, Kind, canaries_of
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.source import SourceFile, edited

HEAD = "import math\nimport pytest\nfrom solution import f, g\nfrom checker import eq\n\n"


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - tests draw the same every time


def copies(test: str, kind: Kind, seed: int = 0) -> list[str]:
    """The bodies of a test's copies of one kind."""
    source = (HEAD + test).encode()
    file = SourceFile("tests/test_x.py", source)
    module = Module(file.tree, frozenset({"checker"}))
    found = canaries_of(file, module, rng_of(seed))
    return [text_of(file, canary) for canary in found if canary.kind is kind]


def text_of(file: SourceFile, canary: Canary) -> str:
    function = canary.function
    return edited(file.content, list(canary.edits), function.start, function.end).decode()


def body(test: str) -> str:
    return f"def test_x():\n    {test}\n"
