"""What crosses between the two processes comes back unchanged, or is refused."""

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.errors import UsageError
from tiltyard.core.trajectory import PolicyTokens
from tiltyard.training.exchange import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    FrameDamaged,
    LearnedRollout,
    Question,
    Reply,
    frame_length,
    groups_from_json,
    groups_to_json,
    metrics_from_json,
    pack_frame,
    questions_from_json,
    questions_to_json,
    replies_from_json,
    replies_to_json,
    started_from_json,
    unpack_frame,
)
from tiltyard.training.recipe import Recipe, WarmStartPlan

pytestmark = pytest.mark.train

ids = st.lists(st.integers(0, 1000), max_size=5).map(tuple)


@st.composite
def tokens(draw: st.DrawFn) -> PolicyTokens:
    output = draw(ids)
    scores = st.floats(-50, 0, allow_nan=False)
    logprobs = draw(st.lists(scores, min_size=len(output), max_size=len(output)))
    return PolicyTokens(prompt_ids=draw(ids), output_ids=output, logprobs=tuple(logprobs))


questions = st.lists(st.builds(Question, key=st.text(), text=st.text(max_size=9)), max_size=9)
replies = st.lists(
    st.builds(
        Reply, text=st.text(), tokens=tokens(), truncated=st.booleans(), policy_version=st.just("7")
    ),
    max_size=9,
)
rollouts = st.builds(
    LearnedRollout,
    turns=st.lists(tokens(), max_size=2).map(tuple),
    reward=st.none() | st.floats(0, 1),
)
groups = st.lists(st.lists(rollouts, max_size=4), max_size=3)


@given(questions)
def test_questions_cross(asked: list[Question]) -> None:
    frame = pack_frame(questions_to_json(asked))
    assert questions_from_json(unpack_frame(frame[LENGTH_BYTES:])) == asked


@given(replies)
def test_replies_cross_to_the_last_bit_of_a_log_probability(given_replies: list[Reply]) -> None:
    frame = pack_frame(replies_to_json(given_replies))
    assert replies_from_json(unpack_frame(frame[LENGTH_BYTES:])) == given_replies


@given(groups)
def test_groups_cross(given_groups: list[list[LearnedRollout]]) -> None:
    frame = pack_frame(groups_to_json(given_groups))
    assert groups_from_json(unpack_frame(frame[LENGTH_BYTES:])) == given_groups


def test_a_shared_prompt_is_sent_once() -> None:
    turn = PolicyTokens(prompt_ids=tuple(range(100)), output_ids=(5,), logprobs=(-0.5,))
    group = [LearnedRollout(turns=(turn,), reward=1.0)] * 16
    assert groups_to_json([group])["prompts"] == [turn.prompt_ids]
    assert questions_to_json([Question(key=str(i), text="same") for i in range(9)])["texts"] == [
        "same"
    ]


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_never_crashes(body: bytes) -> None:
    for read in (questions_from_json, replies_from_json, groups_from_json, metrics_from_json):
        with pytest.raises(FrameDamaged):
            read(unpack_frame(body))
    with pytest.raises(FrameDamaged):
        started_from_json(unpack_frame(body))


@pytest.mark.parametrize(
    "head", [b"", b"\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"]
)
def test_a_length_out_of_bounds_is_refused(head: bytes) -> None:
    with pytest.raises(FrameDamaged):
        frame_length(head)


def test_a_frame_that_could_not_be_received_is_not_sent() -> None:
    with pytest.raises(FrameDamaged):
        pack_frame({"text": "x" * FRAME_BYTES_MAX})


def test_log_probabilities_must_match_their_tokens() -> None:
    with pytest.raises(FrameDamaged):
        groups_from_json({"prompts": [[1]], "groups": [[[1.0, [[0, [5, 6], [-0.1]]]]]]})


def test_a_recipe_crosses_and_a_strange_one_is_refused() -> None:
    recipe = Recipe(seed=3, warm_start=WarmStartPlan(steps_max=5))
    assert Recipe.from_json(recipe.to_json()) == recipe
    for strange in ({}, {"warm_start": {"x": 1}}, {**recipe.to_json(), "y": 1}):
        with pytest.raises(UsageError):
            Recipe.from_json(strange)


def test_the_learning_rate_rises_holds_and_falls() -> None:
    recipe = Recipe(
        updates=100, learning_rate=1.0, warm_up_updates=10, decay_from=0.5, learning_rate_last=0.02
    )
    assert recipe.learning_rate_at(0) == pytest.approx(0.1)
    assert recipe.learning_rate_at(9) == 1.0
    assert recipe.learning_rate_at(50) == 1.0
    assert recipe.learning_rate_at(75) == pytest.approx(0.5)
    assert recipe.learning_rate_at(99) == pytest.approx(0.02)
    assert recipe.learning_rate_at(500) == pytest.approx(0.02)


@pytest.mark.parametrize(
    "strange", [{"channels": 30, "heads": 4}, {"updates": 0}, {"temperature": 0.0}]
)
def test_a_recipe_that_is_no_run_is_refused(strange: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Recipe(**strange)
