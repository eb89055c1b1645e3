"""`tiltyard verify`: judges one submission and shows what the reward rests on.

Exit codes: 0 full reward, 1 graded below that, 2 wrong usage or a bad task, 3 no reward because of
a fault of ours. A grader fault that lies in the task, such as a failing reference, is a bad task.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import assert_never

from rich.console import Console
from rich.text import Text

from tiltyard import __version__
from tiltyard.cli.boundary import EXIT_CANNOT, EXIT_LOOK, EXIT_OK, EXIT_USAGE, errors
from tiltyard.cli.judged import (
    CHECKS_SHOWN_MAX,
    COLUMNS,
    check_rows,
    checks_left_out,
    tamper_lines,
    why_of,
)
from tiltyard.cli.plain import json_tree, shown
from tiltyard.cli.progress import phases
from tiltyard.cli.tables import print_table
from tiltyard.config import Settings
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import CheckStatus, Component, Gap, Outcome, Reward, Verdict
from tiltyard.core.weights import UNWEIGHTED
from tiltyard.store.codec import SCHEMA
from tiltyard.tasks.catalog import load_task
from tiltyard.tasks.submissions import read_submission
from tiltyard.verify.judge.rubric import Judge
from tiltyard.verify.reward import reward_of
from tiltyard.verify.weights_file import read_weights
from tiltyard.wiring import open_judge, open_verifier

FULL = 1.0
EVIDENCE_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What the user asked for."""

    task: str
    """What names it, as for `check`."""
    id: str | None
    """Which task, where `task` names several; None: it names one."""
    submission: Path
    weights: Path | None
    """A TOML file; None: the task's own weights, if it has any."""
    seed: int | None
    """Of new inputs; None draws one."""
    judge: str | None
    """Who is asked about a rubric; None asks nobody."""
    as_json: bool


async def verify(options: VerifyOptions, settings: Settings) -> int:
    """Judges what lies at a path, prints what was found and returns the exit code.

    Raises TaskError for a bad task and for none or several, and UsageError where there is no
    submission, for weights that cannot be read and for a judge that is none.
    """
    weights = options.weights
    weighting = UNWEIGHTED if weights is None else await asyncio.to_thread(read_weights, weights)
    task = await asyncio.to_thread(load_task, options.task, options.id)
    submission = await asyncio.to_thread(read_submission, options.submission, task)
    async with open_judge(options.judge, api_key=settings.openai_api_key) as judge:
        verdict = await _verdict(task, submission, judge, options, cache_dir=settings.cache_dir)
    reward = reward_of(verdict, weighting.of(task.id, task.weights))
    if options.as_json:
        print(json.dumps(document(verdict, reward), indent=2))  # noqa: T201 - the command's output
    else:
        console = Console(highlight=False, markup=False)
        _print(task, verdict, reward, console)
        for words in (unpaid(verdict, reward), not_run(task, submission)):
            if words:
                console.print(shown(words, "yellow"), soft_wrap=True)
    return exit_code(verdict, reward)


async def _verdict(
    task: Task,
    submission: Submission,
    judge: Judge | None,
    options: VerifyOptions,
    *,
    cache_dir: Path,
) -> Verdict:
    with phases("the sandboxes", console=errors, quiet=options.as_json) as tell:
        async with open_verifier(judge=judge, cache_dir=cache_dir) as verifier:
            return await verifier.verify(task, submission, seed=options.seed, told=tell)


def exit_code(verdict: Verdict, reward: Reward) -> int:
    """What the verdict is to the caller of the command."""
    match verdict.outcome:
        case Outcome.GRADED | Outcome.AGENT_FAULT:
            if reward.value is None:
                return EXIT_CANNOT
            return EXIT_OK if reward.value >= FULL else EXIT_LOOK
        case Outcome.GRADER_FAULT:
            return EXIT_USAGE if verdict.task_unsound else EXIT_CANNOT
        case Outcome.INFRA_FAULT | Outcome.CANCELLED:
            return EXIT_CANNOT
        case _:
            assert_never(verdict.outcome)


def document(verdict: Verdict, reward: Reward) -> Mapping[str, object]:
    """The verdict as JSON. What goes beyond its first six keys may grow."""
    tree: Mapping[str, object] = json_tree(
        {
            "outcome": verdict.outcome,
            "reward": reward.value,
            "tamper": verdict.tamper,
            "checks": verdict.checks,
            "evidence": list(_evidence(verdict)),
            "versions": versions(verdict),
            "why": reward.why,
            "parts": reward.parts,
            "gates": reward.gates,
            "detail": verdict.detail,
            "assurance": verdict.assurance,
            "components": verdict.components,
            "task_unsound": verdict.task_unsound,
            "wall_s": verdict.wall_s,
            "cpu_s": verdict.cpu_s,
        }
    )
    return tree


