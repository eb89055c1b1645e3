"""Text and records in a form that every terminal and every JSON reader takes."""

import json
import math
from types import MappingProxyType

import pytest

from sample_records import sample_trajectory
from tiltyard.cli.plain import json_tree, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 好", "plain é 好"),
        ("two\r\n\tlines", "two\n\tlines"),
        ("\ud800\x1b[0m\x7f\u202e", "\\ud800\\x1b[0m\\x7f\\u202e"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_a_record_is_what_json_takes() -> None:
    tree = json_tree(sample_trajectory(1))
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree


def test_what_json_lacks_has_a_plain_form() -> None:
    value = MappingProxyType({"a": (math.inf, -math.inf, b"\xff", None, True)})
    assert json_tree(value) == {"a": ["inf", "-inf", "\\xff", None, True]}
