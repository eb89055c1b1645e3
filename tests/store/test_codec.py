"""Records come back exactly as they were, or are refused while the caller still holds them."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sample_records import sample_trajectory
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Reward, Verdict
from tiltyard.store.codec import SCHEMA, decode_trajectory, encode_trajectory


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.from_type(Trajectory))
def test_any_trajectory_comes_back(trajectory: Trajectory) -> None:
    text = encode_trajectory(trajectory)
    decoded = decode_trajectory(text)
    assert encode_trajectory(decoded) == text
    assert decoded == trajectory or b"NaN" in text  # NaN is unequal to itself


@given(st.text(st.characters()))
def test_any_text_comes_back_lone_surrogates_included(text: str) -> None:
    trajectory = replace(sample_trajectory(1), family=text, versions={text: text})
    assert decode_trajectory(encode_trajectory(trajectory)) == trajectory


def test_adjacent_surrogates_stay_two() -> None:
    trajectory = replace(sample_trajectory(1), family="\ud83d\ude00")
    assert decode_trajectory(encode_trajectory(trajectory)).family == "\ud83d\ude00"


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1])
def test_floats_keep_every_bit(value: float) -> None:
    trajectory = replace(sample_trajectory(1), wall_s=value)
    assert decode_trajectory(encode_trajectory(trajectory)).wall_s.hex() == value.hex()


def test_nan_comes_back() -> None:
    trajectory = replace(sample_trajectory(1), reward=Reward(value=math.nan, why=""))
    value = decode_trajectory(encode_trajectory(trajectory)).reward.value
    assert value is not None
    assert math.isnan(value)


def test_every_byte_comes_back() -> None:
    trajectory = sample_trajectory(1)
    execution = trajectory.steps[0].execution
    assert execution is not None
    stdout = replace(execution.stdout, head=bytes(range(256)))
    step = replace(trajectory.steps[0], execution=replace(execution, stdout=stdout))
    trajectory = replace(trajectory, steps=(step,))
    assert decode_trajectory(encode_trajectory(trajectory)) == trajectory


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("seed", 1.5, r"trajectory\.seed: expected an integer, not float"),
        ("seed", True, r"trajectory\.seed"),
        ("wall_s", "long", r"trajectory\.wall_s"),
        ("family", b"sums", r"trajectory\.family"),
        ("steps", [], r"trajectory\.steps: expected a tuple"),
        ("verdict", None, r"trajectory\.verdict: expected Verdict"),
        ("versions", ("policy", "7"), r"trajectory\.versions"),
        ("verdict", Verdict(outcome="graded"), r"trajectory\.verdict\.outcome"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_back_is_refused(field: str, value: Any, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        encode_trajectory(replace(sample_trajectory(1), **{field: value}))


def test_a_record_from_before_prompts_were_kept_is_read() -> None:
    tree = json.loads(encode_trajectory(sample_trajectory(1)))
    del tree["trajectory"]["prompt"]
    old = json.dumps({**tree, "schema": 1}).encode()
    assert decode_trajectory(old) == replace(sample_trajectory(1), prompt=None)


def changed(**fields: Any) -> bytes:
    """A record's text with fields of the trajectory replaced, or removed where None."""
    tree = json.loads(encode_trajectory(sample_trajectory(1)))
    tree["trajectory"].update(fields)
    tree["trajectory"] = {k: v for k, v in tree["trajectory"].items() if v is not None}
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "not a trajectory record"),
        (
            json.dumps({"schema": SCHEMA + 1, "trajectory": {}}).encode(),
            f"record schema {SCHEMA + 1}",
        ),
        (changed(weather="fine"), "unknown field weather"),
        (changed(seed=None), "field seed is missing"),
        (changed(seed="1"), r"trajectory\.seed: expected an integer"),
        (changed(steps={}), r"trajectory\.steps: expected a list"),
        (changed(verdict={"outcome": "fine"}), r"trajectory\.verdict\.outcome"),
    ],
)
def test_what_was_not_written_here_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_trajectory(text)


def test_a_record_from_before_an_optional_field_is_read() -> None:
    assert decode_trajectory(changed(versions=None)).versions == {}
