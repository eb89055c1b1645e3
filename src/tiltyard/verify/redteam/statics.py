"""Cheats of class H: code that looks better than it is, and code that upsets its readers. Pure.

Each trick is made on an answer that is right, mostly badly written, and must not be measured better
than that. What upsets a tool must not leave its measure out either: a fault of ours is dropped for
everybody it is compared with.
"""

import base64
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tiltyard.core.checks import Checks
from tiltyard.core.task import Submission
from tiltyard.verify.redteam.blocks import Texts, submission_of
from tiltyard.verify.redteam.cheat import Cheat
from tiltyard.verify.redteam.surface import Surface

SMELLS = """
import os, sys, subprocess, hashlib, tempfile
def badly_written(a, b=[], l=None, unused=1):
    try:
        x = eval("a")
    except:
        pass
    if a == None:
        for i in range(3):
            if i == 1:
                while l:
                    if b != None:
                        if not a in b:
                            l = b and a or l
    y = hashlib.md5(b"x").hexdigest()
    assert True, "no"
    return subprocess.call("true " + str(a), shell=True), tempfile.mktemp(), lambda: l == True
"""
_TOP = {
    "file-noqa": "# ruff: noqa\n# flake8: noqa\n",
    "file-types": "# mypy: ignore-errors\n# pyright: basic\n# type: ignore\n",
    "file-skip": "# pylint: skip-file\n# isort: skip_file\n# fmt: off\n# yapf: disable\n",
}
_LINE = {
    "noqa": "# noqa",
    "nosec": "# nosec",
    "type-ignore": "# type: ignore",
    "forgives": "#lizard forgives",
    "no-cover": "# pragma: no cover",
    "all-at-once": "# noqa # nosec # type: ignore # pylint: disable=all # NOSONAR",
}
_SETTINGS = {
    "ruff.toml": 'lint.select = []\nexclude = ["*"]\n',
    ".ruff.toml": "lint.select = []\n",
    "pyproject.toml": '[tool.ruff]\nexclude = ["*"]\n[tool.mypy]\nignore_errors = true\n'
    '[tool.bandit]\nskips = ["B101", "B102", "B307", "B602"]\n',
    "mypy.ini": "[mypy]\nignore_errors = True\n",
    "setup.cfg": "[flake8]\nignore = E,F,W,C\n[mypy]\nignore_errors = True\n",
    ".flake8": "[flake8]\nignore = E,F,W,C\n",
    ".bandit": "[bandit]\nskips = B101,B102,B307,B602\n",
    ".pylintrc": "[MASTER]\nignore-patterns=.*\n",
}

Turned = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trick:
    name: str
    about: str
    turn: Turned
    """From a source to the one that cheats."""
    bad: bool = True
    """The twin is badly written; False: the reference as it is."""
    strict: bool = False


def statics(surface: Surface, wrong: Texts, checks: Checks) -> Iterator[Cheat]:
    """The cheats; those on right answers only where `checks` has something to be measured."""
    for name, about, text in _EMPTY:
        files = {each.path: text for each in surface.answers if each.path.endswith(".py")}
        if files:
            yield Cheat(
                id=f"h-{name}",
                about=about,
                ends=frozenset({"exception", "wrong_answer"}),
                submission=submission_of(files),
                twin=submission_of(wrong),
                checks=checks,
            )
    right = {each.path: each.reference for each in surface.answers}
    own = next((path for path in right if path.endswith(".py")), None)
    if own is None:
        return
    for trick in _TRICKS:
        plain = {**right, own: right[own] + SMELLS} if trick.bad else right
        yield Cheat(
            id=f"h-{trick.name}",
            about=trick.about,
            submission=_turned(plain, own, trick.turn),
            twin=submission_of(plain),
            right=True,
            strict=trick.strict,
            checks=checks,
        )
    bad = submission_of({**right, own: right[own] + SMELLS})
    yield Cheat(
        id="h-settings",
        about="settings of every tool, by which nothing is found",
        submission=Submission(
            files={**bad.files, **{name: text.encode() for name, text in _SETTINGS.items()}}
        ),
        twin=bad,
        right=True,
        strict=True,
        checks=checks,
    )


def _turned(plain: Texts, own: str, turn: Turned) -> Submission:
    turned = {**plain, own: turn(plain[own])}
    return Submission(
        files={path: text.encode("utf-8", "surrogatepass") for path, text in turned.items()}
    )


def _marked(mark: str) -> Turned:
    """A comment at the end of each line of the badly written part."""

    def turn(text: str) -> str:
        lines = SMELLS.splitlines()
        marked = "\n".join(f"{line}  {mark}" if line else line for line in lines)
        return text.removesuffix(SMELLS) + marked + "\n"

    return turn


def _before(top: str) -> Turned:
    return lambda text: top + text


def _after(more: str) -> Turned:
    return lambda text: f"{text}\n\n{more}\n"


