"""`tiltyard check`: whether tasks can be trusted to teach, before a model spends time on them."""

import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tiltyard.cli.boundary import EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.judged import brief
from tiltyard.cli.plain import json_tree, shown
from tiltyard.cli.progress import progress
from tiltyard.cli.run import tell_unenforced
from tiltyard.cli.tables import print_table
from tiltyard.config import Settings
from tiltyard.tasks.catalog import load_tasks
from tiltyard.tasks.check import Soundness, TaskReport, check_tasks
from tiltyard.wiring import open_yard

LISTED_MAX = 100


async def check(
    texts: Sequence[str], settings: Settings, *, concurrency: int, as_json: bool
) -> int:
    """Checks the tasks that `texts` name, prints what was found, and returns the exit code."""
    tasks = [task for text in texts for task in load_tasks(text)]
    with progress("tasks", len(tasks), console=errors, quiet=as_json) as advance:
        async with open_yard(
            warm=0, verifications=concurrency, cache_dir=settings.cache_dir
        ) as yard:
            tell_unenforced(yard.provider.enforced)
            reports = await check_tasks(
                tasks,
                yard.verifier.verify,
                concurrency=concurrency,
                told=lambda report: advance(report.soundness),
                verify_reference=yard.verifier.verify_reference,
            )
    if as_json:
        print(json.dumps(json_tree(reports), indent=2))  # noqa: T201 - the command's output
    else:
        _print(reports, Console(highlight=False, markup=False))
    sound = all(report.soundness is Soundness.SOUND for report in reports)
    return EXIT_OK if sound else EXIT_LOOK


def _print(reports: Sequence[TaskReport], console: Console) -> None:
    found = [report for report in reports if report.soundness is not Soundness.SOUND]
    if found:
        styles = {Soundness.UNSOUND: "red"}
        print_table(
            console,
            ("task", "", "problems"),
            [
                (
                    shown(report.task_id),
                    Text(report.soundness, style=styles.get(report.soundness, "yellow")),
                    shown("\n".join(map(brief, report.problems))),
                )
                for report in found[:LISTED_MAX]
            ],
            title="What is wrong with the tasks",
        )
        if len(found) > LISTED_MAX:
            console.print(f"the first {LISTED_MAX}; --json lists all")
    counts = Counter(report.soundness for report in reports)
    told = ", ".join(f"{counts[each]} {each}" for each in Soundness if counts[each])
    console.print(f"{len(reports)} tasks: {told}")
    best = max(reports, key=lambda report: report.baseline, default=None)
    if best is not None and best.baseline > 0:
        score = f"{best.baseline:.2f} ({best.baseline_of}, task {best.task_id})"
        console.print(shown(f"best constant answer: {score}"), soft_wrap=True)
