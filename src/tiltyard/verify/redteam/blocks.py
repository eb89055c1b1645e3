"""Cheats as text: how a file of `classes/` is read, and how a block becomes a submission. Pure.

    === ID (AIMS) [STATUSES]: what it does, in a line
    code

AIMS are some of split, overlay, script, and `right` when it starts from a right answer; without
any it is all three. STATUSES are how checks may fail by it. The code goes below the answer that it
starts from. When it defines `cheat(name, args, kwargs)`, that is made the body of every function
and method of the task; `real` of the same arguments calls what was there before, and is what is
returned where a wrong answer's `cheat` returns None. Below there may be

    +++ file PATH           what else is shipped: a file, with the lines that follow
    +++ link PATH TARGET    a symbolic link
    +++ odd PATH WHAT       what is no plain file, as in `Submission.odd`
    +++ none                without the answer itself

`{{names}}` and the other words in double braces stand for what is known of the task.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tiltyard.core.checks import Checks
from tiltyard.core.task import Submission
from tiltyard.verify.redteam.cheat import ALL_AIMS, Aim, Cheat
from tiltyard.verify.redteam.surface import Answer, Surface

_HEADER = re.compile(
    r"^=== (?P<id>[a-h]-[a-z-]+)(?: \((?P<aims>[a-z ]+)\))?(?: \[(?P<ends>[a-z_ ]+)\])?: "
    r"(?P<about>.+)$",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^\+\+\+ (?P<kind>file|link|odd|none)(?: (?P<rest>.+))?$", re.MULTILINE)
_DEFINES = re.compile(r"^def cheat\(", re.MULTILINE)
_WORD = re.compile(r"\{\{(\w+)\}\}")

_BEFORE = """

class _Args(tuple): own = ()
def _args(own, args):
    made = _Args(args)
    made.own = own
    return made
def _find(name):
    owner, _, method = name.partition(".")
    return getattr(globals().get(owner), method, None) if method else globals().get(owner)
_before = {{name: _find(name) for name in {names!r}}}
def real(name, args, kwargs):
    before = _before[name]
    return before(*getattr(args, "own", ()), *args, **kwargs) if before else None
"""
_OTHERWISE = """
def _given(name, args, kwargs):
    result = cheat(name, args, kwargs)
    return real(name, args, kwargs) if result is None else result
"""
_ALWAYS = """
_given = cheat
"""

Texts = Mapping[str, str]
"""Sources by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a file of cheats."""

    id: str
    about: str
    aims: frozenset[Aim]
    ends: frozenset[str]
    right: bool
    code: str
    entries: tuple[tuple[str, str, str], ...]
    """Kind, the rest of its line, and the lines that follow."""

    def cheat(self, surface: Surface, wrong: Texts, checks: Checks) -> Cheat:
        """The block made for a task; `wrong` is an answer to it that is wrong."""
        right = {each.path: each.reference for each in surface.answers}
        start = right if self.right else wrong
        words = _words(surface)
        sources = {
            each.path: start[each.path] + _attack(_filled(self.code, words), each, right=self.right)
            if each.path.endswith(".py") and not surface.program
            else start[each.path]
            for each in surface.answers
        }
        if surface.program and self.code.strip():
            sources = {surface.first: _filled(self.code, words)}
        files = {path: text.encode("utf-8", "surrogatepass") for path, text in sources.items()}
        links: dict[str, str] = {}
        odd: dict[str, str] = {}
        for kind, rest, content in self.entries:
            place, _, what = _filled(rest, words).partition(" ")
            match kind:
                case "none":
                    files.clear()
                case "file":
                    files[place] = _filled(content, words).encode()
                case "link":
                    files.pop(place, None)
                    links[place] = what
                case _:
                    files.pop(place, None)
                    odd[place] = what
        return Cheat(
            id=self.id,
            about=self.about,
            aims=self.aims,
            ends=self.ends,
            right=self.right,
            submission=Submission(files=files, links=links, odd=odd),
            twin=submission_of(start),
            checks=checks,
        )


def submission_of(sources: Texts) -> Submission:
    """Sources as somebody honest leaves them."""
    return Submission(files={path: text.encode() for path, text in sources.items()})


@cache
def blocks_of(name: str) -> tuple[Block, ...]:
    """The blocks of a file of `classes/`."""
    text = (resources.files(__package__) / "classes" / name).read_text(encoding="utf-8")
    found = list(_HEADER.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return tuple(
        _block(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True)
    )


def _block(header: re.Match[str], body: str) -> Block:
    entries = list(_ENTRY.finditer(body))
    ends = [match.start() for match in entries[1:]] + [len(body)] * bool(entries)
    words = (header["aims"] or "").split()
    aims = frozenset(Aim(word) for word in words if word != "right")
    return Block(
        id=header["id"],
        about=header["about"],
        aims=aims or ALL_AIMS,
        ends=frozenset((header["ends"] or "").split()),
        right="right" in words,
        code=body[: entries[0].start()] if entries else body,
        entries=tuple(
            (match["kind"], match["rest"] or "", body[match.end() : end].strip("\n") + "\n")
            for match, end in zip(entries, ends, strict=True)
        ),
    )


def _attack(code: str, answer: Answer, *, right: bool) -> str:
    """What goes below an answer: the block's code, and what makes it answer for every function."""
    if not _DEFINES.search(code):
        return f"\n\n{code}"
    # Of a right answer's coroutines there is nothing to be measured.
    targets = [each for each in answer.targets if not (right and each.asynchronous)]
    lines = [_BEFORE.format(names=tuple(each.name for each in targets)), code]
    lines.append(_ALWAYS if right else _OTHERWISE)
    for each in targets:
        owner, _, method = each.name.partition(".")
        function, given = (f"_{owner}_{method}", "(self,)") if method else (owner, "()")
        own = "self, " if method else ""
        call = f"({each.name!r}, _args({given}, args), kwargs)"
        if each.asynchronous:
            lines.append(f"async def {function}({own}*args, **kwargs):")
            lines.append(f"    result = cheat{call}")
            lines.append(f"    return await real{call} if result is None else result")
        else:
            lines.append(f"def {function}({own}*args, **kwargs): return _given{call}")
        if method:
            lines.append(f"if {owner!r} in globals(): {each.name} = {function}")
    return "\n".join(lines) + "\n"


def _words(surface: Surface) -> Mapping[str, str]:
    tests = tuple(path.rsplit("/", 1)[-1] for path in surface.tests)
    modules = (name.removesuffix(".py") for name in tests if name.endswith(".py"))
    return {
        "module": surface.module,
        "answer": surface.first,
        "dir": surface.directory,
        "names": repr(surface.names),
        "tests": repr(tests),
        "test": next((name for name in tests if "test" in name), "test_hidden.py"),
        "helpers": repr(tuple(name for name in modules if "test" not in name)),
        "visible": repr(surface.visible),
        "time_limit_s": repr(surface.time_limit_s),
    }


def _filled(text: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: words[match[1]], text)
