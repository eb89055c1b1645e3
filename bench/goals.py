"""What our own figures are to be, and how they compare. A goal missed is shown and fails nothing.

The goals are for a quiet machine of two cores.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from rows import Row


class Figure(StrEnum):
    """A field of a row."""

    P50 = "p50"
    P99 = "p99"
    PER_S = "per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """At most `bound` of a row's figure; at least, where it is a rate."""

    row: str
    figure: Figure = Figure.P50
    bound: float


GOALS = (
    Goal(row="sandbox/native-warm", bound=1.5),
    Goal(row="sandbox/native-warm", figure=Figure.P99, bound=10.0),
    Goal(row="sandbox/native-cold", bound=3.0),
    Goal(row="sandbox/native-exec", bound=0.6),
    Goal(row="sustained/native-cold/c2", figure=Figure.PER_S, bound=600.0),
    Goal(row="idle/native-1000", bound=0.5),
    Goal(row="fork/native-1000", bound=3.0),
    Goal(row="live/native-2000", bound=0.5),
    Goal(row="live-up/native-2000", bound=60.0),
    Goal(row="line/kept-interpreter", bound=4.0),
    Goal(row="pytest/kept-interpreter", bound=45.0),
    Goal(row="verification/split-calls", bound=15.0),
    Goal(row="verification-load/split-calls/c8", figure=Figure.PER_S, bound=150.0),
)


def compared(rows: Iterable[Row]) -> Iterator[str]:
    """One line for each goal whose row was measured."""
    by_name = {row.name: row for row in rows}
    for goal in GOALS:
        row = by_name.get(goal.row)
        value = None if row is None else getattr(row, goal.figure)
        if row is None or value is None:
            continue
        rate = goal.figure is Figure.PER_S
        met = value >= goal.bound if rate else value <= goal.bound
        unit = "a second" if rate else f"{row.unit} {goal.figure}"
        sign = ">=" if rate else "<="
        verdict = "met" if met else "MISSED"
        yield f"goal {goal.row:<26} {value:8.2f} {unit:<9} {sign} {goal.bound:<6g} {verdict}"
