"""`tiltyard run`: rollouts of a policy over tasks, with progress, a table and a JSONL file."""

import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tiltyard.agents import ScriptedPolicy, parse_policy, read_fenced
from tiltyard.agents.script import ANY_TASK
from tiltyard.cli.boundary import EXIT_CANNOT, EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.judged import brief
from tiltyard.cli.plain import shown
from tiltyard.cli.progress import progress
from tiltyard.config import Settings
from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.execution import Enforcement, Limit, open_limits
from tiltyard.core.task import Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.core.weights import UNWEIGHTED
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import (
    SharedVerdicts,
    attempts,
    outcome_counts,
    rewarded_by_group,
    run_attempts,
)
from tiltyard.store import RunStore
from tiltyard.tasks.catalog import load_function_tasks
from tiltyard.verify.reward import reward_of
from tiltyard.verify.weights_file import read_weights
from tiltyard.wiring import open_judge, open_yard

RESULTS_FILE = "results.jsonl"
FAULT_KINDS_SHOWN = 3
UNANSWERED_SHOWN_MAX = 5
ENDED = frozenset(Outcome) - {Outcome.CANCELLED}
FAULTS = (Outcome.INFRA_FAULT, Outcome.GRADER_FAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the user asked for."""

    tasks: str
    policy: str
    samples: int
    turns: int
    concurrency: int
    seed: int
    out: Path | None
    """None: a new directory under the settings' `runs_dir`."""
    weights: Path | None
    """A TOML file; None: each task's own weights, and by default all of the tests or nothing."""
    judge: str | None
    """Who is asked about a rubric; None asks nobody."""
    as_json: bool


async def run(options: RunOptions, settings: Settings) -> int:
    """Makes the rollouts, records them, prints the results and returns the exit code."""
    tasks = load_function_tasks(options.tasks)
    weighting = UNWEIGHTED if options.weights is None else read_weights(options.weights)
    policy = parse_policy(options.policy, api_key=settings.openai_api_key, seed=options.seed)
    if isinstance(policy, ScriptedPolicy):
        _refuse_unanswered(policy, tasks)
    directory = options.out or new_run_directory(settings.runs_dir, "run")
    planned = attempts(tasks, samples=options.samples, seed=options.seed)
    trajectories: list[Trajectory] = []
    try:
        async with (
            open_judge(options.judge, api_key=settings.openai_api_key) as judge,
            RunStore.create(directory) as store,
        ):
            with progress(
                "rollouts", len(tasks) * options.samples, console=errors, quiet=options.as_json
            ) as advance:

                async def record(trajectory: Trajectory) -> None:
                    # First here: it is told to the user even if the disk then refuses it.
                    trajectories.append(trajectory)
                    advance(_result(trajectory))
                    await store.append(trajectory)

                async with open_yard(
                    sandboxes=options.concurrency,
                    warm=min(4, options.concurrency),
                    judge=judge,
                    cache_dir=settings.cache_dir,
                ) as yard:
                    tell_unenforced(yard.provider.enforced)
                    setting = Setting(
                        policy=policy,
                        read_answer=read_fenced,
                        pool=yard.pool,
                        spec=yard.spec,
                        verify=SharedVerdicts(yard.verifier.verify),
                        turns_max=options.turns,
                        observe=yard.verifier.observe,
                        weighting=weighting,
                    )
                    await run_attempts(
                        planned, setting, concurrency=options.concurrency, record=record
                    )
    except asyncio.CancelledError:
        tell_kept(sum(each.verdict.outcome in ENDED for each in trajectories), directory)
        raise
    finally:
        await policy.aclose()
        if trajectories:
            # Also after a stop: by what there is of each group, as `rescore` would.
            ended = sorted(rewarded_by_group(trajectories), key=lambda each: each.id)
            _print(ended, directory, as_json=options.as_json)
            write_whole(
                directory / RESULTS_FILE,
                "".join(f"{json.dumps(summary_line(each))}\n" for each in ended),
            )
    if not options.as_json:
        Console(highlight=False, markup=False).print(str(directory / RESULTS_FILE), soft_wrap=True)
    return exit_code(trajectory.verdict.outcome for trajectory in trajectories)


def _refuse_unanswered(policy: ScriptedPolicy, tasks: Sequence[Task]) -> None:
    """Before the first rollout, which would only be recorded as a fault."""
    lacking = policy.lacking(task.id for task in tasks)
    if not lacking:
        return
    more = len(lacking) - UNANSWERED_SHOWN_MAX
    named = ", ".join(lacking[:UNANSWERED_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    raise UsageError(
        f"{policy.name} has no answer for {len(lacking)} of {len(tasks)} tasks: {named}.",
        fix=f'Add one under each id, or under "{ANY_TASK}" for every other task.',
    )


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """What a run is to its caller: where nothing but faults of a server or a machine came of it,
    these could not do it."""
    seen = set(outcomes)
    if seen == {Outcome.INFRA_FAULT}:
        return EXIT_CANNOT
    return EXIT_LOOK if seen.intersection(FAULTS) else EXIT_OK


def tell_kept(finished: int, directory: Path) -> None:
    """After a stop: what there is to look at, if anything."""
    if finished:
        told = f"what had finished is kept: {finished} rollouts in {directory}"
    else:
        told = f"no rollout had finished; {directory} holds none"
    errors.print(shown(told, "yellow"))


def new_run_directory(runs_dir: Path, label: str) -> Path:
    """A name that no other run has: the time, the process, and what it was."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return runs_dir / f"{stamp}-{label}-{os.getpid()}"


def tell_unenforced(enforced: Mapping[Limit, Enforcement]) -> None:
    """One line about the limits that this machine does not hold, when there are any."""
    if limits := open_limits(enforced):
        errors.print(
            f"not held for a whole sandbox here: {', '.join(limits)}; tiltyard doctor says why",
            style="yellow",
        )


def _result(trajectory: Trajectory) -> str:
    if trajectory.verdict.outcome is not Outcome.GRADED:
        return trajectory.verdict.outcome
    return "solved" if _solved(trajectory) else "unsolved"


def _solved(trajectory: Trajectory) -> bool:
    """Whether the answer is right, whatever else its reward is made of."""
    return reward_of(trajectory.verdict).value == 1.0


def summary_line(trajectory: Trajectory) -> dict[str, object]:
    """One rollout as a line of `results.jsonl`."""
    verdict = trajectory.verdict
    return {
        "rollout": trajectory.id,
        "group": trajectory.group,
        "task": trajectory.task_id,
        "family": trajectory.family,
        "outcome": verdict.outcome,
        "reward": trajectory.reward.value,
        "why": trajectory.reward.why,
        "passed": verdict.passed,
        "checks": len(verdict.checks),
        "tamper": list(verdict.tamper),
        "turns": len(trajectory.steps),
        "wall_s": round(trajectory.wall_s, 4),
        "verify_wall_s": round(verdict.wall_s, 4),
        "seed": trajectory.seed,
        "shared_verdict_of": trajectory.shared_verdict_of,
        "versions": dict(trajectory.versions),
    }


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all. Raises `StoreError`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(
            f"{path} cannot be written: {error.strerror}.", fix="free space; the rollouts are kept."
        ) from None


def _print(trajectories: Sequence[Trajectory], directory: Path, *, as_json: bool) -> None:
    counts = outcome_counts(trajectories)
    if as_json:
        document = {
            "run": str(directory),
            "outcomes": {str(outcome): count for outcome, count in counts.items()},
            "mean_reward": _mean(trajectories),
            "rollouts": [summary_line(each) for each in trajectories],
        }
        print(json.dumps(document, indent=2))  # noqa: T201 - the command's output
        return
    console = Console(highlight=False, markup=False)
    console.print(_families(trajectories))
    told = ", ".join(f"{outcome} {count}" for outcome, count in counts.items() if count)
    mean = _mean(trajectories)
    console.print(f"outcomes: {told}; mean reward {'none' if mean is None else f'{mean:.3f}'}")
    for line in _fault_lines(trajectories):
        console.print(shown(line, "yellow"), soft_wrap=True)
    console.print(shown(f"see one: tiltyard show ID --run {directory}"), soft_wrap=True)


def _fault_lines(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """What went wrong, each kind once with how often, the most frequent first."""
    faults = [each for each in trajectories if each.verdict.outcome in FAULTS]
    counts = Counter((each.verdict.outcome, each.reward.why) for each in faults)
    for (outcome, why), count in counts.most_common(FAULT_KINDS_SHOWN):
        told = f"{outcome} {count} times" if count > 1 else outcome
        yield f"{told}: {brief(why)}"
    more = len(counts) - FAULT_KINDS_SHOWN
    if more > 0:
        yield f"and {more} other kinds of fault: see {RESULTS_FILE}"


def _mean(trajectories: Sequence[Trajectory]) -> float | None:
    """Over the rollouts that have a reward; None when none has."""
    rewards = [each.reward.value for each in trajectories if each.reward.value is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _families(trajectories: Sequence[Trajectory]) -> Table:
    grouped: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        grouped[trajectory.family].append(trajectory)
    table = Table(title="Results by family", title_justify="left")
    table.add_column("family", no_wrap=True)
    for name in ("rollouts", "solved", "mean reward", "faults", "turns"):
        table.add_column(name, justify="right")
    for family, members in sorted(grouped.items()):
        mean = _mean(members)
        table.add_row(
            shown(family),
            str(len(members)),
            str(sum(map(_solved, members))),
            "none" if mean is None else f"{mean:.2f}",
            str(sum(each.verdict.outcome in FAULTS for each in members)),
            f"{sum(len(each.steps) for each in members) / len(members):.1f}",
        )
    return table
