"""The tokenizer gives every byte back, and is fitted to numbered code."""

import json

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.errors import UsageError
from tiltyard.training.bpe import FIRST_MERGE_ID, Bpe, learn_bpe, words_of

pytestmark = pytest.mark.train

CODE = b"1|def f(items):\n2|    for x in items:\n3|        if x > 3: return x\n4|    return -1\n"
LEARNED = learn_bpe([CODE] * 3, vocabulary=340)


@given(st.binary(max_size=300))
def test_any_bytes_come_back(text: bytes) -> None:
    assert LEARNED.decode(LEARNED.encode(text)) == text
    assert b"".join(words_of(text)) == text


@given(st.text(alphabet=" \n\t0123456789|abcdef(:=+)é", max_size=200))
def test_any_code_like_text_comes_back(text: str) -> None:
    assert LEARNED.decode(LEARNED.encode(text.encode())) == text.encode()


@given(st.binary(max_size=300))
def test_a_newline_only_ends_a_token(text: bytes) -> None:
    pieces = [LEARNED.decode([i]) for i in LEARNED.encode(text)]
    assert all(b"\n" not in piece[:-1] for piece in pieces)
    ends = set(LEARNED.line_end_ids)
    assert sum(i in ends for i in LEARNED.encode(text)) == text.count(b"\n")


def test_equal_texts_give_the_equal_tokenizer() -> None:
    again = learn_bpe([CODE] * 3, vocabulary=340)
    assert again == LEARNED
    assert again.digest == LEARNED.digest
    assert learn_bpe([CODE[:40]] * 3, vocabulary=300).digest != LEARNED.digest


def test_a_line_number_and_any_indentation_take_one_token_each() -> None:
    pieces = [LEARNED.decode([i]) for i in LEARNED.encode(b"3|        if x")]
    assert pieces == [b"3|", b"       ", b" if", b" x"]


def test_merges_are_learned_most_frequent_first_and_ties_go_to_the_smaller_ids() -> None:
    learned = learn_bpe([b"ab ab ab cd cd xy xy"], vocabulary=FIRST_MERGE_ID + 3)
    pieces = [learned.decode([i]) for i in range(FIRST_MERGE_ID, learned.vocabulary)]
    assert pieces == [b"ab", b" c", b" x"]


def test_json_gives_the_equal_tokenizer() -> None:
    assert Bpe.from_json(LEARNED.to_json()) == LEARNED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "other", "merges": []}',
        json.dumps({"format": "tiltyard-bpe-1", "merges": [[1, 5]]}),
        json.dumps({"format": "tiltyard-bpe-1", "merges": [[5, FIRST_MERGE_ID]]}),
        json.dumps({"format": "tiltyard-bpe-1", "merges": [[5]]}),
        json.dumps({"format": "tiltyard-bpe-1", "merges": 3}),
    ],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Bpe.from_json(text)


def test_no_word_is_long_however_hostile_the_text() -> None:
    for hostile in (b"a" * 10_000, b" " * 10_000, b"!" * 10_000, b"\xff" * 10_000, b"9" * 10_000):
        assert max(map(len, words_of(hostile))) <= 34
        assert LEARNED.decode(LEARNED.encode(hostile)) == hostile


def test_a_vocabulary_smaller_than_the_bytes_is_refused() -> None:
    with pytest.raises(UsageError):
        learn_bpe([CODE], vocabulary=100)
