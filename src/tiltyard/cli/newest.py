"""Which run is meant when none is named."""

from pathlib import Path

from tiltyard.core.errors import UsageError
from tiltyard.core.verdict import Outcome
from tiltyard.store import RunReader

LOOKED_AT_MAX = 100
"""Runs in which nothing finished, such as demos stopped at once, are passed over: this many."""


def newest_run(runs_dir: Path, *, named: str) -> Path:
    """The newest run in which a rollout has finished.

    `named` is how the command is told of another, for the message: `with --run`, or `as RUN`.
    Raises `UsageError` when there is none.
    """
    indexes = runs_dir.glob("*/index.sqlite")
    runs = [
        path.parent for path in sorted(indexes, key=lambda path: path.stat().st_mtime, reverse=True)
    ]
    for directory in runs[:LOOKED_AT_MAX]:
        with RunReader(directory) as reader:
            # What a stop cut off is recorded too, as cancelled.
            if any(row.outcome is not Outcome.CANCELLED for row in reader.iter_rows()):
                return directory
    if runs:
        raise UsageError(
            f"no rollout has finished in {runs[0].absolute()}, the newest run.",
            fix="wait for one, or make another run: tiltyard run.",
        )
    raise UsageError(
        f"there is no run in {runs_dir.absolute()}.",
        fix=f"name {named} what --out of a run was, or make one: tiltyard run.",
    )
