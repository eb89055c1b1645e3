"""`tiltyard rescore`: the rewards of a recorded run, group by group, by its weights or others.

Nothing is run or changed.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tiltyard.cli.boundary import EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.judged import brief
from tiltyard.cli.newest import newest_run
from tiltyard.cli.plain import json_tree, shown
from tiltyard.cli.tables import print_table
from tiltyard.config import Settings
from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.verdict import Reward, Verdict
from tiltyard.core.weights import UNWEIGHTED, Weighting, Weights
from tiltyard.store import RunReader
from tiltyard.verify.reward import Judged, rewards_of_run
from tiltyard.verify.weights_file import read_weights

LISTED_MAX = 50
DAMAGED_SHOWN_MAX = 5
SAME = 1e-12
"""A reward that differs by less was only summed in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """One recorded rollout with its reward of then and of now."""

    rollout: RolloutId
    group: GroupId
    task: TaskId
    old: float | None
    """As it was recorded: for this rollout by itself; None when it carried no reward."""
    reward: Reward
    weights: str
    """The digest of the weights that gave `reward`."""

    @property
    def changed(self) -> bool:
        """Whether the reward is another one, or there is one where there was none."""
        old, new = self.old, self.reward.value
        if old is None or new is None:
            return old is not new
        return not abs(old - new) <= SAME  # also where a record holds no number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What is kept of a record: a run's trajectories together may not fit into memory."""

    rollout: RolloutId
    group: GroupId
    task: TaskId
    old: float | None
    verdict: Verdict
    weights: Weights | None
    """What `old` was made with; None for the default weights."""
    weights_lost: bool


async def rescore(
    run_dir: Path | None,
    weights_file: Path | None,
    out: Path | None,
    settings: Settings,
    *,
    as_json: bool,
) -> int:
    """Prints old and new rewards, writes them to `out` if asked, and returns the exit code.

    `run_dir` None is the newest run. `weights_file` None takes for each rollout the weights that
    its record holds, now that whole groups are known. Raises `UsageError` for weights that do not
    fit, for what is no run, and for an `out` that exists already.
    """
    weighting = UNWEIGHTED if weights_file is None else read_weights(weights_file)
    _refuse_if_there(out)
    run_dir = run_dir or newest_run(settings.runs_dir, named="as RUN")
    damaged: list[StoreError] = []
    with RunReader(run_dir) as reader:
        read = [
            _Read(
                rollout=each.id,
                group=each.group,
                task=each.task_id,
                old=each.reward.value,
                verdict=each.verdict,
                weights=each.weights,
                weights_lost=each.weights_lost,
            )
            for each in reader.iter_trajectories(on_damage=damaged.append)
        ]
    if weights_file is None and (lost := [each.rollout for each in read if each.weights_lost]):
        raise UsageError(
            f"the record of {lost[0]} names its weights and does not hold them.",
            fix="Give --weights the file that the run was made with.",
        )
    rescored = _rescored(read, weighting)
    if out is not None:
        _write(out, rescored)
    if as_json:
        _print_json(rescored, damaged)
    else:
        _print(rescored, run_dir, Console(highlight=False, markup=False))
    for error in damaged[:DAMAGED_SHOWN_MAX]:
        errors.print(shown(str(error), "red"))
    if len(damaged) > DAMAGED_SHOWN_MAX:
        errors.print(f"and {len(damaged) - DAMAGED_SHOWN_MAX} more")
    if damaged:
        errors.print(shown(f"{len(damaged)} records cannot be read and were left out", "red"))
    return EXIT_LOOK if damaged else EXIT_OK


def _refuse_if_there(out: Path | None) -> None:
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already.", fix="name another file, or remove that one.")


def _rescored(read: Sequence[_Read], weighting: Weighting) -> tuple[Rescored, ...]:
    """In the order of the records; each group is weighed as one."""
    judged = [
        Judged(
            group=each.group,
            task=each.task,
            weights=weighting.of(each.task, each.weights),
            verdict=each.verdict,
        )
        for each in read
    ]
    return tuple(
        Rescored(
            rollout=each.rollout,
            group=each.group,
            task=each.task,
            old=each.old,
            reward=reward,
            weights=one.weights.digest,
        )
        for each, one, reward in zip(read, judged, rewards_of_run(judged), strict=True)
    )


def _lines(rescored: Iterable[Rescored]) -> Iterable[str]:
    for each in rescored:
        line = {
            "rollout": each.rollout,
            "group": each.group,
            "task": each.task,
            "old": each.old,
            "reward": each.reward.value,
            "parts": each.reward.parts,
            "why": each.reward.why,
            "weights": each.weights,
        }
        yield json.dumps(json_tree(line))


def _write(out: Path, rescored: Iterable[Rescored]) -> None:
    try:
        # Never over anything: the path may be one of the run's own files.
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
                file.writelines(f"{line}\n" for line in _lines(rescored))
        except BaseException:
            out.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"{out} cannot be written: {error.strerror}.", fix="name a file that can be."
        ) from error


def _print_json(rescored: Sequence[Rescored], damaged: Sequence[StoreError]) -> None:
    summary = {
        **{name: _figures(values) for name, values in _sides(rescored)},
        "changed": sum(each.changed for each in rescored),
        "damaged": [str(error) for error in damaged],
        "rollouts": [json.loads(line) for line in _lines(rescored)],
    }
    print(json.dumps(summary, indent=2))  # noqa: T201 - the command's output


def _sides(rescored: Sequence[Rescored]) -> list[tuple[str, list[float | None]]]:
    return [
        ("old", [each.old for each in rescored]),
        ("new", [each.reward.value for each in rescored]),
    ]


def _figures(values: Sequence[float | None]) -> dict[str, float | int | None]:
    rewarded = [value for value in values if value is not None]
    return {
        "rollouts": len(values),
        "without_reward": len(values) - len(rewarded),
        "full": sum(value == 1.0 for value in rewarded),
        "mean": sum(rewarded) / len(rewarded) if rewarded else None,
    }


def _print(rescored: Sequence[Rescored], run_dir: Path, console: Console) -> None:
    table = Table(title=f"{len(rescored)} rollouts in {run_dir}", title_justify="left")
    for name in ("rewards", "mean", "full", "none"):
        table.add_column(name)
    for name, values in _sides(rescored):
        figures = _figures(values)
        mean = "-" if figures["mean"] is None else f"{figures['mean']:.4f}"
        table.add_row(name, mean, str(figures["full"]), str(figures["without_reward"]))
    console.print(table)
    changed = [each for each in rescored if each.changed]
    console.print(f"{len(changed)} of {len(rescored)} rewards changed")
    if not changed:
        return
    print_table(
        console,
        ("rollout", "old", "new", "why"),
        [
            (
                shown(each.rollout),
                _number(each.old),
                _number(each.reward.value),
                shown(brief(each.reward.why)),
            )
            for each in changed[:LISTED_MAX]
        ],
    )
    if len(changed) > LISTED_MAX:
        console.print(f"the first {LISTED_MAX}; --json lists all")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
