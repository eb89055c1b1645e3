"""The `tiltyard` command: options and help texts. What one does is in the file of its name."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tiltyard import __version__
from tiltyard.cli.boundary import guarded, run_async
from tiltyard.cli.logs import set_up_logs
from tiltyard.cli.sandbox_options import app as sandbox_app
from tiltyard.config import load_settings
from tiltyard.core.errors import UsageError

_PERMISSIONS = "Correct its permissions, or name another directory."

app = typer.Typer(
    name="tiltyard",
    help="Sandboxes, verified rewards and kept trajectories for agent reinforcement learning.",
    epilog="Exit codes: 0 done, 1 done but look, 2 wrong usage, 3 this machine or a server could "
    "not, 70 a defect of ours, 130 stopped. Settings: see docs/settings.md.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _directory(text: str) -> Path:
    if not text:
        # Path would make it the current directory, and fill that.
        raise UsageError("the directory's name is empty.", fix="Name one, or leave the option out.")
    return Path(text)


def _run_directory(text: str) -> Path:
    """One to read. Whether it holds a run is seen when it is read."""
    path = _directory(text)
    try:
        refused = bool(path.stat()) and not os.access(path, os.R_OK | os.X_OK)
    except OSError as error:
        refused = isinstance(error, PermissionError)
    if refused:
        raise UsageError(f"you may not read {path}.", fix=_PERMISSIONS)
    return path


def _new_directory(text: str) -> Path:
    """One to make, where its user may."""
    path = _directory(text)
    above = next(each for each in (path, *path.absolute().parents) if os.access(each, os.F_OK))
    if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(f"you may not write to {above}.", fix=_PERMISSIONS)
    return path


Out = Annotated[
    Path | None,
    typer.Option(
        parser=_new_directory,
        metavar="DIRECTORY",
        help="Run directory to make; a new one under runs/ by default.",
    ),
]
TASKS_HELP = (
    "A pack, such as [bold]repair:heldout?count=20&seed=1[/bold], a .jsonl file or a "
    "task directory."
)
Tasks = Annotated[str, typer.Argument(metavar="TASKS", help=TASKS_HELP)]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="openai:URL#MODEL",
        help="Who is asked where a task has a rubric; nobody by default.",
    ),
]
app.add_typer(sandbox_app)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def run() -> None:
    """The console script."""
    guarded(lambda: app(standalone_mode=False))


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)  # noqa: T201 - the command's output
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    set_up_logs(load_settings().log_level)


@app.command()
def doctor(as_json: Json = False) -> int:
    """Try what sandboxes need of this machine, and say how to mend what is missing.

    Exits with 0 when all is well, 1 when a limit is held less strictly, 3 when no sandbox works.
    """
    from tiltyard.cli.doctor import doctor as work

    return run_async(work(as_json=as_json))


@app.command()
def conformance(
    provider: Annotated[str, typer.Option(help="The provider to try: native.")] = "native",
    only: Annotated[
        list[str] | None, typer.Option(help="A family or a case; may be given more than once.")
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Name the cases and what has to become of them.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Let over 150 hostile cases loose in sandboxes, and see that nothing comes of it.

    Exits with 0 when all were contained, what is not enforced here counted
    apart, 1 when one escaped or could not be judged.
    """
    from tiltyard.cli.conformance import conformance as work

    return run_async(work(provider, only=only or (), as_json=as_json, list_only=list_only))


@app.command(
    name="run",
    epilog="Example: tiltyard run examples/tasks.jsonl --policy scripted:examples/answers.jsonl",
)
def run_tasks(
    tasks: Tasks,
    policy: Annotated[
        str,
        typer.Option(
            help="Who answers: [bold]scripted:FILE[/bold], answers from a file (docs/tasks.md), "
            "or [bold]openai:URL#MODEL[/bold], a served model."
        ),
    ],
    samples: Annotated[int, typer.Option(min=1, max=1024, help="Rollouts per task.")] = 1,
    turns: Annotated[int, typer.Option(min=1, max=64, help="Turns per rollout, at most.")] = 3,
    concurrency: Annotated[
        int, typer.Option(min=1, max=4096, help="Rollouts at once, each in its own sandbox.")
    ] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the rollouts.")] = 0,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What rewards are made of, in TOML: docs/rewards.md."),
    ] = None,
    judge: Judge = None,
    out: Out = None,
    as_json: Json = False,
) -> int:
    """Let a policy attempt tasks in sandboxes, and keep every trajectory with its verdict.

    Exits with 0 also where answers are wrong, 1 when some rollouts ended by
    a fault of ours or of a task, 3 when a server or this machine did none.
    """
    from tiltyard.cli.run import RunOptions, run as work

    options = RunOptions(
        tasks=tasks,
        policy=policy,
        samples=samples,
        turns=turns,
        concurrency=concurrency,
        seed=seed,
        weights=weights,
        judge=judge,
        out=out,
        as_json=as_json,
    )
    return run_async(work(options, load_settings()))


