"""Script mode against submissions that reach for the script, its reward, or the sandbox itself."""

import os
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tiltyard.core.execution import MIB, Limits
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import CheckStatus, Outcome, Verdict
from tiltyard.verify.reward import reward_of
from tiltyard.verify.script.artifacts import artifacts_of
from tiltyard.verify.script.reward_file import read
from tiltyard.verify.verifier import Verifier
from verify.test_script import RIGHT, SAYS_ONE, answer, task

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

REWARD = "/logs/verifier/reward.txt"
ONE = f"echo 1 > {REWARD}"
LOOP = "while :; do {}; done"


def background(command: str) -> Mapping[str, bytes]:
    return {"run.sh": f"({command}) > /dev/null 2>&1 &\necho wrong\n".encode()}


def once(condition: str, command: str) -> Mapping[str, bytes]:
    return background(f"until {condition}; do :; done; {command}")


async def earned(verifier: Verifier, judged: Task, files: Mapping[str, bytes]) -> Verdict:
    """The verdict, which has to be worth nothing: not even no reward."""
    verdict = await verifier.verify(judged, answer(files))
    assert reward_of(verdict).value == 0.0, (verdict.outcome, verdict.detail, verdict.checks)
    return verdict


@pytest.mark.parametrize(
    "command",
    [
        LOOP.format(ONE),
        LOOP.format(f"grep -q 0 {REWARD} && {ONE}"),
        LOOP.format(f"echo nan > {REWARD}"),
        LOOP.format(f"rm -f {REWARD}"),
        LOOP.format("echo 1 > /logs/verifier/reward.json"),
        f"setsid sh -c 'while :; do {ONE}; done'",
    ],
)
async def test_a_daemon_that_rewrites_the_reward_earns_nothing(
    verifier: Verifier, command: str
) -> None:
    await earned(verifier, task(SAYS_ONE), background(command))


async def test_a_daemon_that_takes_every_other_number_away_is_caught(verifier: Verifier) -> None:
    until = f"until [ -e {REWARD} ]; do :; done; "
    files = background(until + LOOP.format(f"grep -q 1 {REWARD} || {ONE}"))
    script = SAYS_ONE + f"until grep -q 1 {REWARD}; do :; done\n".encode()
    verdict = await earned(verifier, task(script), files)
    assert verdict.tamper == ("a process that outlived the script changed the reward",)


async def test_what_outlives_the_script_and_leaves_the_reward_alone_is_no_sign(
    verifier: Verifier,
) -> None:
    files = {"run.sh": b"sleep 100 > /dev/null 2>&1 &\necho right\n"}
    verdict = await verifier.verify(task(SAYS_ONE), answer(files))
    assert (verdict.outcome, verdict.score, verdict.tamper) == (Outcome.GRADED, 1.0, ())


async def test_a_script_whose_own_process_writes_last_is_believed(verifier: Verifier) -> None:
    script = SAYS_ONE + LOOP.format(f"echo $r > {REWARD}.new; mv {REWARD}.new {REWARD}").encode()
    script += b" > /dev/null 2>&1 &\n"
    verdict = await verifier.verify(task(script), answer(RIGHT))
    assert (verdict.outcome, verdict.score, verdict.tamper) == (Outcome.GRADED, 1.0, ())


async def test_without_a_reference_a_reward_that_something_rewrites_is_none(
    verifier: Verifier,
) -> None:
    script = f"{ONE}; sh run.sh; until grep -q 1 {REWARD}; do :; done\n".encode()
    files = background(LOOP.format(ONE))
    verdict = await verifier.verify(task(script, reference={}), answer(files))
    assert verdict.outcome is Outcome.GRADER_FAULT


