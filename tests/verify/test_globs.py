"""Globs say what of a submission is taken, so each rule of theirs is held."""

import pytest

from tiltyard.verify.globs import matches


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("src/**", "srcs/a", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "a/bz", False),
        ("**", "a/b", True),
        ("?.py", "a.py", True),
        ("?.py", "/.py", False),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("[!a]x", "/x", False),
        ("a.py", "aXpy", False),
        ("*", "a\nb", True),
        ("A", "a", False),
        ("[", "[", True),
        ("a+b", "aab", False),
        ("src/", "src/a/b", True),
        ("src/", "src", False),
        ("src/*/a.py", "src/p/a.py", True),
        ("src/*/a.py", "src/p/q/a.py", False),
        ("./a.py", "a.py", True),
        ("a[0-9].py", "a1.py", True),
        ("a[/]b", "a/b", False),
        ("[^a]", "b", False),
        ("[^a]", "^", True),
        ("[[]x", "[x", True),
        ("[a&&b]", "&", True),
        ("[z-a]", "[z-a]", True),
        ("[z-a]", "z", False),
    ],
)
def test_what_a_glob_matches(glob: str, path: str, expected: object) -> None:
    assert matches(path, ("nothing", glob)) is expected


def test_no_globs_match_nothing() -> None:
    assert not matches("a", ())
