"""The demo's live display: on a terminal one panel that changes, elsewhere a line now and then."""

import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tiltyard.core.verdict import Outcome
from tiltyard.training.exchange import Started
from tiltyard.training.trainer import Moment
from tiltyard.wiring import Yard

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_POINTS = 60
_RATE_WINDOW_S = 10.0


class Display:
    """Shows a run. Use with `with`."""

    def __init__(self, console: Console, *, yard: Yard, directory: Path) -> None:
        self._console = console
        self._yard = yard
        self._directory = directory
        self._note = "starting the learner"
        self._moment: Moment | None = None
        self._rewards: deque[float] = deque(maxlen=_CURVE_POINTS)
        self._rates: deque[tuple[float, int]] = deque()
        self._said = ("", -1)
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._console.print(f"every trajectory is kept in {self._directory}", soft_wrap=True)
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def warm_start(self, progress: dict[str, Any]) -> None:
        """A warm start's progress, as the learner reports it."""
        step, steps_max = progress.get("step"), progress.get("steps_max")
        loss, exact = float(progress.get("loss", 0.0)), float(progress.get("exact_match", 0.0))
        self._note = (
            f"warm start: step {step} of {steps_max} at most, loss {loss:.2f}, "
            f"{exact:.0%} of repairs right"
        )
        self._say(self._note)

    def learner_started(self, started: Started | None) -> None:
        if started is None:
            return
        how = "read from the cache" if started.from_cache else "made"
        self._note = (
            f"{started.parameters / 1e6:.2f} M parameters; warm start {how}: "
            f"{started.warm_start_steps} steps, {started.exact_match:.3f} exact"
        )
        self._say(self._note)
        if started.cache_problem:
            self._console.print(
                Text(f"the warm start is not kept for next time: {started.cache_problem}")
            )

    def moment(self, moment: Moment) -> None:
        if moment.reward_mean is not None and (
            self._moment is None or moment.update != self._moment.update
        ):
            self._rewards.append(moment.reward_mean)
        self._moment = moment
        now = time.monotonic()
        self._rates.append((now, moment.rollouts))
        while self._rates[-1][0] - self._rates[0][0] > _RATE_WINDOW_S and len(self._rates) > 2:
            self._rates.popleft()
        key = (moment.phase, moment.update // 10)
        if key != self._said:
            self._said = key
            self._say(self._line(moment))

    def _say(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, soft_wrap=True)

    def _line(self, moment: Moment) -> str:
        reward = "" if moment.reward_mean is None else f" reward {moment.reward_mean:.3f}"
        latest = moment.validation
        checked = "" if latest is None else f" validation pass@1 {latest.pass_at_1:.3f}"
        return (
            f"{moment.elapsed_s:6.1f} s  {moment.phase}: update {moment.update}/{moment.updates}"
            f"{reward}{checked}; {moment.rollouts} rollouts, {self._rate():.0f} a second"
        )

    def _rate(self) -> float:
        if len(self._rates) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._rates[0], self._rates[-1]
        return (last - first) / max(last_s - first_s, 1e-9)

    def _render(self) -> Panel:
        moment = self._moment
        if moment is None:
            return Panel(Text(self._note), title="Tiltyard demo", title_align="left")
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column()
        for name, value in self._facts(moment):
            facts.add_row(name, value)
        bar = ProgressBar(total=moment.updates, completed=moment.update)
        title = f"Tiltyard demo: {moment.phase}, {moment.elapsed_s:.0f} s"
        return Panel(
            Group(Text(self._note, style="dim"), bar, facts), title=title, title_align="left"
        )

    def _facts(self, moment: Moment) -> list[tuple[str, str]]:
        latest = moment.validation
        faults = sum(
            moment.outcomes.get(outcome, 0)
            for outcome in (Outcome.INFRA_FAULT, Outcome.GRADER_FAULT)
        )
        checked = (
            "-"
            if latest is None
            else f"{latest.pass_at_1:.3f} ({latest.low:.3f} to {latest.high:.3f})"
        )
        reward = "-" if moment.reward_mean is None else f"{moment.reward_mean:.3f}"
        in_use = self._yard.pool.counts.in_use + self._yard.verifier.sandboxes
        return [
            ("update", f"{moment.update} of {moment.updates}"),
            ("reward", f"{reward}  {_curve(self._rewards)}"),
            ("pass@1 held out", checked),
            ("rollouts", f"{moment.rollouts}, {self._rate():.0f} a second"),
            ("sandboxes", str(in_use)),
            ("faults", str(faults)),
        ]


def _curve(values: deque[float]) -> str:
    """A curve of one line of text, from 0 to the largest value."""
    top = max(values, default=0.0) or 1.0
    return "".join(_BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] for value in values)