async def test_a_reward_that_something_rewrites_is_none_where_the_reference_has_none(
    verifier: Verifier,
) -> None:
    script = f'[ "$(sh run.sh)" = none ] || echo 1 > {REWARD}\n'.encode()
    judged = task(script, reference={"run.sh": b"echo none\n"})
    files = background(LOOP.format(f"grep -q 0 {REWARD} && {ONE}"))
    verdict = await verifier.verify(judged, answer(files))
    assert verdict.outcome is Outcome.GRADER_FAULT, verdict.checks
    assert "no reward for the reference" in verdict.detail


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("kill -9 $(ps -o ppid= -p $PPID) $PPID", CheckStatus.CRASH),
        ("kill -9 -1", CheckStatus.CRASH),
        pytest.param("kill -STOP $PPID; sleep 100", CheckStatus.TIMEOUT, marks=pytest.mark.slow),
        ("yes >&2", CheckStatus.OUTPUT_LIMIT),
    ],
)
async def test_a_reward_before_the_scripts_end_is_not_its_word(
    verifier: Verifier, end: str, status: CheckStatus
) -> None:
    files = {"run.sh": f"{ONE}\n{end}\n".encode()}
    verdict = await earned(verifier, task(SAYS_ONE, time_limit_s=1.5), files)
    assert verdict.checks[0].status is status


async def test_a_script_that_never_ends_but_writes_first_is_believed(verifier: Verifier) -> None:
    script = SAYS_ONE + b"kill -9 $$\n"
    verdict = await verifier.verify(task(script), answer(RIGHT))
    assert (verdict.outcome, verdict.score) == (Outcome.GRADED, 1.0)


async def test_a_full_disk_is_no_way_out_of_a_zero(verifier: Verifier) -> None:
    files = {"run.sh": b"head -c 100000000 /dev/zero > big 2> /dev/null; echo wrong\n"}
    verdict = await earned(verifier, task(SAYS_ONE + b"exit 0\n"), files)
    assert verdict.checks[0].status is CheckStatus.NO_REPLY


async def test_no_reward_with_one_submission_only_is_flagged(verifier: Verifier) -> None:
    script = SAYS_ONE + b"cat number > /logs/verifier/reward.txt 2> /dev/null\n"
    judged = task(script, reference=RIGHT | {"number": b"1"})
    verdict = await verifier.verify(judged, answer(RIGHT | {"number": b"nan"}))
    assert (verdict.outcome, reward_of(verdict).value) == (Outcome.GRADER_FAULT, None)
    assert verdict.tamper == ("no reward, though the reference has one",)
    assert not verdict.task_unsound


@pytest.mark.usefixtures("billed")
@pytest.mark.parametrize("size_bytes", [32 * MIB, 60 * MIB])
async def test_artifacts_over_the_memory_are_the_agents_fault(
    verifier: Verifier, size_bytes: int
) -> None:
    limits = Limits(memory_bytes=32 * MIB, disk_bytes=256 * MIB)
    judged = replace(task(SAYS_ONE), limits=limits)
    verdict = await earned(verifier, judged, RIGHT | {"big": bytes(size_bytes)})
    assert verdict.outcome is Outcome.AGENT_FAULT


