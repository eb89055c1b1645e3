"""Script mode: what a task's own script says is believed, and nothing else."""

from collections.abc import Mapping

import pytest

from tiltyard.core.execution import MIB, Limits
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, ScriptSuite, Split, Submission, Task
from tiltyard.core.verdict import Assurance, CheckStatus, Outcome, Verdict
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.script.reward_file import DIRECTORY
from tiltyard.verify.verifier import Verifier

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

SAYS_ONE = b'[ "$(sh run.sh)" = right ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
RIGHT = {"run.sh": b"echo right\n"}


def task(script: bytes, *, time_limit_s: float = 20.0, **suite: object) -> Task:
    fields: dict[str, object] = {"tests": {"test.sh": script}, "reference": RIGHT} | suite
    return Task(
        id=TaskId("scripted"),
        family="tests",
        split=Split.HELDOUT,
        revision="1",
        instruction="",
        starter="",
        reference="",
        visible=CallSuite(cases=()),
        hidden=ScriptSuite(**fields),  # type: ignore[arg-type]
        limits=Limits(memory_bytes=128 * MIB, disk_bytes=16 * MIB),
        time_limit_s=time_limit_s,
    )


def answer(files: Mapping[str, bytes], **kinds: Mapping[str, str]) -> Submission:
    return Submission(files=files, **kinds)


def said(verdict: Verdict) -> float | None:
    return next((each.raw for each in verdict.components if each.name == "script"), None)


@pytest.mark.parametrize(
    ("files", "number", "status"),
    [
        (RIGHT, 1.0, CheckStatus.PASSED),
        ({"run.sh": b"echo wrong\n"}, 0.0, CheckStatus.WRONG_ANSWER),
        ({}, 0.0, CheckStatus.WRONG_ANSWER),
    ],
    ids=["right", "wrong", "nothing"],
)
async def test_the_number_in_the_file_counts(
    verifier: Verifier, files: Mapping[str, bytes], number: float, status: CheckStatus
) -> None:
    verdict = await verifier.verify(task(SAYS_ONE), answer(files))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert (said(verdict), verdict.checks[0].status) == (number, status)
    assert verdict.assurance is Assurance.SCRIPT


async def test_helpers_base_and_artifacts_are_there(verifier: Verifier) -> None:
    script = b"""
set -e
. /tests/lib/helper.sh
[ "$(pwd)" = /srv/job ]
[ "$(cat kept.txt)" = base ]
[ "$(cat src/a.txt)" = theirs ]
[ ! -e notes.txt ]
[ -z "$(ls /logs/verifier)" ]
printf '{"reward": 0.75, "speed": 12.5, "style": 0.5}' > /logs/verifier/reward.json
"""
    scripted = task(
        script,
        tests={"test.sh": script, "lib/helper.sh": b"true\n"},
        base={"kept.txt": b"base", "src/a.txt": b"ours"},
        artifacts=("src/**",),
        workdir="/srv/job",
    )
    files = {"src/a.txt": b"theirs", "notes.txt": b"x", "kept.txt": b"changed"}
    verdict = await verifier.verify(scripted, answer(files))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert {each.name: each.raw for each in verdict.components} == {
        "script": 0.75,
        "script.speed": 12.5,
        "script.style": 0.5,
    }
    assert verdict.checks[0].status is CheckStatus.WRONG_ANSWER


@pytest.mark.parametrize(
    "write",
    [
        "true",
        "echo nan > /logs/verifier/reward.txt",
        "echo inf > /logs/verifier/reward.txt",
        "echo > /logs/verifier/reward.txt",
        "echo 1.5 > /logs/verifier/reward.txt",
        "echo -1 > /logs/verifier/reward.txt",
        "echo full > /logs/verifier/reward.txt",
        "echo 1 > /logs/verifier/reward.txt; exit_early=1; rm /logs/verifier/reward.txt",
        "echo '{\"reward\": NaN}' > /logs/verifier/reward.json",
        "echo '{\"reward\": true}' > /logs/verifier/reward.json",
        'echo \'{"reward": "1"}\' > /logs/verifier/reward.json',
        "echo '{}' > /logs/verifier/reward.json",
        'echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json',
        "echo '[1]' > /logs/verifier/reward.json",
        "echo 1 > /logs/verifier/reward.txt; echo x > /logs/verifier/reward.json",
        "echo x > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json",
        "mkdir /logs/verifier/reward.txt",
        "mkfifo /logs/verifier/reward.txt",
        "head -c 1000000 /dev/zero > /logs/verifier/reward.txt",
        "exit 1",
    ],
)
async def test_without_a_proper_number_there_is_none(verifier: Verifier, write: str) -> None:
    verdict = await verifier.verify(task(write.encode()), answer(RIGHT))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert said(verdict) is None


@pytest.mark.parametrize(("text", "tree"), [("1", "0.25"), ("0.25", "1")])
async def test_of_two_numbers_the_lower_counts(verifier: Verifier, text: str, tree: str) -> None:
    script = f"echo {text} > {DIRECTORY}/reward.txt; echo {tree} > {DIRECTORY}/reward.json"
    verdict = await verifier.verify(task(script.encode()), answer(RIGHT))
    assert said(verdict) == 0.25


HANGS = b"sh run.sh > out; grep -q right out && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n"


