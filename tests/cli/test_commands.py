"""What each command prints and exits with, for good input and bad."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sample_command import COMMAND
from tiltyard.cli.main import app
from tiltyard.core.errors import StoreError, UsageError
from tiltyard.store import RunReader, RunStore

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.slow


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """It exits with this code, says these words and a fix, and shows no traceback."""
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("command", ["doctor", "run", "verify", "redteam", "demo"])
def test_every_command_explains_itself(tiltyard: Tiltyard, command: str) -> None:
    done = tiltyard(command, "--help")

    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_help_is_written_for_80_columns() -> None:
    """A paragraph's lines are kept as they are, so one that is too long leaves a word alone."""
    told = [inspect.getdoc(command.callback) or "" for command in app.registered_commands]
    several = [part for text in told for part in text.split("\n\n") if "\n" in part]
    assert several
    assert not [line for part in several for line in part.splitlines() if len(line) > 78]


def test_the_version_is_the_packages(tiltyard: Tiltyard) -> None:
    from tiltyard import __version__

    assert tiltyard("--version").stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--colour", "blue"], "--colour"),
        (["run", "repair"], "Missing option '--policy'"),
        (["run", "repair", "--policy", "x", "--samples", "0"], "'--samples': must be greater"),
        (["run", "repair", "--policy", "x", "--turns", "x"], "'--turns': must be a valid integer"),
        (["show", "--run", "typo"], "typo does not exist"),
        (["show", "--run", ""], "the directory's name is empty"),
    ],
)
def test_wrong_usage_is_named(tiltyard: Tiltyard, arguments: list[str], said: str) -> None:
    assert_told(tiltyard(*arguments), 2, said)