@app.command(epilog="Example: tiltyard check examples/tasks.jsonl")
def check(
    tasks: Annotated[list[str], typer.Argument(metavar="TASKS...", help=TASKS_HELP)],
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Tasks checked at once.")] = 3,
    as_json: Json = False,
) -> int:
    """Try whether tasks can teach: the reference must pass; starter, nothing, constants must not.

    Exits with 0 when all are sound, 1 when one is not or could not be judged,
    2 when a task cannot be read.
    """
    from tiltyard.cli.check import check as work

    return run_async(work(tasks, load_settings(), concurrency=concurrency, as_json=as_json))


@app.command(epilog="Example: tiltyard redteam examples/sums --only a")
def redteam(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS...",
            help="Packs, .jsonl files or task directories, as for [bold]check[/bold].",
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A class, [bold]a[/bold] to [bold]h[/bold], or a cheat's id: see --list; "
            "may be given more than once."
        ),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Name the cheats, and what each of them tries.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Cheats tried at once.")] = 3,
    as_json: Json = False,
) -> int:
    """Try over two hundred cheats on tasks, and tell which of them were paid or went unscored.

    Exits with 0 when none was, 1 when one was or when a task cannot tell
    right from wrong, 3 when one could not be tried by a fault of ours.
    """
    from tiltyard.cli.redteam import redteam as work

    return run_async(
        work(
            tasks,
            load_settings(),
            only=only or (),
            concurrency=concurrency,
            as_json=as_json,
            list_only=list_only,
        )
    )


@app.command(epilog="Example: tiltyard verify examples/sums examples/sums/solution")
def verify(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="A task directory, a .jsonl file or a pack, with [bold]--id[/bold] where it has "
            "several tasks.",
        ),
    ],
    submission: Annotated[
        Path,
        typer.Argument(
            metavar="SUBMISSION", help="What an agent left: its directory, or its one file."
        ),
    ],
    task_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Which of several tasks.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What rewards are made of, in TOML: docs/rewards.md."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of new inputs, if the task has any; drawn by default."),
    ] = None,
    judge: Judge = None,
    as_json: Json = False,
) -> int:
    """Judge a submission: every check with its evidence, and the reward.

    Exits with 0 for full reward, 1 for less, 2 for wrong usage or a bad task,
    3 for no reward by a fault of ours.
    """
    from tiltyard.cli.verify import VerifyOptions, verify as work

    options = VerifyOptions(
        task=task,
        id=task_id,
        submission=submission,
        weights=weights,
        seed=seed,
        judge=judge,
        as_json=as_json,
    )
    return run_async(work(options, load_settings()))


@app.command(epilog="Example: tiltyard show mean.0")
def show(
    rollout: Annotated[
        str | None,
        typer.Argument(
            metavar="ROLLOUT",
            help="A rollout's id, or a unique beginning of it; without one they are listed.",
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run",
            parser=_run_directory,
            metavar="DIRECTORY",
            help="The run directory; by default the newest under runs/ with a finished rollout.",
        ),
    ] = None,
    mend: Annotated[
        bool, typer.Option("--mend", help="First make the index again, after a crash.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show a rollout turn by turn: code, diff, output, verdict, reward and why; or list them."""
    from tiltyard.cli.show import show as work

    return run_async(work(rollout, run_dir, load_settings(), mend=mend, as_json=as_json))


@app.command(epilog="Example: tiltyard rescore --weights examples/weights.toml")
def rescore(
    run_dir: Annotated[
        Path | None,
        typer.Argument(
            parser=_run_directory, metavar="RUN", help="The run's directory; by default the newest."
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The weights, in TOML: see docs/rewards.md; by default those that were recorded.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the rewards there, one JSON object a line."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Compute the rewards of a recorded run anew, group by group, without running anything.

    The records stay as they are. Exits with 0, or with 1 when a record could not be read.
    """
    from tiltyard.cli.rescore import rescore as work

    return run_async(work(run_dir, weights, out, load_settings(), as_json=as_json))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of model, tasks and sampling.")] = 0,
    out: Out = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute of it, to see that everything works.")
    ] = False,
) -> int:
    """Watch a small model learn to repair code from executed attempts; about 12 minutes.

    Needs the train extra. Ends with a table, a plot and summary.json, whose path is printed last.
    """
    from tiltyard.cli.demo import DemoOptions, demo as work

    return run_async(work(DemoOptions(seed=seed, out=out, quick=quick), load_settings()))
