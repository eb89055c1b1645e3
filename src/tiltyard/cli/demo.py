"""`tiltyard demo`: a small model learns to repair code by having its attempts executed.

Warm start, evaluation, reinforcement learning with verified rewards, evaluation; every trajectory
is kept. What is learned is the training room's business; this shows it and writes the report.
"""

import asyncio
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tiltyard.cli.boundary import EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.demo_display import Display
from tiltyard.cli.run import (
    ENDED,
    FAULTS,
    new_run_directory,
    tell_kept,
    tell_unenforced,
    write_whole,
)
from tiltyard.config import Settings
from tiltyard.core.errors import StoreError
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.store import RunStore
from tiltyard.training.demo_plan import DEMO_PLAN, DEMO_RECIPE, quick, within_time
from tiltyard.training.evaluation import Evaluation
from tiltyard.training.learner_client import LearnerClient, learner_process, require_torch
from tiltyard.training.trainer import Trainer, TrainPlan, TrainReport
from tiltyard.wiring import open_yard

SUMMARY_FILE, PLOT_FILE, POLICY_FILE = "summary.json", "learning.png", "policy.ckpt"
QUICK_WARNING = "A quick demo shows every part; it is too short to learn anything."
VERIFICATIONS = 4
"""Cells that verify at once: enough to keep one core busy while the learner has the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for."""

    seed: int
    out: Path | None
    """None: a new directory under the settings' `runs_dir`."""
    quick: bool
    """A run of a minute that shows the machinery and proves nothing about learning."""


async def demo(options: DemoOptions, settings: Settings) -> int:
    """Runs the whole of it; returns the exit code. Raises UsageError without the train extra."""
    require_torch()
    started = time.monotonic()
    plan = replace(DEMO_PLAN, seed=options.seed)
    recipe = replace(DEMO_RECIPE, seed=options.seed)
    if options.quick:
        plan, recipe = quick(plan, recipe)
    directory = options.out or new_run_directory(settings.runs_dir, "demo")
    console = Console(highlight=False, markup=False)
    told = _Told(console=console, started=started)

    async def record(trajectory: Trajectory) -> None:
        await store.append(trajectory)
        told.finished += trajectory.verdict.outcome in ENDED
        if trajectory.reward.value == 1.0:
            told.solved = trajectory.id

    tell_plan(console, plan, quick=options.quick, cache_dir=settings.cache_dir)
    try:
        async with (
            RunStore.create(directory) as store,
            open_yard(warm=0, verifications=VERIFICATIONS) as yard,
        ):
            tell_unenforced(yard.provider.enforced)
            with Display(console, yard=yard, directory=directory) as display:
                async with learner_process(
                    recipe, cache_dir=settings.cache_dir, report=display.warm_start
                ) as learner:
                    told.warm = True
                    display.learner_started(learner.started)
                    plan = within_time(plan, elapsed_s=time.monotonic() - started)
                    trainer = Trainer(
                        plan,
                        learner=learner,
                        pool=yard.pool,
                        spec=yard.spec,
                        verify=yard.verifier.verify,
                        record=record,
                        on_moment=display.moment,
                    )
                    report = await trainer.run()
                    await _finish(learner, report, plan, told, directory, quick=options.quick)
    except asyncio.CancelledError:
        tell_kept(told.finished, directory)
        if not told.warm:
            errors.print("the warm start was not finished: the next demo begins it anew")
        raise
    plotted = _plot(directory / PLOT_FILE, report)
    _print_next(console, directory, solved=told.solved, plotted=plotted)
    console.print(str(directory / SUMMARY_FILE), soft_wrap=True)
    faults = any(report.outcomes.get(outcome, 0) for outcome in FAULTS)
    return EXIT_LOOK if faults else EXIT_OK


@dataclass(slots=True, kw_only=True)
class _Told:
    """What the end, or a stop, has to tell of a demo."""

    console: Console
    started: float
    finished: int = 0
    solved: str = ""
    """A rollout that earned its reward; empty while none has."""
    warm: bool = False
    """Whether the warm start is there, and kept for the next demo."""


async def _finish(
    learner: LearnerClient,
    report: TrainReport,
    plan: TrainPlan,
    told: _Told,
    directory: Path,
    *,
    quick: bool,
) -> None:
    wall_s = time.monotonic() - told.started
    _print(told.console, report, wall_s=wall_s)
    if quick:
        told.console.print(QUICK_WARNING)
    figures = summary_of(report, plan, wall_s=wall_s)
    write_whole(directory / SUMMARY_FILE, f"{json.dumps(figures, indent=2)}\n")
    await learner.save(directory / POLICY_FILE)


