"""What a user may type as TASKS."""

from pathlib import Path

import pytest

from tiltyard.core.errors import TaskError
from tiltyard.core.task import Split
from tiltyard.tasks.catalog import COUNT_MAX, SEED_MAX, load_task, load_tasks
from tiltyard.tasks.files import write_tasks
from tiltyard.tasks.repair import TRAINED_FAMILIES, UNSEEN_FAMILIES


def brief(text: str) -> str:
    """A test's name for a parameter that may be huge."""
    return text[:30]


@pytest.mark.parametrize(
    ("text", "split", "count"),
    [
        ("repair", Split.HELDOUT, 50),
        ("repair:heldout", Split.HELDOUT, 50),
        ("repair:train", Split.TRAIN, 50),
        ("repair?count=3", Split.HELDOUT, 3),
        ("repair:train?seed=3&count=2", Split.TRAIN, 2),
    ],
)
def test_a_pack_gives_as_many_tasks_as_asked(text: str, split: Split, count: int) -> None:
    tasks = load_tasks(text)
    assert len(tasks) == count
    made = list(tasks)
    assert len({task.id for task in made}) == count
    assert {task.split for task in made} == {split}
    assert {task.family for task in made} <= set(TRAINED_FAMILIES)


def test_a_pack_is_a_sequence_that_repeats() -> None:
    tasks = load_tasks("repair:train?count=5")
    assert tasks[-1] == list(tasks)[4]
    assert list(tasks[1:3]) == [tasks[1], tasks[2]]
    with pytest.raises(IndexError):
        tasks[5]


def test_another_seed_gives_other_tasks() -> None:
    first, second = (
        {task.id for task in load_tasks(f"repair:train?count=40&seed={seed}")} for seed in (0, 1)
    )
    assert not first & second


def test_the_largest_request_is_looked_at_only_where_it_is_used() -> None:
    tasks = load_tasks(f"repair:train?count={COUNT_MAX}&seed={SEED_MAX}")
    assert len(tasks) == COUNT_MAX
    assert tasks[COUNT_MAX - 1].split is Split.TRAIN


def test_families_are_chosen_by_name_or_as_a_set() -> None:
    two = load_tasks("repair:heldout?count=30&families=clamp,votes")
    assert {task.family for task in two} == {"clamp", "votes"}
    unseen = load_tasks("repair?families=unseen&count=200")
    assert {task.family for task in unseen} == set(UNSEEN_FAMILIES)


def test_one_task_is_named_by_itself_or_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    first, second = load_tasks("repair?count=2")
    write_tasks(path, (first, second))
    assert load_task(str(path), second.id) == second
    assert load_task("repair?count=1") == first
    with pytest.raises(TaskError, match=f"2 tasks, and one is wanted.*--id {first.id}"):
        load_task(str(path))
    with pytest.raises(TaskError, match="no task with the id 'other'"):
        load_task(str(path), "other")


def test_a_path_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    write_tasks(path, load_tasks("repair?count=3"))
    assert list(load_tasks(str(path))) == list(load_tasks("repair?count=3"))


def test_a_file_that_is_not_named_as_one_of_tasks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match=r"'mine.json' is a file.*End its name in \.jsonl"):
        load_tasks("mine.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tasks named ''. Fix: There are: repair, repair:train"),
        ("repiar", "no tasks named 'repiar'. Fix: Did you mean 'repair'\\? There are: repair,"),
        ("Repair", "no tasks named"),
        ("missing.jsonl", "missing.jsonl is not a file"),
        ("dir/repair", "dir/repair is not a file"),
        ("repair:", "the split ''"),
        ("repair:test", "the split 'test'. Fix: The splits are train, heldout"),
        ("repair:train:heldout", "the split 'train:heldout'"),
        ("repair?", "options of 'repair\\?' cannot be read"),
        ("repair?count", "cannot be read"),
        ("repair?count=1&count=2", "cannot be read"),
        ("repair?size=1", "cannot be read. Fix: Write them as"),
        ("repair?" + "&".join(f"a{n}=1" for n in range(1000)), "cannot be read"),
        ("repair?count=0", "count='0' is not a whole number from 1 to 100000"),
        ("repair?count=100001", "is not a whole number from 1 to 100000. Fix: Write"),
        ("repair?count=-1", "is not a whole number"),
        ("repair?count=1e3", "is not a whole number"),
        ("repair?count=²", "is not a whole number"),
        ("repair?count=" + "9" * 5_000, "is not a whole number"),
        ("repair?seed=x", "seed='x' is not a whole number from 0"),
        ("repair?families=", "no family ''. Fix: docs/tasks.md lists all 73, such as sum_to"),
        ("repair?families=clamp,nope", "no family 'nope'"),
        ("repair?families=sum_abov", "'sum_abov'. Fix: Did you mean sum_above"),
        ("repair?families=" + ",".join("x" * n for n in range(1, 900)), "no family 'x', 'xx'"),
        ("repair:train?families=unseen", "have no train split. Fix: Use repair:heldout"),
    ],
    ids=brief,
)
def test_what_does_not_exist_is_refused_with_what_does(text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load_tasks(text)
    assert len(str(caught.value)) < 2_000
