"""Words about what hostile code said and gave: short, printable, and safe to store and to show.

Text from a solution may hold anything: lone surrogates that no file takes, control sequences that
a terminal obeys, megabytes. What leaves the verify room has been through here. Pure.
"""

import reprlib

from tiltyard.core.values import Value

SHOWN_CHARACTERS_MAX = 240
WORDS_CHARACTERS_MAX = 300
LINES_MAX = 12
TAB_WIDTH = 4


class _Short(reprlib.Repr):
    def repr_bytes(self, value: bytes, level: int) -> str:  # noqa: ARG002 - the base's
        short = repr(value[: self.maxstring])
        return short if len(value) <= self.maxstring else f"{short}..."


_short = _Short()
_short.maxlevel = 5
_short.maxstring = _short.maxother = 160
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = _short.maxdict = 20


def shown(value: Value) -> str:
    """A short text of a value; never slow and never an error, whatever the value."""
    try:
        text = _short.repr(value)
    except ValueError:  # an integer with more digits than Python agrees to print
        text = f"<{type(value).__name__} too long to print>"
    return plain(text, characters_max=SHOWN_CHARACTERS_MAX)


def plain(text: str, *, characters_max: int = WORDS_CHARACTERS_MAX) -> str:
    """The beginning of a text with everything unprintable escaped, on one line."""
    cut = text[:characters_max]
    clean = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut
    )
    return clean if len(text) <= characters_max else f"{clean}..."


def plain_lines(text: str, *, characters_max: int = WORDS_CHARACTERS_MAX) -> str:
    """As `plain`, with the text's own lines, of which the first `LINES_MAX` are kept.

    Only a line feed ends one, and it is all that is left of what a terminal would obey.
    """
    cut = text[:characters_max].replace("\r\n", "\n").expandtabs(TAB_WIDTH)
    lines = [plain(line, characters_max=len(line)) for line in cut.split("\n")]
    whole = len(text) <= characters_max and len(lines) <= LINES_MAX
    return "\n".join(lines[:LINES_MAX]) + ("" if whole else "...")