def tell_plan(console: Console, plan: TrainPlan, *, quick: bool, cache_dir: Path) -> None:
    """What will happen, in which phases, and how long that takes."""
    length = "about a minute" if quick else "about 12 minutes"
    warm_start = "seconds" if quick else "2 to 4 minutes the first time"
    tested = f"{plan.test_tasks} held-out tasks and {plan.unseen_tasks} of unseen families"
    console.print(
        f"A small model learns to repair code from executed attempts, in {length}:\n"
        f"  1. warm start: it reads code and imitates repairs; {warm_start}, then kept in "
        f"{cache_dir}\n"
        f"  2. test before: {tested}, {plan.evaluation_samples} attempts each\n"
        f"  3. learning: {plan.updates} updates of {plan.groups} tasks, {plan.samples} attempts "
        f"each, {plan.budget_s:.0f} seconds at most\n"
        "  4. test after: the same tasks; then a table, a plot and summary.json",
        soft_wrap=True,
    )
    if quick:
        console.print(QUICK_WARNING)


def summary_of(report: TrainReport, plan: TrainPlan, *, wall_s: float) -> dict[str, Any]:
    """The figures of a run, as `summary.json` has them."""
    return {
        "seed": plan.seed,
        "heldout_pass_before": report.before.pass_at_1,
        "heldout_pass_after": report.after.pass_at_1,
        "heldout_before": asdict(report.before),
        "heldout_after": asdict(report.after),
        "unseen_before": asdict(report.unseen_before),
        "unseen_after": asdict(report.unseen_after),
        "families": len(plan.families),
        "updates": report.updates,
        "cut_short": report.cut_short,
        "rollouts": report.rollouts,
        "rollouts_per_s": report.learning_rollouts / max(report.learning_s, 1e-9),
        "outcomes": {str(outcome): report.outcomes.get(outcome, 0) for outcome in Outcome},
        "reward_curve": report.curve,
        "validation_curve": report.validation,
        "wall_s": wall_s,
    }


def _plot(path: Path, report: TrainReport) -> bool:
    """Draws the curves; False, and no file, where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
    axes.plot(*zip(*report.curve, strict=True), color="#9ab", label="reward of each batch")
    axes.plot(
        *zip(*report.validation, strict=True), "o-", color="#136", label="validation tasks, pass@1"
    )
    for where, held, unseen in (
        (0, report.before, report.unseen_before),
        (report.updates, report.after, report.unseen_after),
    ):
        for evaluation, colour in ((held, "#d60"), (unseen, "#484")):
            middle = evaluation.pass_at_1
            bounds = [[middle - evaluation.low], [evaluation.high - middle]]
            axes.errorbar([where], [middle], yerr=bounds, fmt="s", color=colour, capsize=4)
    axes.plot([], [], "s", color="#d60", label="held-out test tasks (95% interval)")
    axes.plot([], [], "s", color="#484", label="families never trained on (95% interval)")
    axes.set(xlabel="update", ylabel="pass@1", ylim=(0, 1), title="Learning to repair code")
    axes.legend(loc="upper left", frameon=False)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        plt.close(figure)
    return True


def _print(console: Console, report: TrainReport, *, wall_s: float) -> None:
    table = Table(title="Sampled pass@1 before and after", title_justify="left")
    for name in ("tasks", "families", "before", "after", "times"):
        table.add_column(name, justify="left" if name == "tasks" else "right")
    for label, before, after in (
        ("held out, families trained on", report.before, report.after),
        ("families never trained on", report.unseen_before, report.unseen_after),
    ):
        times = after.pass_at_1 / before.pass_at_1 if before.pass_at_1 else None
        table.add_row(
            f"{after.tasks} {label}",
            str(after.families),
            _interval(before),
            _interval(after),
            "-" if times is None else f"{times:.1f}",
        )
    console.print(table)
    rate = report.learning_rollouts / max(report.learning_s, 1e-9)
    told = ", ".join(f"{outcome} {count}" for outcome, count in sorted(report.outcomes.items()))
    console.print(f"{report.rollouts} rollouts, {rate:.0f} a second while learning; {told}")
    console.print(f"{report.updates} updates in {report.learning_s:.0f} s; {wall_s:.0f} s in all")
    if report.cut_short:
        console.print("The time was up before the plan was done: this run does not repeat exactly.")


def _print_next(console: Console, directory: Path, *, solved: str, plotted: bool) -> None:
    """`solved` is a rollout that earned its reward; empty when none did."""
    console.print("Where to look next:")
    if solved:
        command = f"tiltyard show {solved} --run {directory}"
        console.print(f"  {command}   an attempt that was right", soft_wrap=True)
    if plotted:
        console.print(f"  {directory / PLOT_FILE}   the curves", soft_wrap=True)
    console.print("  docs/training.md   how it learns")


def _interval(evaluation: Evaluation) -> str:
    return f"{evaluation.pass_at_1:.3f} ({evaluation.low:.3f} to {evaluation.high:.3f})"
