"""`tiltyard show`: one rollout, turn by turn."""

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from tiltyard.cli.boundary import EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.judged import COLUMNS, check_rows, checks_left_out, tamper_lines, why_of
from tiltyard.cli.newest import newest_run
from tiltyard.cli.plain import json_tree, shown, visible
from tiltyard.cli.tables import print_table
from tiltyard.config import Settings
from tiltyard.core.execution import ExecResult
from tiltyard.core.trajectory import Prompt, Step, Trajectory
from tiltyard.core.verdict import Component, Reward, Verdict
from tiltyard.rollout.runs import rewarded_by_group
from tiltyard.store import RolloutRow, RowFilter, RunReader, RunStore

SHOWN_CHARACTERS_MAX = 20_000
LISTED_MAX = 100
LOST_SHOWN_MAX = 5
EVIDENCE_SHOWN_MAX = 3


async def show(
    rollout: str | None, run_dir: Path | None, settings: Settings, *, mend: bool, as_json: bool
) -> int:
    """Prints a rollout, or the list of them; `mend` first makes the index again.

    Raises `UsageError` when there is none or several of that name.
    """
    directory = run_dir or newest_run(settings.runs_dir, named="with --run")
    code = await _mend(directory) if mend else EXIT_OK
    with RunReader(directory) as reader:
        if rollout is None:
            _list(list(reader.iter_rows()), directory, as_json=as_json)
            return code
        trajectory = reader.read(reader.resolve(rollout))
        if as_json:
            print(json.dumps(json_tree(trajectory), indent=2))  # noqa: T201 - the command's output
        else:
            console = Console(highlight=False, markup=False)
            _print(trajectory, console)
            _print_reward_in_group(trajectory, reader, console)
    return code


async def _mend(directory: Path) -> int:
    """Makes index and records agree, says what that took, and returns the exit code."""
    store = RunStore.open(directory)
    await store.close()
    found = store.recovery
    if found.index_remade:
        errors.print(shown(f"the index was made again: {found.reindexed} rollouts"))
    elif found.reindexed:
        errors.print(shown(f"{found.reindexed} rollouts were added to the index"))
    if found.torn_bytes:
        errors.print(shown(f"{found.torn_bytes} bytes of unfinished records were cut off"))
    lost = [f"{place}; what it held is lost" for place in found.damaged]
    if found.lost:
        lost.append(f"{found.lost} rollouts are lost: their records are gone from {directory}")
    for line in lost[:LOST_SHOWN_MAX]:
        errors.print(shown(line, "red"))
    if len(lost) > LOST_SHOWN_MAX:
        errors.print(f"and {len(lost) - LOST_SHOWN_MAX} more")
    return EXIT_LOOK if lost else EXIT_OK


def _list(rows: Sequence[RolloutRow], directory: Path, *, as_json: bool) -> None:
    if as_json:
        lines = [
            {"rollout": row.id, "task": row.task_id, "outcome": row.outcome, "reward": row.reward}
            for row in rows
        ]
        print(json.dumps(lines, indent=2))  # noqa: T201 - the command's output
        return
    console = Console(highlight=False, markup=False)
    print_table(
        console,
        ("rollout", "outcome", "reward", "passed"),
        [
            (
                shown(row.id),
                row.outcome,
                "none" if row.reward is None else f"{row.reward:g}",
                f"{row.passed} of {row.checks}" if row.checks else "-",
            )
            for row in rows[-LISTED_MAX:]
        ],
        title=shown(f"{len(rows)} rollouts in {directory}"),
    )
    if len(rows) > LISTED_MAX:
        console.print(f"the last {LISTED_MAX}; --json lists all")