def unpaid(verdict: Verdict, reward: Reward) -> str:
    """Which measures found something that the reward does not hold against the answer.

    Nothing ("") where no right answer was measured: there the tests say it all.
    """
    if reward.value != FULL:
        return ""
    names = [
        each.name
        for each in verdict.components
        if each.normalised is not None and each.normalised < FULL and each.name not in reward.parts
    ]
    return f"measured, but no weight pays for: {', '.join(names)}" if names else ""


def not_run(task: Task, submission: Submission) -> str:
    """That a script which would make the answer was not run; "" where there is none."""
    suite = task.hidden
    if not isinstance(suite, ScriptSuite) or suite.solve is None:
        return ""
    if submission.files.get("solve.sh") != suite.solve:
        return ""
    return "solve.sh of a submission is never run; `tiltyard check` runs the task's own"


def versions(verdict: Verdict) -> Mapping[str, object]:
    """All that the verdict depends on beside the submission."""
    known = verdict.provenance
    return {
        "schema": SCHEMA,
        "tiltyard": __version__,
        "verifier": verdict.verifier,
        "seeds": [known["seed"]] if "seed" in known else [],
        **{name: value for name, value in known.items() if name != "seed"},
    }


def _evidence(verdict: Verdict) -> Iterator[Mapping[str, object]]:
    """Everything that was seen, each with the check or the measure that it belongs to."""
    for sign in verdict.tamper:
        yield {"of": "tamper", "message": sign}
    for check in verdict.checks:
        if check.evidence or check.status is not CheckStatus.PASSED:
            yield {"of": check.id, "message": check.evidence or str(check.status)}
    for component in verdict.components:
        for seen in component.evidence:
            yield {"of": component.name, **json_tree(seen)}
        for curve in component.curves:
            yield {"of": component.name, "message": f"curve {curve.name}", **json_tree(curve)}
    if verdict.detail:
        yield {"of": "outcome", "message": verdict.detail}


def _print(task: Task, verdict: Verdict, reward: Reward, console: Console) -> None:
    if verdict.checks:
        rows = check_rows(verdict)
        print_table(console, COLUMNS, rows, title=shown(f"Checks of {task.id}"))
        if more := checks_left_out(verdict):
            console.print(f"the first {CHECKS_SHOWN_MAX}, and {more} more; --json lists all")
    if verdict.components:
        names = ("measure", "raw", "share", "evidence")
        print_table(console, names, _component_rows(verdict), title="Measures")
    lost = [each.name for each in verdict.components if each.gap is Gap.INFRA]
    if lost:
        words = f"not measured, by a fault of ours or of the task: {', '.join(lost)}"
        console.print(shown(words, "yellow"), soft_wrap=True)
    if task.checks.state:
        words = (
            f"state: {len(task.checks.state)} not looked at, only `tiltyard run` has the sandbox"
        )
        console.print(shown(words, "yellow"), soft_wrap=True)
    for line in tamper_lines(verdict):
        console.print(line, soft_wrap=True)
    assured = f", {verdict.assurance}" if verdict.assurance else ""
    console.print(f"outcome: {verdict.outcome}{assured}; {verdict.wall_s:.2f} s", soft_wrap=True)
    value = "none" if reward.value is None else f"{reward.value:g}"
    style = "green" if reward.value == FULL else "red" if reward.value is not None else "yellow"
    console.print(shown(f"reward {value}: {why_of(verdict, reward)}", style), soft_wrap=True)


def _component_rows(verdict: Verdict) -> Iterator[tuple[Text, ...]]:
    for names, component in _alike(verdict.components):
        yield (
            shown("\n".join(names)),
            shown(_raw(component)),
            shown("" if component.normalised is None else f"{component.normalised:.2f}"),
            shown("\n".join(each.message for each in component.evidence[:EVIDENCE_SHOWN_MAX])),
        )


def _alike(components: Iterable[Component]) -> Iterator[tuple[list[str], Component]]:
    """Neighbours that were not measured for one reason are told together."""

    def reason(component: Component) -> object:
        gone = component.gap is not None
        return (component.gap, component.evidence) if gone else component.name

    for _, several in groupby(components, key=reason):
        first, *others = several
        yield [first.name, *(each.name for each in others)], first


def _raw(component: Component) -> str:
    if component.raw is None:
        return f"none ({str(component.gap).replace('_', ' ')})"
    return f"{component.raw + 0.0:g} {component.unit}".strip()  # + 0.0: never "-0"
