"""The promises of the repair pack: repeatable, disjoint, repairable by one line, worth solving."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.errors import TaskError
from tiltyard.core.task import CallCase, CallSuite, Split, Task
from tiltyard.tasks.repair import (
    TEMPLATES,
    TRAINED_FAMILIES,
    UNSEEN_FAMILIES,
    FaultKind,
    make_task,
    repair_of,
    split_of,
)
from tiltyard.tasks.repair.template import LINE_COLUMNS_MAX, Topic

SEEDS = st.integers(min_value=-(2**70), max_value=2**70)
SPLITS = st.sampled_from(Split)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def hidden_of(task: Task) -> tuple[CallCase, ...]:
    assert isinstance(task.hidden, CallSuite)
    return task.hidden.cases


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """A task of any family that its split has."""
    split = draw(SPLITS)
    known = TRAINED_FAMILIES if split is Split.TRAIN else tuple(TEMPLATES)
    return make_task(draw(SEEDS), split=split, families=[draw(st.sampled_from(known))])


@QUICK
@given(seed=SEEDS, split=SPLITS)
def test_a_seed_always_gives_the_same_task(seed: int, split: Split) -> None:
    assert make_task(seed, split=split) == make_task(seed, split=split)


@QUICK
@given(seed=SEEDS)
def test_the_choice_of_families_does_not_change_a_familys_task(seed: int) -> None:
    task = make_task(seed, split=Split.TRAIN)
    assert make_task(seed, split=Split.TRAIN, families=[task.family]) == task


@pytest.mark.slow
def test_another_process_gives_the_same_tasks() -> None:
    """String hashing is salted per process, so nothing may rest on it."""
    code = (
        "import json; from tiltyard.tasks.catalog import load_tasks;"
        "from tiltyard.tasks.files import task_line;"
        "print(json.dumps([task_line(t) for name in ('repair:train?count=150&seed=4',"
        " 'repair:heldout?count=60&families=unseen') for t in load_tasks(name)]))"
    )
    printed = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                check=True,
            ).stdout
        )
        for salt in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) == 210


@QUICK
@given(task=tasks())
def test_one_line_restores_the_reference(task: Task) -> None:
    repair = repair_of(task)
    lines = task.starter.split("\n")
    lines[repair.line_number - 1] = repair.line
    assert "\n".join(lines) == task.reference
    assert task.starter != task.reference
    assert max(map(len, [*lines, *task.starter.split("\n")])) <= LINE_COLUMNS_MAX


@QUICK
@given(task=tasks())
def test_the_reference_passes_and_the_starter_fails(
    task: Task, grade: Callable[[str, CallCase], bool]
) -> None:
    hidden = hidden_of(task)
    assert all(grade(task.reference, case) for case in (*hidden, *task.visible.cases))
    assert sum(not grade(task.starter, case) for case in hidden) >= 2
    assert not grade(task.starter, task.visible.cases[0])


@QUICK
@given(task=tasks())
def test_hidden_cases_are_other_than_the_visible_and_no_constant_passes(task: Task) -> None:
    hidden, visible = hidden_of(task), task.visible.cases
    assert [case.id for case in hidden] == [f"h{number:02d}" for number in range(1, 11)]
    assert [case.id for case in visible] == ["v01", "v02", "v03"]
    asked = [repr((case.args, case.then)) for case in (*hidden, *visible)]
    assert len(set(asked)) == len(asked)
    answers = Counter(repr((case.expected, case.raises)) for case in hidden)
    assert answers.most_common(1)[0][1] <= len(hidden) // 2


@QUICK
@given(task=tasks())
def test_a_faulty_text_belongs_to_its_split_alone(task: Task) -> None:
    assert split_of(task.family, task.starter) is task.split


@pytest.mark.slow
def test_the_splits_share_neither_ids_nor_texts() -> None:
    train = [make_task(seed, split=Split.TRAIN) for seed in range(1200)]
    heldout = [make_task(seed, split=Split.HELDOUT) for seed in range(1200)]
    heldout += [
        make_task(seed, split=Split.HELDOUT, families=UNSEEN_FAMILIES) for seed in range(300)
    ]
    assert not {task.id for task in train} & {task.id for task in heldout}
    assert not {task.starter for task in train} & {task.starter for task in heldout}
    assert len({task.id for task in train + heldout}) == len(train) + len(heldout)
    assert len({task.starter for task in train}) > 900


@pytest.mark.parametrize("family", TEMPLATES)
def test_every_family_is_reachable(family: str) -> None:
    splits = [Split.HELDOUT] if family in UNSEEN_FAMILIES else list(Split)
    for split in splits:
        made = [make_task(seed, split=split, families=[family]) for seed in range(4)]
        assert {task.family for task in made} == {family}
        assert {task.split for task in made} == {split}
        assert len({task.starter for task in made}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("split", Split)
def test_every_kind_of_fault_is_reachable(split: Split) -> None:
    wanted = set(FaultKind)
    for seed in range(4000):
        task = make_task(seed, split=split)
        wanted.discard(FaultKind(task.provenance["fault"]))
        if not wanted:
            return
    pytest.fail(f"4,000 seeds gave no {wanted}")


def test_a_mutated_argument_is_seen_by_the_hidden_cases(
    grade: Callable[[str, CallCase], bool],
) -> None:
    task = next(
        task
        for seed in range(200)
        if (
            task := make_task(seed, split=Split.TRAIN, families=["add_last", "merge_sums"])
        ).provenance["fault"]
        == FaultKind.MUTATED_ARGUMENT
    )
    assert all(case.arguments_kept for case in hidden_of(task))
    assert sum(not grade(task.starter, case) for case in hidden_of(task)) >= 2


def test_the_families_are_enough_and_spread_over_the_topics() -> None:
    assert len(TRAINED_FAMILIES) >= 36
    assert len(UNSEEN_FAMILIES) >= 10
    assert not set(TRAINED_FAMILIES) & set(UNSEEN_FAMILIES)
    for families in (TRAINED_FAMILIES, UNSEEN_FAMILIES):
        assert {TEMPLATES[family].topic for family in families} == set(Topic)


def test_training_cannot_have_an_unseen_family() -> None:
    with pytest.raises(TaskError, match="train split of the repair pack has no family 'votes'"):
        make_task(0, split=Split.TRAIN, families=["clamp", "votes"])


@pytest.mark.parametrize("families", [[], ["nosuch"], ["clamp", "Clamp"]])
def test_an_unknown_family_is_refused_with_where_they_are_listed(families: list[str]) -> None:
    with pytest.raises(TaskError, match=r"docs/tasks\.md lists all \d+, such as sum_to"):
        make_task(0, split=Split.HELDOUT, families=families)
