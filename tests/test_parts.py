"""`make test` is three runs of pytest: which tests each has, and what is said of all at the end."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(repository: Path) -> Mapping[str, Any]:
    return runpy.run_path(str(repository / "scripts" / "test_all.py"))


@pytest.mark.parametrize(
    ("arguments", "marker", "rest"),
    [
        (["-x", "tests/cli"], "not sandbox", ["-x", "tests/cli"]),
        (["-m", "not slow", "-k", "a or b"], "(not sandbox) and (not slow)", ["-k", "a or b"]),
        (["--maxfail", "2", "-mslow or long"], "(not sandbox) and (slow or long)", None),
    ],
)
def test_a_marker_of_the_users_narrows_a_part(
    script: Mapping[str, Any], arguments: list[str], marker: str, rest: list[str] | None
) -> None:
    words = script["OTHERS"].words(arguments)
    assert words.count("-m") == 2, "of python, and of pytest"
    at = len(words) - words[::-1].index("-m")
    assert words[at] == marker
    assert words[at + 3 :] == (rest or ["--maxfail", "2"])


def test_the_closing_lines_are_added_up(script: Mapping[str, Any]) -> None:
    said = (
        (
            "FAILED a\n\x1b[31m===== \x1b[31m\x1b[1m2 failed\x1b[0m, \x1b[32m10 passed\x1b[0m, "
            "1 skipped, 9 deselected, 1 error in 3.21s (0:00:03) =====\x1b[0m\n"
        ),
        "captured: 7 passed in 0.10s\n5 passed in 0.10s\n20 passed, 2 xfailed, 3 errors in 7.00s\n",
        "Sandbox tests as an ordinary user:\n======= 4 deselected in 0.50s =======\n",
    )
    assert script["summed"](said, 12.3) == (
        "===== 2 failed, 4 error, 30 passed, 1 skipped, 2 xfailed in 12s ====="
    )
    assert script["summed"](("no tests ran in 0.01s",), 1.0) == ""