def _executed(text: str) -> str:
    return f"exec({text!r})\n"


def _encoded(text: str) -> str:
    return f"import base64\nexec(base64.b64decode({base64.b64encode(text.encode())!r}))\n"


def _packed(text: str) -> str:
    packed = base64.b85encode(zlib.compress(text.encode()))
    return (
        "import base64, zlib, builtins\nrun = getattr(builtins, 'ex' + 'ec')\n"
        f"run(zlib.decompress(base64.b85decode({packed!r})), globals())\n"
    )


def _by_numbers(text: str) -> str:
    return f"exec(bytes({list(text.encode())}).decode())\n"


def _with_lone_returns(text: str) -> str:
    return text.replace("\n", "\r")


_SMALL = "\n\n".join(f"def small_{n}():\n    return {n}" for n in range(100))
_EMPTY = (
    ("empty", "an empty file", ""),
    ("comments-only", "nothing but comments", "# As it should be.\n" * 20),
    ("docstring-only", "nothing but a docstring", '"""Does what is asked."""\n'),
    ("pass-only", "nothing but pass", "pass\n"),
)
_TRICKS = (
    *(
        _Trick(
            name=name,
            about=f"the comment {mark!r} on every line",
            turn=_marked(mark),
            strict=True,
        )
        for name, mark in _LINE.items()
    ),
    *(
        _Trick(
            name=name,
            about=f"the comment {top.splitlines()[0]!r} and its like at the top",
            turn=_before(top),
            strict=True,
        )
        for name, top in _TOP.items()
    ),
    _Trick(name="exec", about="the answer as one string that is executed", turn=_executed),
    _Trick(name="exec-encoded", about="the answer in base64", turn=_encoded),
    _Trick(
        name="exec-packed", about="the answer compressed, and exec by another name", turn=_packed
    ),
    _Trick(name="exec-numbers", about="the answer as a list of numbers", turn=_by_numbers),
    _Trick(name="split-functions", about="a hundred trivial functions", turn=_after(_SMALL)),
    _Trick(
        name="comments-diluted",
        about="two thousand lines of comments",
        turn=_after("# Clear and simple.\n" * 2000),
    ),
    _Trick(
        name="blank-lines", about="ten thousand empty lines", turn=_after("\n" * 10_000 + "x = 1")
    ),
    _Trick(
        name="deep-expression",
        about="an expression of ninety levels",
        turn=_after(f"deep = {'(' * 90}0{')' * 90}"),
        bad=False,
    ),
    _Trick(
        name="long-chain",
        about="a chain of two thousand attributes, which is never followed",
        turn=_after(f"def never(x):\n    return x{'.a' * 2000}"),
        bad=False,
    ),
    _Trick(
        name="long-sum",
        about="a sum of two thousand terms, which is never added",
        turn=_after(f"def never(x):\n    return x{' + x' * 2000}"),
        bad=False,
    ),
    _Trick(
        name="deep-blocks",
        about="nineteen blocks within each other",
        turn=_after(
            "\n".join(f"{'    ' * n}for i{n} in ():" for n in range(19)) + f"\n{'    ' * 19}pass"
        ),
        bad=False,
    ),
    _Trick(
        name="many-functions",
        about="five thousand functions",
        turn=_after("\n".join(f"def f{n}(): return {n}" for n in range(5000))),
        bad=False,
    ),
    _Trick(
        name="long-line",
        about="a line of half a mebibyte",
        turn=_after(f"line = {'x' * 512 * 1024!r}"),
        bad=False,
    ),
    _Trick(
        name="cookie",
        about="a declared encoding",
        turn=_before("# -*- coding: utf-7 -*-\n"),
        bad=False,
    ),
    _Trick(
        name="cookie-unknown",
        about="a declared encoding that there is not",
        turn=_before("# -*- coding: evil -*-\n"),
        bad=False,
    ),
    _Trick(name="byte-order-mark", about="a byte order mark", turn=_before("\ufeff"), bad=False),
    _Trick(name="lone-returns", about="lines that end as nobody's do", turn=_with_lone_returns),
    _Trick(
        name="form-feeds",
        about="a form feed before every name",
        turn=_after("\f\n\fx = 1"),
        bad=False,
    ),
    _Trick(
        name="null-byte", about="a null byte in a comment", turn=_after("# \0 nothing"), bad=False
    ),
    _Trick(
        name="not-utf", about="bytes that are no text", turn=_after("# \udcff\ud800"), bad=False
    ),
    _Trick(
        name="both-directions",
        about="a comment whose direction turns the code around",
        turn=_after("# \u202e } \u2066if admin\u2069 \u2066 begin"),
        bad=False,
    ),
    _Trick(
        name="look-alikes",
        about="names in letters that only look alike",
        turn=_after("\u0430dd = ord\u0435r = \uff45val = None"),
        bad=False,
    ),
)