RUN_BY_PYTEST = b"""cd /app
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1  # what is installed here may want more memory
python3 -m pytest -q -p no:cacheprovider /tests/test_it.py && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""


def python_task(**suite: object) -> Task:
    tests = {"test.sh": RUN_BY_PYTEST, "test_it.py": b"from it import f\ndef test(): assert f()\n"}
    return task(RUN_BY_PYTEST, tests=tests, reference={"it.py": b"def f(): return 1\n"}, **suite)


CHEATS = {
    "conftest.py": b"def pytest_pyfunc_call(pyfuncitem): return True\n",
    "pytest.py": b"",
    "pytest/__main__.py": b"",
    "_pytest.py": b"",
    "sitecustomize.py": b"import os; os._exit(0)\n",
    "pytest.ini": b"[pytest]\naddopts = --co\n",
    "deep/conftest.py": b"",
    "x.pth": b"import os; os._exit(0)\n",
}


@pytest.mark.slow
async def test_files_that_a_test_run_loads_unasked_are_left_out_and_named(
    verifier: Verifier,
) -> None:
    right = {"it.py": b"def f(): return 1\n"} | CHEATS
    kept = await verifier.verify(python_task(), answer(right))
    assert kept.score == 1.0, kept.checks
    files = right | {"it.py": b"def f(): return 0\n"}
    verdict = await earned(verifier, python_task(), files)
    assert {each.path for each in verdict.components[0].evidence} >= set(CHEATS)


def suite_of(judged: Task) -> ScriptSuite:
    assert isinstance(judged.hidden, ScriptSuite)
    return judged.hidden


async def test_such_a_file_is_taken_where_the_task_has_it_or_names_it() -> None:
    files = {"conftest.py": b"mine", "pyproject.toml": b"", "setup.cfg": b"", "queue.py": b""}
    submission = Submission(files=files)
    unnamed = artifacts_of(suite_of(python_task()), submission)
    assert set(unnamed.files) == set(files) - {"conftest.py"}
    assert unnamed.left_out == ("conftest.py",)
    for judged in (
        python_task(artifacts=("**", "conftest.py")),
        python_task(base={"conftest.py": b""}),
    ):
        assert set(artifacts_of(suite_of(judged), submission).files) == set(files)


@pytest.mark.parametrize(
    "text",
    [b"0_1", b"\xef\xbb\xbf1", b"1 1", b"1\0", b"0x1", b"1e400", b"-0.1", b"1.0000001", b"true"],
)
async def test_a_text_that_is_no_plain_number_is_refused(text: bytes) -> None:
    assert read(None, text).reward is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"reward": 1, "reward": 1}',
        b'{"reward": 1e400}',
        b'{"reward": {"reward": 1}}',
        b'{"reward": [1]}',
        b'{"reward": 1, "other": Infinity}',
        b'{"reward": null}',
        b'{"reward": 1} x',
        b"[" * 50_000,
        b'{"reward": ' + b"1" * 5_000 + b"}",
    ],
)
async def test_a_json_that_is_no_plain_number_is_refused(text: bytes) -> None:
    assert read(text, None).reward is None


AS_ANOTHER = b"""chmod 700 /tests /logs/verifier
got=$(setpriv --reuid 1000 --regid 1000 --clear-groups timeout 10 sh run.sh)
[ "$got" = right ] && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""
"""As docs/verification.md advises."""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one user")
@pytest.mark.parametrize(
    "files",
    [
        background(LOOP.format(ONE)),
        once(f"grep -q 0 {REWARD}", ONE),
        once(f"[ -e {REWARD} ]", f"rm {REWARD}"),
        {"run.sh": f"{ONE}; kill -9 $PPID -1; echo wrong\n".encode()},
        {"run.sh": b"mv /logs /gone; echo 'echo 1 > reward' > /tests/test.sh; echo wrong\n"},
        {"run.sh": b"head -c 100000000 /dev/zero > /tmp/big; echo wrong\n"},
        {"run.sh": b"cat /tests/test.sh; echo wrong\n"},
    ],
)
async def test_run_as_another_user_a_solution_reaches_neither_script_nor_reward(
    verifier: Verifier, files: Mapping[str, bytes]
) -> None:
    judged = task(AS_ANOTHER)
    right = await verifier.verify(judged, answer(RIGHT))
    assert right.score == 1.0, (right.detail, right.checks)
    verdict = await earned(verifier, judged, files)
    assert verdict.tamper == ()


APART = b"""cd /app
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
python3 -P -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=/tests /tests && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""
ASKS = b"""import subprocess, sys
def test():
    asked = [sys.executable, "-I", "/app/it.py"]
    assert subprocess.run(asked, capture_output=True, timeout=10).stdout == b"3\\n"
"""
"""Pytest as docs/verification.md advises it, for a solution that is a program."""


@pytest.mark.slow
async def test_pytest_that_looks_nowhere_else_is_not_led_astray(verifier: Verifier) -> None:
    right = {"it.py": b"print(3)\n"}
    judged = task(APART, tests={"test.sh": APART, "test_it.py": ASKS}, reference=right)
    settings = {
        "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '--co'\n",
        "tox.ini": b"[pytest]\naddopts = --co\n",
        "argparse.py": b"import os; os._exit(0)\n",
        "subprocess.py": b"import os; os._exit(0)\n",
    }
    kept = await verifier.verify(judged, answer(right | settings))
    assert kept.score == 1.0, kept.checks
    await earned(verifier, judged, settings | {"it.py": b"import os; os._exit(0)\n"})
