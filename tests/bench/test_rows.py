"""What bench/results.json promises to whoever reads it: its fields, its merging, its wholeness."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rows import Row, merge_rows, percentile, read_rows
from tiltyard.core.errors import UsageError

ROW = Row(
    name="sandbox/native-warm",
    unit="ms",
    n=3,
    p50=1.0,
    p95=2.0,
    p99=2.0,
    per_s=700.0,
    peer=False,
    run="2025-01-01T00:00:00Z",
    load_average=0.5,
)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 5.0), (0.51, 6.0), (0.95, 10.0), (1.0, 10.0)]
)
def test_percentiles_of_ten_values(share: float, expected: float) -> None:
    values = [float(value) for value in (7, 1, 10, 4, 2, 9, 3, 8, 5, 6)]
    assert percentile(values, share) == expected


@given(
    st.lists(st.floats(allow_nan=False), min_size=1), st.floats(min_value=0.001, max_value=0.999)
)
def test_a_percentile_is_the_smallest_value_that_covers_its_share(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile(values, share)


def test_a_row_has_the_promised_fields(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_rows(path, [ROW, replace(ROW, name="queue/depth", per_s=None, peer=True)])
    first, second = json.loads(path.read_text())
    assert first == {
        "name": "sandbox/native-warm",
        "unit": "ms",
        "n": 3,
        "p50": 1.0,
        "p95": 2.0,
        "p99": 2.0,
        "per_s": 700.0,
        "peer": False,
        "run": "2025-01-01T00:00:00Z",
        "load_average": 0.5,
    }
    assert "per_s" not in second
    assert second["peer"] is True


def test_rows_are_replaced_by_name_and_the_others_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    later = {"name": "ledger/submit", "unit": "us", "n": 1, "peer": False, "only_theirs": [1]}
    merge_rows(path, [ROW])
    path.write_text(json.dumps([*json.loads(path.read_text()), later]))
    merge_rows(path, [replace(ROW, name="sandbox/bwrap", peer=True), replace(ROW, n=9)])
    rows = read_rows(path)
    assert [row["name"] for row in rows] == [
        "sandbox/native-warm",
        "ledger/submit",
        "sandbox/bwrap",
    ]
    assert rows[0]["n"] == 9
    assert rows[1] == later


def test_merging_nothing_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_rows(path, [ROW])
    before = path.read_text()
    merge_rows(path, [])
    assert path.read_text() == before


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"unit": "ms"}]', '[{"name": "a"}', "\xff"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=r"results\.json"):
        merge_rows(path, [ROW])
    assert path.read_text(encoding="latin-1") == content


def test_the_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_rows(path, [ROW])
    with path.open() as reader:  # who has it open goes on reading the whole old one
        merge_rows(path, [replace(ROW, name="sandbox/bwrap")])
        assert [row["name"] for row in json.load(reader)] == [ROW.name]
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"]