@pytest.mark.parametrize(
    ("out", "said"), [("", "name is empty"), ("/etc/passwd", "a file is in the way")]
)
def test_a_place_that_cannot_hold_a_run_is_named(
    tiltyard: Tiltyard, answers: Path, out: str, said: str
) -> None:
    done = tiltyard("run", "repair", "--policy", f"scripted:{answers}", "--out", out)

    assert_told(done, 2, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "closed", "open"), "closed cannot be read: Permission denied"),
        (("verify", "open", "closed"), "'closed' is not readable"),
        (("verify", "open", "open", "--weights", "file.jsonl"), "'file.jsonl' is not readable"),
        (("check", "file.jsonl"), "file.jsonl cannot be read: Permission denied"),
        (("check", "closed"), "closed cannot be read: Permission denied"),
        (("check", "closed/task"), "closed/task cannot be read: Permission denied"),
        (("check", "x" * 300), "cannot be read: File name too long"),
        (("run", "repair", "--policy", "scripted:file.jsonl"), "Permission denied"),
        (("show", "--run", "closed"), "you may not read closed"),
        (("rescore", "closed/run"), "you may not read closed/run"),
        (("run", "repair", "--policy", "scripted:x", "--out", "closed/x"), "not write to"),
    ],
)
def test_what_a_user_may_not_read_is_wrong_usage(
    environment: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "file.jsonl").touch(mode=0o000)
    powers = "-dac_override,-dac_read_search"
    without = ("setpriv", "--bounding-set", powers, "--inh-caps", powers, "--")
    done = subprocess.run(
        [*(without if os.getuid() == 0 else ()), str(COMMAND), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_told(done, 2, said)


def test_without_a_command_there_is_only_the_help(tiltyard: Tiltyard) -> None:
    done = tiltyard()

    assert done.returncode == 2
    assert "Usage:" in done.stdout
    assert done.stderr == ""


def test_a_full_disk_under_the_output_is_no_defect(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(COMMAND), "show", "-h"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 3
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "fix:" in done.stderr
    assert "defect" not in done.stderr


@pytest.mark.parametrize(
    ("tasks", "words"),
    [("nothing", "nothing"), ("repair:heldout?families=clamp,nosuch", "nosuch")],
)
def test_an_unknown_task_is_named(
    tiltyard: Tiltyard, answers: Path, tasks: str, words: str
) -> None:
    assert_told(tiltyard("run", tasks, "--policy", f"scripted:{answers}"), 2, words)


def test_a_malformed_task_file_is_named_with_its_line(
    tiltyard: Tiltyard, answers: Path, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a"\n')

    done = tiltyard("run", tasks, "--policy", f"scripted:{answers}")

    assert_told(done, 2, "tasks.jsonl", "1")


def test_a_script_without_an_answer_is_told_before_the_first_rollout(
    tiltyard: Tiltyard, tmp_path: Path
) -> None:
    script, out = tmp_path / "script.json", tmp_path / "run"
    script.write_text('{"repair/heldout/nosuch/0": ["x"]}')

    done = tiltyard(
        *("run", "repair:heldout?count=8", "--out", out), "--policy", f"scripted:{script}"
    )

    assert_told(done, 2, "has no answer for 8 of 8 tasks: repair", "and 3 more", '"*"')
    assert not out.exists()


def test_an_unknown_policy_is_named(tiltyard: Tiltyard) -> None:
    assert_told(tiltyard("run", "repair", "--policy", "oracle"), 2, "oracle")


def test_a_misspelt_setting_is_refused(tiltyard: Tiltyard, environment: dict[str, str]) -> None:
    environment["TILTYARD_CACHEDIR"] = "x"
    assert_told(tiltyard("show", "x"), 2, "TILTYARD_CACHEDIR")


async def test_a_directory_that_holds_a_run_is_refused(
    tiltyard: Tiltyard, answers: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    await RunStore.create(there).close()

    done = tiltyard("run", "repair", "--policy", f"scripted:{answers}", "--out", there)

    assert_told(done, 2, "there")


def test_show_without_a_run_says_what_to_do(tiltyard: Tiltyard) -> None:
    assert_told(tiltyard("show", "anything"), 2, "no run in /", "--out of a run")


@pytest.mark.sandbox
def test_doctor_reports_what_this_machine_gives(tiltyard: Tiltyard) -> None:
    done = tiltyard("doctor", "--json")
    report = json.loads(done.stdout)

    assert done.returncode in {0, 1}
    assert report["usable"]
    assert report["enforced"]["disk"] == "tmpfs"
    assert {finding["health"] for finding in report["findings"]} <= {"ok", "weak"}


@pytest.mark.sandbox
def test_run_records_verdicts_and_show_tells_them(
    tiltyard: Tiltyard, answers: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = tiltyard(
        *("run", "repair:heldout?count=2", "--policy", f"scripted:{answers}", "--out", out)
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out / "results.jsonl")
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert sorted(line["reward"] for line in lines) == [0.0, 1.0]
    right, wrong = sorted(lines, key=lambda line: -line["reward"])
    shown = tiltyard("show", right["rollout"], "--run", out)
    assert shown.returncode == 0
    for word in ("turn 1", "verdict", "reward 1", "-", "+"):
        assert word in shown.stdout
    (out / "index.sqlite").unlink()
    assert_told(tiltyard("show", "--run", out), 3, "index", f"--mend --run {out}")
    listed = tiltyard("show", "--run", out, "--mend")
    assert listed.returncode == 0, listed.stderr
    assert right["rollout"] in listed.stdout
    spoiled = tiltyard("show", wrong["rollout"], "--run", out, "--json")
    assert json.loads(spoiled.stdout)["steps"][0]["code"] is None


@pytest.mark.sandbox
def test_run_gives_one_json_document(tiltyard: Tiltyard, answers: Path) -> None:
    done = tiltyard(*("run", "repair:heldout?count=2", "--policy", f"scripted:{answers}", "--json"))
    document = json.loads(done.stdout)

    assert document["outcomes"]["graded"] == 2
    assert len(document["rollouts"]) == 2


@pytest.mark.sandbox
def test_markup_in_a_reply_is_shown_as_it_is(tiltyard: Tiltyard, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"*": ["[/INST] [bold]x[/bold] [abc]"]}))
    out = tmp_path / "run"
    done = tiltyard(
        *("run", "repair:heldout?count=1", "--policy", f"scripted:{answers}", "--out", out)
    )

    assert done.returncode == 0, done.stderr
    assert "[/INST] [bold]x[/bold] [abc]" in tiltyard("show", "repair", "--run", out).stdout


FULL_DISK = """
set -eu
mount -t tmpfs -o size=300k tmpfs "$1"
code=0
"$2" run 'repair:heldout?count=400' --turns 1 --policy "scripted:$3" --out "$1/run" || code=$?
"$4" -c "
import pathlib, sys
from tiltyard.store import RunReader
with RunReader(pathlib.Path(sys.argv[1])) as reader:
    print('kept', sum(1 for _ in reader.iter_trajectories()))
" "$1/run"
exit $code
"""


@pytest.mark.sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_told_and_what_was_kept_stays(
    answers: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    arguments = [str(small), str(COMMAND), str(answers), sys.executable]
    # In a mount namespace of its own, so that the small disk goes away with it.
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert_told(done, 3, "No space left")
    assert "outcomes:" in done.stdout
    assert int(done.stdout.split("kept ")[1].split()[0]) > 0


@pytest.mark.sandbox
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_keeps_what_had_finished_and_leaves_nothing(
    start: Callable[..., "subprocess.Popen[str]"], answers: Path, tmp_path: Path, number: int
) -> None:
    out = tmp_path / "run"
    process = start(
        *("run", "repair:heldout?count=5000", "--policy", f"scripted:{answers}", "--out", out)
    )
    deadline = time.monotonic() + 60
    rows = 0
    while rows < 3 and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        try:
            with RunReader(out) as reader:
                rows = sum(1 for _ in reader.iter_rows())
        except (StoreError, UsageError):
            continue  # it has not begun yet
    launcher = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)

    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], said
    assert said.index("stopping") < said.index("what had finished is kept") < said.index("stopped")
    assert "Traceback" not in said
    with RunReader(out) as reader:
        assert sum(1 for _ in reader.iter_rows()) >= rows >= 3
    assert launcher
    assert not any(Path(f"/proc/{pid}").exists() for pid in launcher)
    assert not list(Path("/sys/fs/cgroup").rglob(f"tiltyard-{process.pid}-*"))


@pytest.mark.sandbox
@pytest.mark.train
def test_the_demo_runs_end_to_end(tiltyard: Tiltyard, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = tiltyard("demo", "--quick", "--out", out, timeout_s=170)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out / "summary.json")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rollouts"] == sum(summary["outcomes"].values()) > 100
    assert 0.0 <= summary["heldout_pass_before"] <= 1.0
    for phase in ("1. warm start", "2. test before", "3. learning", "4. test after"):
        assert phase in done.stdout
    assert "too short to learn anything" in done.stdout
    assert "inf" not in done.stdout.split("Sampled pass@1")[1].split("rollouts,")[0]
    assert (out / "learning.png").read_bytes().startswith(b"\x89PNG")
    with RunReader(out) as reader:
        assert sum(1 for _ in reader.iter_rows()) == summary["rollouts"]


@pytest.mark.sandbox
@pytest.mark.train
def test_a_demo_stopped_in_its_warm_start_says_what_that_means(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    process = start("demo", "--out", tmp_path / "demo")
    assert process.stdout is not None
    while "every trajectory is kept" not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 130, said
    assert "stopping" in said
    assert "no rollout had finished" in said
    assert "the next demo begins it anew" in said
    assert "Traceback" not in said
