"""Words of hostile code: what a terminal would obey is escaped, and there is an end to them."""

import pytest

from tiltyard.verify.evidence import plain, plain_lines


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("a: error\n  at b\r\nc", "a: error\\n  at b\\r\\nc", "a: error\n  at b\nc"),
        ("\x1b[2J\x07\tx", "\\x1b[2J\\x07\\tx", "\\x1b[2J\\x07   x"),
        ("a\rb\x0bc\x85d\u2028e\u202ef", *("a\\rb\\x0bc\\x85d\\u2028e\\u202ef",) * 2),
        ("\ud800\x00", "\\ud800\\x00", "\\ud800\\x00"),
    ],
)
def test_only_line_feeds_are_left(text: str, one_line: str, lines: str) -> None:
    assert plain(text) == one_line
    assert plain_lines(text) == lines


def test_there_is_an_end_to_lines() -> None:
    assert plain_lines("x\n" * 12 + "x") == "x\n" * 11 + "x..."
    assert plain_lines("x" * 700, characters_max=600) == "x" * 600 + "..."
    assert plain_lines("\t" * 700).count(" ") <= 300 * 4
