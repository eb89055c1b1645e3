"""The tables of `ls` and `top`."""

import time
from collections.abc import Mapping, Sequence

from rich.table import Table as Grid
from rich.text import Text

from tiltyard.cli.quantities import shown_duration, shown_size
from tiltyard.cli.yard.wire import Row, State

_STYLES = {State.LIVE: "green", State.DEAD: "yellow", State.LOST: "red"}


def listing(rows: Sequence[Row]) -> Grid:
    """Each sandbox with its age and its end."""
    grid = Grid(title=f"{len(rows)} sandboxes", title_justify="left")
    for name in ("id", "state", "age", "ends in", "memory", "CPU s"):
        grid.add_column(name, justify="left" if name in {"id", "state"} else "right")
    for row in rows:
        cpu = "-" if row.cpu_s is None else f"{row.cpu_s:.1f}"
        grid.add_row(
            Text(row.id),
            _state(row),
            *_times(row),
            shown_size(row.memory_bytes),
            cpu,
        )
    return grid


def readings(rows: Sequence[Row], shares: Mapping[str, float]) -> Grid:
    """What each sandbox uses now; `shares` are cores in use, by id."""
    live = [row for row in rows if row.state is State.LIVE]
    grid = Grid(title=f"{len(live)} live sandboxes", title_justify="left")
    for name in ("id", "CPU", "memory", "of", "peak", "pids", "of", "age", "ends in"):
        grid.add_column(name, justify="left" if name == "id" else "right")
    for row in sorted(live, key=lambda row: -shares.get(row.id, 0.0)):
        share = shares.get(row.id)
        grid.add_row(
            Text(row.id),
            "-" if share is None else f"{share:.0%}",
            shown_size(row.memory_bytes),
            shown_size(row.memory_bytes_max),
            shown_size(row.memory_peak_bytes),
            "-" if row.pids is None else str(row.pids),
            str(row.pids_max),
            *_times(row),
        )
    return grid


def shares_of(before: Sequence[Row], after: Sequence[Row], passed_s: float) -> dict[str, float]:
    """Cores that each sandbox used in between, by id; none of one that cannot be measured."""
    earlier = {row.id: row.cpu_s for row in before}
    shares: dict[str, float] = {}
    for row in after:
        start = earlier.get(row.id, 0.0)  # one that was made in between began with nothing
        if row.cpu_s is not None and start is not None and passed_s > 0:
            shares[row.id] = max(row.cpu_s - start, 0.0) / passed_s
    return shares


def _state(row: Row) -> Text:
    text = "lost with its daemon" if row.state is State.LOST else str(row.state)
    return Text(text, style=_STYLES[row.state])


def _times(row: Row) -> tuple[str, str]:
    now = time.time()
    if row.state is State.LOST:
        return "-", "-"
    return shown_duration(now - row.created_s), shown_duration(row.deadline_s - now)
