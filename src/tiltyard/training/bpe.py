"""A small byte-level BPE, learned from the task pack's own text.

Why our own: the built-in policy sees short Python functions only. A vocabulary of a few hundred
tokens fitted to exactly that text gives prompts of about 70 tokens instead of the 150 a general
tokenizer of this size would need, and a prompt's length is what sampling and learning pay for.

Any bytes can be encoded and come back unchanged. Merges never cross a word, and three kinds of
word are cut with the answer format in mind: the `7|` that numbers a line, a run of indentation,
and closing punctuation together with its newline. So a newline only ever ends a token, which is
what lets a sampler stop at the end of a line without a special token.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from tiltyard.core.errors import UsageError

FORMAT: Final = "tiltyard-bpe-1"
SPECIAL_COUNT: Final = 2
PAD_ID: Final = 0
"""Fills the unused end of a row; never sampled."""
ASK_ID: Final = 1
"""Ends every prompt; never sampled."""
FIRST_MERGE_ID: Final = SPECIAL_COUNT + 256

_WORD_BYTES_MAX = 32
_CACHED_WORDS_MAX = 50_000

# Every quantifier is bounded, so that a hostile text cannot make one word that is slow to merge.
_WORD = re.compile(
    rb"^[0-9]{1,3}\|"
    rb"| ?[A-Za-z_]{1,32}"
    rb"| ?[0-9]"
    rb"| {1,32}(?= )"  # indentation, save its last space: that one belongs to the next word
    rb"| ?[^\sA-Za-z_0-9]{1,16}\n?"
    rb"|\s",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Bpe:
    """Merges in the order learned. Ids 0 and 1 are special, then come 256 bytes, then merges."""

    merges: tuple[tuple[int, int], ...]
    _pieces: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    _ranks: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False)
    _cache: dict[bytes, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pieces = [b"", b"", *(bytes([byte]) for byte in range(256))]
        for left, right in self.merges:
            pieces.append(pieces[left] + pieces[right])
        object.__setattr__(self, "_pieces", tuple(pieces))
        ranks = {pair: FIRST_MERGE_ID + rank for rank, pair in enumerate(self.merges)}
        object.__setattr__(self, "_ranks", ranks)
        object.__setattr__(self, "_cache", {})

    @property
    def vocabulary(self) -> int:
        """Number of token ids, special ones included."""
        return len(self._pieces)

    @property
    def line_end_ids(self) -> tuple[int, ...]:
        """The tokens that end a line."""
        return tuple(i for i, piece in enumerate(self._pieces) if piece.endswith(b"\n"))

    @property
    def digest(self) -> str:
        """A content key: equal exactly for equal tokenizers."""
        return blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def encode(self, text: bytes) -> list[int]:
        """Token ids of any bytes, without special tokens. `decode` gives the same bytes back."""
        ids: list[int] = []
        cache = self._cache
        for match in _WORD.finditer(text):
            word = match.group()
            known = cache.get(word)
            if known is None:
                known = self._merge(word)
                if len(cache) >= _CACHED_WORDS_MAX:
                    cache.clear()
                cache[word] = known
            ids.extend(known)
        return ids

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes behind token ids; special tokens stand for nothing."""
        pieces = self._pieces
        return b"".join([pieces[i] for i in ids])

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "merges": [list(pair) for pair in self.merges]})

    @classmethod
    def from_json(cls, text: str) -> "Bpe":
        """Read what `to_json` wrote; raises UsageError for anything else."""
        try:
            document = json.loads(text)
            form = document["format"]
            merges = tuple((int(left), int(right)) for left, right in document["merges"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"Not a tokenizer of format {FORMAT}: {error}.",
                fix="Remove the file; it is made again from the task pack.",
            ) from error
        if form != FORMAT:
            raise UsageError(
                f"A tokenizer of format {form!a} where {FORMAT} was expected.",
                fix="Remove the file; it is made again from the task pack.",
            )
        for rank, pair in enumerate(merges):
            if not all(SPECIAL_COUNT <= part < FIRST_MERGE_ID + rank for part in pair):
                raise UsageError(
                    f"Tokenizer merge {rank} joins {pair}, which is not made before it.",
                    fix="Remove the file; it is made again from the task pack.",
                )
        return cls(merges)

    def _merge(self, word: bytes) -> tuple[int, ...]:
        ids = [SPECIAL_COUNT + byte for byte in word]
        while len(ids) > 1:
            ranked = [self._ranks.get(pair, -1) for pair in pairwise(ids)]
            learned = [rank for rank in ranked if rank >= 0]
            if not learned:
                break
            best = min(learned)
            ids = _replace(ids, self.merges[best - FIRST_MERGE_ID], best)
        return tuple(ids)


def words_of(text: bytes) -> list[bytes]:
    """The words that merges stay within. Joined, they are the text."""
    return _WORD.findall(text)


def learn_bpe(texts: Iterable[bytes], *, vocabulary: int) -> Bpe:
    """Learn merges until there are `vocabulary` ids or no pair occurs twice.

    The most frequent pair is merged first (Sennrich et al. 2016, algorithm 1); ties go to the
    smaller ids, so equal texts always give the equal tokenizer.
    """
    if vocabulary < FIRST_MERGE_ID:
        raise UsageError(
            f"A vocabulary of {vocabulary} is too small.", fix=f"Ask for {FIRST_MERGE_ID} or more."
        )
    counts = Counter(word for text in texts for word in words_of(text))
    words = [([SPECIAL_COUNT + byte for byte in word], n) for word, n in counts.items()]
    merges: list[tuple[int, int]] = []
    while FIRST_MERGE_ID + len(merges) < vocabulary:
        pairs = _pair_counts(words)
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        new_id = FIRST_MERGE_ID + len(merges)
        merges.append(best)
        words = [(_replace(ids, best, new_id) if best[0] in ids else ids, n) for ids, n in words]
    return Bpe(tuple(merges))


def _pair_counts(words: Sequence[tuple[list[int], int]]) -> Counter[tuple[int, int]]:
    pairs: Counter[tuple[int, int]] = Counter()
    for ids, n in words:
        for pair in pairwise(ids):
            pairs[pair] += n
    return pairs


def _replace(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
    left, right = pair
    out: list[int] = []
    position = 0
    while position < len(ids):
        if ids[position] == left and ids[position + 1 : position + 2] == [right]:
            out.append(new_id)
            position += 2
        else:
            out.append(ids[position])
            position += 1
    return out
