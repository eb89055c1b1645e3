"""Goals are compared with what was measured, and with nothing else."""

from dataclasses import replace

from bench.test_rows import ROW
from goals import GOALS, Figure, compared


def test_a_goal_is_met_or_missed_by_its_own_figure() -> None:
    row = replace(ROW, name="sandbox/native-warm", p50=1.2, p99=12.0)
    p50, p99 = compared([row])
    assert p50.split()[1:4] == ["sandbox/native-warm", "1.20", "ms"]
    assert p50.endswith("met")
    assert p99.endswith("MISSED")


def test_a_rate_is_to_be_reached() -> None:
    row = replace(ROW, name="sustained/native-cold/c2", per_s=600.0)
    assert [line.split()[-1] for line in compared([row])] == ["met"]
    assert [line.split()[-1] for line in compared([replace(row, per_s=599.0)])] == ["MISSED"]


def test_what_thousands_cost_is_compared_in_its_own_unit() -> None:
    cost = replace(ROW, name="live/native-2000", unit="MB", p50=0.45, per_s=100.0)
    filled = replace(ROW, name="live-up/native-2000", unit="s", p50=61.0, per_s=33.0)
    for line, unit, verdict in zip(
        compared([cost, filled]), ("MB", "s"), ("met", "MISSED"), strict=True
    ):
        assert line.split()[3] == unit
        assert line.endswith(verdict)


def test_what_was_not_measured_is_not_compared() -> None:
    assert list(compared([replace(ROW, name="another/system")])) == []
    rates = {goal.row for goal in GOALS if goal.figure is Figure.PER_S}
    assert list(compared([replace(ROW, name=name, per_s=None) for name in rates])) == []
