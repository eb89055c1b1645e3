"""Reports of a reference's runs outlive the process, and never what has changed since."""

import asyncio
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tiltyard.core.errors import UnsoundTask
from tiltyard.core.verdict import CheckStatus
from tiltyard.verify.overlay.canaries import Kind, canaries_of
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.plan import Forms, Plan, Tried, plan_of
from tiltyard.verify.overlay.recall import FILES_MAX, Recall
from tiltyard.verify.overlay.session import Ended, Report
from tiltyard.verify.overlay.source import read

FILES = read(
    {
        "tests/test_a.py": b"def test_one():\n    assert f(1) == 1\n\n\n"
        b"def test_two():\n    assert f(2) == sorted([2])\n"
    }
)
FOUND = [
    Tried(canary=canary, beside={})
    for file in FILES.values()
    for canary in canaries_of(file, Module(file.tree, frozenset()), random.Random(1))  # noqa: S311
]
ONE = next(each for each in FOUND if each.canary.kind is Kind.NEGATED)
FALSE = {ONE.canary.function: ONE}
WRITTEN = {each.canary.function: each for each in FOUND if each.canary.kind is Kind.WRITTEN}
Said = dict[str, str]


def plan(number: int, forms: Forms) -> Plan:
    rng = random.Random(number)  # noqa: S311
    return plan_of(FILES, (), frozenset({"test_one", "test_two"}), rng, forms=forms)


PLANS = {
    "plain": plan(1, Forms()),
    "one": plan(2, Forms(false=FALSE)),
    "other": plan(3, Forms(false=FALSE, written=WRITTEN)),
    # As where some tests of a suite may not move.
    "true": plan(4, Forms(written=WRITTEN, absent=frozenset(FALSE))),
    "less": plan(5, Forms(written=WRITTEN, absent=frozenset(FALSE))),
}


class Process:
    """Learns one suite in a directory, as each process does, from a reference that says `said`."""

    def __init__(self, directory: Path | None, said: Said | None = None) -> None:
        self._recall = Recall(directory)
        self._said = said or {}
        self.ran: list[str] = []

    async def _trial(self, plan: Plan, _tests: int) -> Report:
        name = next(name for name, each in PLANS.items() if each is plan)
        self.ran.append(name)
        said = self._said.get(name, "passed")
        ended = Ended(status=CheckStatus.TIMEOUT, evidence="") if said == "timeout" else None
        return Report(results={"tests/test_a.py::test_one": [(said, "")]}, ended=ended)

    def learn(self, *, fails: bool = False, key: str = "k") -> Said:
        async def learned(trial: Callable[[Plan, int], object]) -> Said:
            found: Said = {}
            for name, each in PLANS.items():
                report = await trial(each, 1)  # type: ignore[misc]
                ((found[name], _),) = report.results["tests/test_a.py::test_one"]
            if fails:
                raise UnsoundTask("its tests depend on each other")
            return found

        return asyncio.run(self._recall.learn(key, self._trial, learned))


def kept(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_two_runs_are_always_made(tmp_path: Path) -> None:
    first, second = Process(tmp_path), Process(tmp_path)
    assert first.learn() == second.learn()
    assert first.ran == list(PLANS)
    assert second.ran == ["plain", "true"]


def test_the_directory_is_nobody_elses(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "cache"
    Process(directory).learn()
    assert (directory.stat().st_mode & 0o777, kept(directory).stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


@pytest.mark.parametrize("changed", ["plain", "true"])
def test_what_changed_is_learned_anew(tmp_path: Path, changed: str) -> None:
    Process(tmp_path).learn()
    second = Process(tmp_path, {changed: "skipped", "one": "wrong"})
    assert second.learn() == dict.fromkeys(PLANS, "passed") | {changed: "skipped", "one": "wrong"}
    assert second.ran[-len(PLANS) :] == list(PLANS)
    third = Process(tmp_path, {changed: "skipped"})
    assert third.learn()["one"] == "wrong"
    assert third.ran == ["plain", "true"]


def test_other_keys_share_nothing(tmp_path: Path) -> None:
    Process(tmp_path).learn()
    other = Process(tmp_path)
    other.learn(key="other")
    assert other.ran == list(PLANS)


def test_a_run_out_of_time_is_made_again(tmp_path: Path) -> None:
    Process(tmp_path, {"one": "timeout"}).learn()
    second = Process(tmp_path)
    assert second.learn()["one"] == "passed"
    assert second.ran == ["plain", "one", "true"]


def test_what_was_refused_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(UnsoundTask):
        Process(tmp_path).learn(fails=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        gzip.compress(b"{}")[:-3],
        gzip.compress(b"[" * 100_000),
        gzip.compress(json.dumps({"a": {"results": {"x": 3}}}).encode()),
    ],
)
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    Process(tmp_path).learn()
    whole = kept(tmp_path).read_bytes()
    kept(tmp_path).write_bytes(content)
    second = Process(tmp_path)
    second.learn()
    assert second.ran == list(PLANS)
    assert kept(tmp_path).read_bytes() == whole


@pytest.mark.parametrize("blocked", ["a file", "a directory in the file's place"])
def test_what_cannot_be_kept_costs_time_alone(tmp_path: Path, blocked: str) -> None:
    directory = tmp_path / "cache"
    if blocked == "a file":
        directory.write_bytes(b"")
    else:
        (directory / "overlay-k.json.gz").mkdir(parents=True)
    for _ in range(2):
        process = Process(directory)
        process.learn()
        assert process.ran == list(PLANS)
    assert directory.is_file() or [each.name for each in directory.iterdir()] == [
        "overlay-k.json.gz"
    ]


def test_only_the_suites_used_last_are_kept(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 2):
        Process(tmp_path).learn(key=str(number))
        if number == FILES_MAX - 1:
            Process(tmp_path).learn(key="0")  # used again
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == FILES_MAX
    assert "overlay-0.json.gz" in names
    assert "overlay-1.json.gz" not in names


def test_without_a_directory_nothing_is_kept() -> None:
    process = Process(None)
    process.learn()
    process.learn()
    assert process.ran == list(PLANS) * 2