def _print(trajectory: Trajectory, console: Console) -> None:
    verdict = trajectory.verdict
    console.print(shown(trajectory.id, "bold"))
    console.print(shown(f"task {trajectory.task_id}, seed {trajectory.seed}"))
    code = "" if trajectory.prompt is None else trajectory.prompt.code
    if trajectory.prompt is not None:
        _print_prompt(trajectory.prompt, console)
    for number, step in enumerate(trajectory.steps, start=1):
        console.rule(f"turn {number} of {len(trajectory.steps)}", align="left")
        _print_step(step, code, console)
        code = step.code or code
    console.rule("verdict", align="left")
    if verdict.checks:
        print_table(console, COLUMNS, check_rows(verdict))
    if more := checks_left_out(verdict):
        console.print(f"and {more} more; --json lists all")
    if verdict.components:
        names = ("component", "measured", "reference", "share", "evidence")
        print_table(console, names, _component_rows(verdict.components))
    for line in tamper_lines(verdict):
        console.print(line)
    if trajectory.shared_verdict_of:
        owner = trajectory.shared_verdict_of
        console.print(shown(f"the verdict is that of the identical answer {owner}"))
    rewarded = _rewarded(verdict, trajectory.reward)
    console.print(shown(f"outcome {verdict.outcome}, {rewarded}"))
    versions = ", ".join(f"{name} {value}" for name, value in trajectory.versions.items() if value)
    console.print(shown(f"{trajectory.wall_s:.2f} s; {versions}", "dim"))


def _print_reward_in_group(trajectory: Trajectory, reader: RunReader, console: Console) -> None:
    """What a learner is given, where the rest of the group makes that another reward."""
    if trajectory.weights_lost:
        return
    group = reader.iter_trajectories(RowFilter(group=trajectory.group), on_damage=lambda _: None)
    for each in rewarded_by_group(group):
        if each.id == trajectory.id and each.reward.value != trajectory.reward.value:
            console.print(shown(f"in its group {_rewarded(each.verdict, each.reward)}"))


def _rewarded(verdict: Verdict, reward: Reward) -> str:
    value = "none" if reward.value is None else f"{reward.value:g}"
    return f"reward {value}: {why_of(verdict, reward)}"


def _component_rows(components: Sequence[Component]) -> Iterator[tuple[Text, ...]]:
    for each in components:
        measured = f"none: {each.gap}" if each.raw is None else f"{each.raw:g} {each.unit}".strip()
        reference = "-" if each.reference is None else f"{each.reference:g}"
        share = "-" if each.normalised is None else f"{each.normalised:.2f}"
        seen = [
            f"{found.path}:{found.line}: {found.code} {found.message}"
            if found.line
            # What is about no line is mostly about the whole.
            else f"{found.code} {found.message}".strip()
            for found in each.evidence[:EVIDENCE_SHOWN_MAX]
        ]
        more = len(each.evidence) - len(seen)
        words = "\n".join((*seen, f"and {more} more") if more > 0 else seen)
        row = (each.name, measured, reference, share, words)
        yield tuple(shown(_cut(text)) for text in row)


def _print_prompt(prompt: Prompt, console: Console) -> None:
    console.rule("task", align="left")
    console.print(shown(_cut(prompt.instruction)))
    if prompt.examples:
        console.print(Panel(shown(_cut(prompt.examples)), title="examples", title_align="left"))
    if prompt.code:
        console.print(Syntax(visible(_cut(prompt.code)), "python", line_numbers=True))


def _print_step(step: Step, before: str, console: Console) -> None:
    console.print(Panel(shown(_cut(step.reply.text)), title="reply", title_align="left"))
    if step.code is None:
        console.print(shown(f"no code: {step.problem}", "red"))
        return
    if before:
        lines = difflib.unified_diff(
            before.splitlines(), step.code.splitlines(), "before", "after", lineterm=""
        )
        console.print(Syntax(visible(_cut("\n".join(lines))) or "unchanged", "diff"))
    else:
        console.print(Syntax(visible(_cut(step.code)), "python", line_numbers=True))
    if step.execution is not None:
        console.print(shown(_execution(step.execution), "dim"))
    if step.observation is not None:
        console.print(Panel(shown(_cut(step.observation.text)), title="saw", title_align="left"))


def _execution(execution: ExecResult) -> str:
    how = {True: f"code {execution.exit_code}", False: f"signal {execution.signal}"}
    return (
        f"ran: {execution.reason} ({how[execution.signal is None]}), {execution.wall_s:.3f} s, "
        f"{execution.cpu_s:.3f} s CPU, peak {execution.memory_peak_bytes / 2**20:.1f} MiB, "
        f"isolation {execution.isolation}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}\n[...]"
