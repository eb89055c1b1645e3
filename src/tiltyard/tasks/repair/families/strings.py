"""Families over strings: counting, filtering, building and splitting."""

from tiltyard.tasks.repair.inputs import sentence, whole, word
from tiltyard.tasks.repair.template import OUTS, TEXTS, Template, Topic

_COUNTS = ("count", "n", "total")

STRINGS_TRAINED: tuple[Template, ...] = (
    Template(
        family="count_char",
        topic=Topic.STRINGS,
        says="Return how often the character ch is in $s.",
        source="""
def count_char($s, ch):
    $count = 0
    for c in $s:
        if c == ch: $count += 1
    return $count
""",
        args=lambda rng, _: (word(rng, "abc", longest=9), word(rng, "abc", shortest=1, longest=1)),
        options={"s": TEXTS, "count": _COUNTS},
    ),
    Template(
        family="reverse_text",
        topic=Topic.STRINGS,
        says="Return $s backwards, with $mark in front.",
        source="""
def reverse_text($s):
    $out = ""
    for c in $s:
        $out = c + $out
    return "$mark" + $out
""",
        args=lambda rng, _: (word(rng),),
        options={"s": TEXTS, "out": OUTS, "mark": ("-", "+", "*", "#")},
    ),
    Template(
        family="is_palindrome",
        topic=Topic.STRINGS,
        says="Return True when $s reads the same backwards.",
        source="""
def is_palindrome($s):
    for $i in range(len($s) // 2):
        if $s[$i] != $s[len($s) - 1 - $i]:
            return False
    return True
""",
        args=lambda rng, _: (
            _mirrored(word(rng, "abc", longest=3), word(rng, "abc", longest=1))
            if rng.random() < 0.6
            else word(rng, "abc", shortest=2, longest=5),
        ),
        options={"s": TEXTS, "i": ("i", "k", "pos")},
    ),
    Template(
        family="keep_digits",
        topic=Topic.STRINGS,
        says="Return the digits of $s as one string, or $none when it has none.",
        source="""
def keep_digits($s):
    $out = ""
    for c in $s:
        if not c.isdigit(): continue
        $out += c
    if $out == "": return "$none"
    return $out
""",
        args=lambda rng, _: (word(rng, "ab1279", longest=8),),
        options={"s": TEXTS, "out": OUTS, "none": ("0", "none", "x")},
    ),
    Template(
        family="initials",
        topic=Topic.STRINGS,
        says="Return the first letters of the words of $s in capitals, each followed by $mark.",
        source="""
def initials($s):
    $out = ""
    for w in $s.split():
        $out += w[0].upper() + "$mark"
    return $out
""",
        args=lambda rng, _: (sentence(rng),),
        options={"s": ("text", "name", "line"), "out": OUTS, "mark": (".", "-", "/")},
    ),
    Template(
        family="pad_left",
        topic=Topic.STRINGS,
        says="Return $s with $fill put in front until it has at least width characters.",
        source="""
def pad_left($s, width):
    $n = width - len($s)
    if $n < 0: $n = 0
    return "$fill" * $n + $s
""",
        args=lambda rng, _: (word(rng, longest=5), whole(rng, 0, 8)),
        options={"s": TEXTS, "n": ("n", "gap", "count"), "fill": ("0", "-", ".", "*")},
    ),
    Template(
        family="shorten",
        topic=Topic.STRINGS,
        says="Return $s, but when longer than limit, its first limit characters and $mark.",
        source="""
def shorten($s, limit):
    if len($s) <= limit: return $s
    $head = $s[:limit]
    return $head + "$mark"
""",
        args=lambda rng, _: (word(rng, shortest=1), whole(rng, 1, 6)),
        options={"s": TEXTS, "head": ("head", "out", "part"), "mark": ("..", "~", "+")},
    ),
    Template(
        family="squeeze",
        topic=Topic.STRINGS,
        says="Return $s with every run of one character reduced to a single one.",
        source="""
def squeeze($s):
    $out = ""
    $last = ""
    for c in $s:
        if c != $last: $out += c
        $last = c
    return $out
""",
        args=lambda rng, _: (word(rng, "abc", longest=9),),
        options={"s": TEXTS, "out": OUTS, "last": ("last", "prev", "before")},
    ),
    Template(
        family="longest_word",
        topic=Topic.STRINGS,
        says="Return the first longest word of $s, or an empty string.",
        source="""
def longest_word($s):
    $best = ""
    for w in $s.split():
        if len(w) > len($best):
            $best = w
    return $best
""",
        args=lambda rng, _: (sentence(rng),),
        options={"s": TEXTS, "best": ("best", "top", "result")},
    ),
)

STRINGS_UNSEEN: tuple[Template, ...] = (
    Template(
        family="count_vowels",
        topic=Topic.STRINGS,
        says="Return how many characters of $s are a or e, capitals too.",
        source="""
def count_vowels($s):
    $count = 0
    for c in $s.lower():
        if c in "ae": $count += 1
    return $count
""",
        args=lambda rng, _: (word(rng, "abcdeAE", longest=9),),
        options={"s": TEXTS, "count": _COUNTS},
    ),
    Template(
        family="join_words",
        topic=Topic.STRINGS,
        says="Return the words of $s that are longer than $k, each followed by $mark.",
        source="""
def join_words($s):
    $out = ""
    for w in $s.split():
        if len(w) > $k:
            $out = $out + w + "$mark"
    return $out
""",
        args=lambda rng, _: (sentence(rng, shortest=1),),
        options={"s": TEXTS, "out": OUTS, "k": ("1", "2"), "mark": ("-", "/", "+")},
    ),
)


def _mirrored(half: str, middle: str) -> str:
    return half + middle + half[::-1]
