"""`tiltyard redteam`: the built-in cheats against tasks, and what of them was accepted."""

import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltyard.cli.boundary import EXIT_CANNOT, EXIT_LOOK, EXIT_OK, errors
from tiltyard.cli.judged import brief
from tiltyard.cli.plain import json_tree, shown
from tiltyard.cli.progress import progress
from tiltyard.cli.run import tell_unenforced
from tiltyard.cli.tables import print_table
from tiltyard.config import Settings
from tiltyard.core.task import Task
from tiltyard.tasks.catalog import load_tasks
from tiltyard.tasks.redteam import Came, CheatReport, Ground, RedTeamReport, count_cheats, red_team
from tiltyard.verify.redteam.cheat import CLASSES, Cheat
from tiltyard.verify.redteam.collection import (
    cheats_for,
    chosen,
    refuse_unknown,
    wrong_answers,
)
from tiltyard.wiring import open_yard

LISTED_MAX = 200


async def redteam(
    texts: Sequence[str],
    settings: Settings,
    *,
    only: Sequence[str],
    concurrency: int,
    as_json: bool,
    list_only: bool,
) -> int:
    """Tries the cheats on the tasks that `texts` name, prints, and returns the exit code."""
    tasks = [task for text in texts for task in load_tasks(text)]
    refuse_unknown(only, [cheat.id for task in tasks for cheat in _all(task)] if only else ())
    if list_only:
        _list(tasks, only, as_json=as_json)
        return EXIT_OK
    reports: list[RedTeamReport] = []
    total = sum(count_cheats(task, only) for task in tasks)
    with progress("cheats", total, console=errors, quiet=as_json) as advance:
        async with open_yard(
            warm=0, verifications=concurrency, cache_dir=settings.cache_dir
        ) as yard:
            tell_unenforced(yard.provider.enforced)
            for task in tasks:
                report = await red_team(
                    task,
                    yard.verifier.verify,
                    only=only,
                    concurrency=concurrency,
                    told=lambda cheat: advance(cheat.came),
                )
                reports.append(report)
    if as_json:
        print(json.dumps(json_tree(reports), indent=2))  # noqa: T201 - the command's output
    else:
        _print(reports, Console(highlight=False, markup=False))
    if any(report.got_through for report in reports):
        return EXIT_LOOK
    if any(report.ground is Ground.UNDECIDED for report in reports):
        return EXIT_CANNOT
    return EXIT_LOOK if any(report.why for report in reports) else EXIT_OK


def _all(task: Task) -> tuple[Cheat, ...]:
    return cheats_for(task, wrong_answers(task)[0])


def _print(reports: Sequence[RedTeamReport], console: Console) -> None:
    through = [(report, cheat) for report in reports for cheat in report.got_through]
    if through:
        print_table(
            console,
            ("task", "cheat", "", "tries", "why"),
            [
                (
                    shown(report.task_id),
                    cheat.id,
                    Text(cheat.came, style="bold red" if cheat.came is Came.ACCEPTED else "red"),
                    cheat.about,
                    shown(brief(cheat.why)),
                )
                for report, cheat in through[:LISTED_MAX]
            ],
            ids=2,
            title="What got through",
        )
        if len(through) > LISTED_MAX:
            console.print(f"the first {LISTED_MAX}; --json lists all")
    for report in reports:
        if report.why:
            why = brief(report.why)
            told = shown(f"{report.task_id}: {report.ground}: {why}", "yellow")
            console.print(told, soft_wrap=True)
    tried = [cheat for report in reports for cheat in report.cheats]
    if tried:
        console.print(_totals(tried))
    sound = sum(report.ground is Ground.SOUND for report in reports)
    rest = f"; {len(reports) - sound} tasks not tried" if sound < len(reports) else ""
    console.print(f"{len(tried)} cheats on {sound} tasks: {_counted(tried)}{rest}")


def _totals(tried: Sequence[CheatReport]) -> Table:
    table = Table(title="By class", title_justify="left")
    table.add_column("class")
    for name in ("tried", *Came, "flagged as tampering"):
        table.add_column(name, justify="right")
    for letter, words in CLASSES.items():
        own = [cheat for cheat in tried if cheat.letter == letter]
        if own:
            counts = Counter(cheat.came for cheat in own)
            flagged = sum(bool(cheat.tamper) for cheat in own)
            figures = (len(own), *(counts[each] for each in Came), flagged)
            table.add_row(f"{letter.upper()} {words}", *map(str, figures))
    return table


def _counted(tried: Sequence[CheatReport]) -> str:
    counts = Counter(cheat.came for cheat in tried)
    return ", ".join(f"{counts[each]} {each}" for each in Came)


def _list(tasks: Sequence[Task], only: Sequence[str], *, as_json: bool) -> None:
    found = {cheat.id: cheat for task in tasks for cheat in chosen(only, _all(task))}
    if as_json:
        named = [
            {"id": each.id, "about": each.about, "aims": sorted(each.aims)}
            for each in found.values()
        ]
        print(json.dumps(named, indent=2))  # noqa: T201 - the command's output
        return
    print_table(
        Console(highlight=False, markup=False),
        ("cheat", "aims", "tries"),
        [(each.id, " ".join(sorted(each.aims)), each.about) for each in found.values()],
        title=f"{len(found)} cheats",
    )