@pytest.mark.parametrize(
    ("source", "statuses"),
    [
        (b"sleep 1000\n", {CheckStatus.TIMEOUT}),
        (b"kill -9 $PPID; sleep 1\n", {CheckStatus.CRASH}),
    ],
    ids=["hangs", "kills the script"],
)
async def test_a_solution_does_not_get_out_of_its_zero(
    verifier: Verifier, source: bytes, statuses: set[CheckStatus]
) -> None:
    verdict = await verifier.verify(task(HANGS, time_limit_s=1.5), answer({"run.sh": source}))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert verdict.checks[0].status in statuses
    assert verdict.score == 0.0


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (b"echo 'echo 1 > /logs/verifier/reward.txt' >> /tests/test.sh\n", "tests/test.sh"),
        (b"echo exit > /tests/test.sh\n", "tests/test.sh"),
        (b"echo 'r=1' > /tests/helper.sh\n", "tests/helper.sh"),
        (b"rm -r /logs\n", "there is nothing"),
        (b"mkdir /logs/verifier/reward.txt\n", "directory"),
        (b"ln -s /dev/null /logs/verifier/reward.txt\n", "link"),
        (b"echo nan > /logs/verifier/reward.json\n", "reward.json"),
    ],
)
async def test_a_solution_that_breaks_the_script_or_its_reward_is_caught(
    verifier: Verifier, source: bytes, word: str
) -> None:
    tests = {"test.sh": SAYS_ONE, "helper.sh": b"true\n"}
    verdict = await verifier.verify(task(SAYS_ONE, tests=tests), answer({"run.sh": source}))
    assert (verdict.outcome, verdict.score) == (Outcome.GRADED, 0.0), verdict.detail
    (sign,) = verdict.tamper
    assert word in sign


async def test_what_a_script_does_to_its_own_files_is_no_sign(verifier: Verifier) -> None:
    script = SAYS_ONE + b"echo >> /tests/test.sh\n"
    verdict = await verifier.verify(task(script), answer(RIGHT))
    assert (verdict.outcome, verdict.score, verdict.tamper) == (Outcome.GRADED, 1.0, ())


async def test_a_script_without_a_number_for_a_wrong_answer_is_at_fault(verifier: Verifier) -> None:
    for instead in (b"true", b"echo nan > /logs/verifier/reward.txt", b"exit 1"):
        script = b'[ "$(sh run.sh)" = right ] || { %b; exit; }\n' % instead
        script += b"echo 1 > /logs/verifier/reward.txt\n"
        verdict = await verifier.verify(task(script), answer({"run.sh": b"echo wrong\n"}))
        assert verdict.outcome is Outcome.GRADER_FAULT


async def test_a_script_that_hangs_with_the_reference_too_is_at_fault(verifier: Verifier) -> None:
    verdict = await verifier.verify(task(b"sleep 1000\n", time_limit_s=0.5), answer(RIGHT))
    assert verdict.outcome is Outcome.GRADER_FAULT


@pytest.mark.parametrize(
    ("submission", "word"),
    [
        (Submission(files={}, links={"run.sh": "/etc/passwd"}), "link"),
        (Submission(files=RIGHT, odd={"pipe": "fifo"}), "fifo"),
    ],
)
async def test_links_and_special_files_are_refused(
    verifier: Verifier, submission: Submission, word: str
) -> None:
    verdict = await verifier.verify(task(SAYS_ONE), submission)
    assert verdict.outcome is Outcome.AGENT_FAULT
    assert word in verdict.detail


async def test_links_that_tools_and_editors_leave_are_left_out(verifier: Verifier) -> None:
    links = {".venv/bin/python": "/usr/bin/python3", ".#run.sh": "me@host.1:2"}
    verdict = await verifier.verify(task(SAYS_ONE), answer(RIGHT, links=links))
    assert (verdict.outcome, verdict.score) == (Outcome.GRADED, 1.0), verdict.detail


async def test_shipped_reward_files_and_paths_outside_do_nothing(verifier: Verifier) -> None:
    files = {
        "../logs/verifier/reward.txt": b"1",
        "logs/verifier/reward.txt": b"1",
        "/logs/verifier/reward.json": b"1",
        "a/../../x": b"1",
    }
    verdict = await verifier.verify(task(b"true\n"), answer(files))
    assert verdict.outcome is Outcome.GRADER_FAULT
    verdict = await verifier.verify(task(SAYS_ONE), answer(files | RIGHT))
    assert len(verdict.tamper) == 3


async def test_files_over_the_disk_are_the_agents_fault(verifier: Verifier) -> None:
    files = RIGHT | {"large": bytes(20 * MIB)}
    verdict = await verifier.verify(task(SAYS_ONE), answer(files))
    assert verdict.outcome is Outcome.AGENT_FAULT, verdict


async def test_a_solve_script_makes_the_reference(
    provider: NativeProvider, verifier: Verifier
) -> None:
    scripted = task(HANGS, reference={}, solve=b"echo 'echo right' > run.sh\n", time_limit_s=1.5)
    verdict = await verifier.verify(scripted, answer({"run.sh": b"sleep 100\n"}))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    broken = task(HANGS, reference={}, solve=b"exit 3\n", time_limit_s=1.5)
    verdict = await verifier.verify(broken, answer({"run.sh": b"sleep 100\n"}))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert "solve.sh" in verdict.detail


async def test_no_sandbox_is_left(verifier: Verifier) -> None:
    before = verifier.sandboxes
    await verifier.verify(task(SAYS_ONE), answer(RIGHT))
    assert verifier.sandboxes == before


@pytest.mark.parametrize("workdir", ["/", "app", "/tests/x", "/logs", "/etc/../etc"])
async def test_a_work_directory_must_be_a_free_one(verifier: Verifier, workdir: str) -> None:
    verdict = await verifier.verify(task(SAYS_ONE, workdir=workdir), answer(RIGHT))
    assert verdict.outcome is Outcome.GRADER_FAULT
