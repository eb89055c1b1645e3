"""What a run of the benchmarks knows and shows: progress, rows, what was left out, the tables."""

import os
import platform
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rows import Row, percentile

WIDTH_MIN = 110
"""A piped output has no width of its own; narrower tables would be cut."""


_READING = """\
Figures are comparable only within one run: another run meets another load. p50 is what a caller
waited; per s counts also what the system had to do before the next. Ratios are ours / peer's."""


class Board:
    """Collects the rows of one run."""

    def __init__(self, *, seconds: float) -> None:
        """`seconds` is how long each system is measured, in each race."""
        self.seconds = seconds
        self.run = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.rows: list[Row] = []
        self.failed: list[str] = []
        console = Console()
        self._console = console if console.is_terminal else Console(width=WIDTH_MIN)
        self._left_out: dict[str, str] = {}

    def add(
        self, name: str, values: Sequence[float], *, unit: str, per_s: float | None, peer: bool
    ) -> None:
        """Adds the row of one system from what was measured of it, in `unit`."""
        p50, p95, p99 = (percentile(values, share) for share in (0.5, 0.95, 0.99))
        self.rows.append(
            Row(
                name=name,
                unit=unit,
                n=len(values),
                p50=p50,
                p95=p95,
                p99=p99,
                per_s=per_s,
                peer=peer,
                run=self.run,
                load_average=os.getloadavg()[0],
            )
        )

    def leave_out(self, name: str, why: str) -> None:
        """Says once that a peer has no row, and why."""
        if self._left_out.get(name) != why:
            self._left_out[name] = why
            self.say(f"left out: {name}: {why}")

    def fail(self, bench: str, why: str) -> None:
        """Notes that a benchmark of ours could not be run."""
        self.failed.append(bench)
        self.say(f"FAILED: {bench}: {why}")

    def say(self, text: str) -> None:
        """Prints a line as it is."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def advance(self, what: str, share: float) -> None:
        """Shows how far a race is: on a terminal each round, else only its end."""
        end = share >= 1.0
        if end or self._console.is_terminal:
            text = f"  {what:<24} {min(share, 1.0):4.0%}"
            self._console.print(text, end="\n" if end else "\r", highlight=False)

    def describe_machine(self) -> None:
        """Prints what the figures depend on. Called at both ends of a run: the load changes."""
        cores = len(os.sched_getaffinity(0))
        load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
        user = "root" if os.geteuid() == 0 else f"ordinary user {os.geteuid()}"
        self.say(
            f"{cores} cores, {platform.machine()}, Linux {platform.release()}, "
            f"Python {platform.python_version()}, {user}, load average {load}"
        )

    def show_tables(self) -> None:
        """Prints one table for each race, ours beside its peers with the ratios between them."""
        races: dict[str, list[Row]] = {}
        for row in self.rows:
            bench, _, system = row.name.partition("/")
            _, _, concurrency = system.partition("/c")
            title = f"{bench}, {concurrency} at once" if concurrency else f"{bench}, one at a time"
            races.setdefault(title, []).append(row)
        for title, rows in races.items():
            self._console.print(_table(title, rows))
        for name, why in self._left_out.items():
            self.say(f"left out: {name}: {why}")
        for bench in self.failed:
            self.say(f"FAILED: {bench}")
        self.say(_READING)


def _table(title: str, rows: Sequence[Row]) -> Table:
    """Latencies are compared where one is measured at a time, else what is done in a second."""
    peers = [row for row in rows if row.peer]
    by_rate = "/c" in rows[0].name
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("system", no_wrap=True)
    unit = rows[0].unit
    for heading in ("n", f"p50 {unit}", f"p95 {unit}", f"p99 {unit}", "per s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for peer in peers:
        table.add_column(f"{'per s' if by_rate else 'p50'} / {_system(peer)}", justify="right")
    for row in rows:
        cells = [f"{row.n}", *(f"{value:.2f}" for value in (row.p50, row.p95, row.p99))]
        cells.append("" if row.per_s is None else f"{row.per_s:.1f}")
        if not row.peer:
            cells += [_ratio(row, peer, by_rate=by_rate) for peer in peers]
        name = f"{_system(row)} (peer)" if row.peer else _system(row)
        table.add_row(name, *cells, style="dim" if row.peer else "")
    return table


def _system(row: Row) -> str:
    return row.name.split("/")[1]


def _ratio(ours: Row, peer: Row, *, by_rate: bool) -> str:
    if by_rate:
        return f"{ours.per_s / peer.per_s:.2f}" if ours.per_s and peer.per_s else ""
    return f"{ours.p50 / peer.p50:.2f}" if peer.p50 else ""
