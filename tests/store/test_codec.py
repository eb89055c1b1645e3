"""Records come back exactly as they were, or are refused while the caller still holds them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sample_records import sample_trajectory
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Assurance, Component, Curve, Evidence, Gap, Reward, Verdict
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


@pytest.mark.parametrize("schema", [1, 2])
def test_a_record_of_an_older_version_is_read(schema: int) -> None:
    """The files were written by the versions of then."""
    text = (Path(__file__).parent / "records" / f"schema-{schema}.json").read_bytes()
    assert json.loads(text)["schema"] == schema
    old = decode_trajectory(text)
    now = sample_trajectory(2)
    assert old == (replace(now, prompt=None) if schema == 1 else now)
    assert old.verdict.assurance is None
    assert (old.verdict.components, old.verdict.baseline, old.reward.parts) == ((), 0.0, {})
    assert decode_trajectory(encode_trajectory(old)) == old


def test_everything_a_verdict_may_hold_comes_back() -> None:
    curve = Curve(name="time", x_unit="n", y_unit="s", points=((1.0, 0.5), (2.0, 1.0)), slope=1.0)
    component = Component(
        name="growth",
        raw=1.25,
        unit="power",
        normalised=0.5,
        gap=Gap.UNRESOLVED,
        reference=1.0,
        evidence=(Evidence(message="line é", code="C901", path="a.py", line=3, value=12.0),),
        curves=(curve,),
    )
    made = sample_trajectory(1)
    verdict = replace(
        made.verdict,
        components=(component,),
        assurance=Assurance.WATCHED,
        baseline=0.25,
        provenance={"suite": "abc"},
    )
    reward = Reward(value=0.5, why="half", parts={"tests": 0.25, "growth": 0.25})
    trajectory = replace(made, verdict=verdict, reward=reward)
    assert decode_trajectory(encode_trajectory(trajectory)) == trajectory


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
