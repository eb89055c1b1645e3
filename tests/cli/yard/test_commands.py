"""`tiltyard sandbox`, run as a user runs it."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.yard.conftest import Sandbox, daemons, listed
from tiltyard.cli.sandbox import tell_unheld
from tiltyard.core.execution import Limit, open_limits
from tiltyard.sandbox.native.cgroups import enforcement
from tiltyard.sandbox.native.provider import usable_hierarchies

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    for word in (*words, "fix:"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sandbox_outlives_the_command_that_made_it(sandbox: Sandbox, made: str) -> None:
    wrote = sandbox("exec", made, "--", "sh", "-c", "cat > kept; echo said >&2", stdin="words")
    read = sandbox("exec", made, "cat", "kept")

    assert (wrote.returncode, wrote.stdout, wrote.stderr) == (0, "", "said\n")
    assert (read.returncode, read.stdout, read.stderr) == (0, "words", "")
    assert listed(sandbox) == {made: "live"}


def test_create_says_what_is_not_held_here(sandbox: Sandbox) -> None:
    missing = list(open_limits(enforcement(usable_hierarchies())))
    flags = [word for limit in missing for word in ("--allow-unenforced", limit)]
    unasked = sandbox("create", "--json")
    accepted = sandbox("create", *flags)

    assert json.loads(unasked.stdout)["unenforced"] == missing
    assert (f"not held for a whole sandbox here: {', '.join(missing)};" in unasked.stderr) is bool(
        missing
    )
    assert (f"{' '.join(flags)} accepts it" in unasked.stderr) is bool(missing)
    assert (accepted.returncode, accepted.stderr) == (0, "")


def test_words_on_limits_that_are_not_held(capsys: pytest.CaptureFixture[str]) -> None:
    tell_unheld([])
    assert capsys.readouterr() == ("", "")

    tell_unheld([Limit.CPU, Limit.NETWORK])
    said = capsys.readouterr()
    assert said.err.startswith("not held for a whole sandbox here: cpu, network; ")
    assert "--allow-unenforced cpu --allow-unenforced network accepts" in said.err
    assert said.out == ""


def test_exec_exits_as_the_program_did(sandbox: Sandbox, made: str) -> None:
    exited = sandbox("exec", made, "--", "sh", "-c", "exit 7")
    killed = sandbox("exec", made, "--", "sh", "-c", "kill -15 $$")
    missing = sandbox("exec", made, "no-such-program")

    assert (exited.returncode, exited.stderr) == (7, "")
    assert (killed.returncode, killed.stderr) == (143, "")
    assert (missing.returncode, "start_failed" in missing.stderr) == (127, True)


def test_exec_options_and_its_document(sandbox: Sandbox, made: str) -> None:
    late = sandbox("exec", "--timeout", "0.2s", made, "--", "sleep", 600)
    options = ("--cwd", "/tmp", "--env", "COLOUR=a=b", "--json")
    told = sandbox("exec", *options, made, "--", "sh", "-c", "pwd; echo $COLOUR; exit 3")
    document = json.loads(told.stdout)

    assert late.returncode == 137
    assert "wall_timeout" in late.stderr
    assert told.returncode == document["exit_code"] == 3
    assert (document["reason"], document["stdout"]) == ("exit", "/tmp\na=b\n")


@pytest.mark.parametrize(
    ("option", "value", "script", "code", "reason"),
    [
        ("--cpu-time", "1s", "while :; do :; done", 128 + signal.SIGXCPU, "cpu_timeout"),
        ("--idle", "0.2s", "echo said; sleep 600", 137, "idle_timeout"),
        ("--output-max", "1K", "echo said; exec cat /dev/zero", 137, "output"),
    ],
)
def test_exec_holds_a_program_within_its_own_bounds(
    sandbox: Sandbox, made: str, option: str, value: str, script: str, code: int, reason: str
) -> None:
    ended = sandbox("exec", option, value, made, "--", "sh", "-c", script)

    assert (ended.returncode, ended.stderr) == (code, f"ended: {reason}\n")


def test_exec_as_another_user(sandbox: Sandbox, made: str) -> None:
    by_name, by_number = (
        sandbox("exec", "--user", user, made, "id", "-u") for user in ("nobody", "1234")
    )

    if os.geteuid() == 0:
        assert (by_name.stdout, by_number.stdout) == ("65534\n", "1234\n")
    else:
        assert_told(by_name, 125, "has no user 'nobody'")


@pytest.mark.parametrize(
    "wrong", [("--cpu-time", "1.5s"), ("--idle", "0s"), ("--timeout", "9d"), ("--output-max", "x")]
)
def test_a_bound_that_is_none_is_wrong_usage(sandbox: Sandbox, wrong: tuple[str, str]) -> None:
    assert_told(sandbox("exec", *wrong, "sb-000000", "true"), 2, wrong[0])


def test_what_is_not_the_programs_doing_is_125(sandbox: Sandbox, made: str) -> None:
    assert_told(sandbox("exec", "sb-000000", "true"), 125, "no sandbox 'sb-000000'")
    assert_told(sandbox("exec", "--env", "x", made, "true"), 2, "NAME=VALUE")


def test_files_go_in_and_out(sandbox: Sandbox, made: str, tmp_path: Path) -> None:
    source, back = tmp_path / "tool", tmp_path / "back"
    source.write_bytes(bytes(range(256)) * 10_000)
    source.chmod(0o755)

    assert sandbox("cp", source, f"{made}:bin/").returncode == 0
    assert sandbox("exec", made, "stat", "-c", "%a %s", "bin/tool").stdout == "755 2560000\n"
    assert sandbox("cp", f"{made}:/workspace/bin/tool", back).returncode == 0
    assert back.read_bytes() == source.read_bytes()
    assert sandbox("cp", f"{made}:bin/tool", tmp_path / "missing" / "x").returncode == 2
    gone = sandbox("cp", f"{made}:nothing", back)
    assert (gone.returncode, made in gone.stderr) == (3, True)
    assert_told(sandbox("cp", source, back), 2, "ID:path")


def test_trees_go_in_and_out(sandbox: Sandbox, made: str, tmp_path: Path) -> None:
    tree, back = tmp_path / "tree", tmp_path / "back"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_text("content")
    (tree / "link").symlink_to("deep/file")

    assert sandbox("cp", tree, f"{made}:copy").returncode == 0
    assert sandbox("cp", tree, f"{made}:copy").returncode == 0, "into it, as it is there now"
    seen = sandbox("exec", made, "--", "sh", "-c", "cd copy && find . | sort && ln -s /etc out")
    assert seen.stdout.split() == [
        *(".", "./deep", "./deep/file", "./link"),
        *("./tree", "./tree/deep", "./tree/deep/file", "./tree/link"),
    ]
    refused = sandbox("cp", f"{made}:copy", back)
    assert (refused.returncode, "out" in refused.stderr, back.exists()) == (3, True, False)
    told = sandbox("cp", "--links", "skip", f"{made}:copy", back)
    assert (told.returncode, "'out'" in told.stderr) == (0, True)
    assert (back / "tree" / "deep" / "file").read_text() == "content"
    assert not (back / "link").exists()
    into = sandbox("cp", "--json", f"{made}:copy/tree", back / "deep")
    assert (into.returncode, json.loads(into.stdout)["files"]) == (0, 1)
    assert (back / "deep" / "tree" / "link").read_text() == "content"
    assert sandbox("cp", f"{made}:copy/tree", back / "deep").returncode == 3


def test_the_tables(sandbox: Sandbox, made: str) -> None:
    for done in (sandbox("ls"), sandbox("top", "--interval", 0.1)):
        assert (done.returncode, made in done.stdout) == (0, True)
    (row,) = json.loads(sandbox("top", "--interval", 0.1, "--json").stdout)

    assert row["id"] == made
    assert row["memory_bytes_max"] == 128 * 2**20


TALK = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
    print("talked")
"""


def test_a_network_is_had_by_those_that_asked_for_one(sandbox: Sandbox, made: str) -> None:
    loopback = sandbox("create", "--memory", "64M", "--network", "loopback").stdout.strip()

    assert sandbox("exec", loopback, "--", "python3", "-", stdin=TALK).stdout == "talked\n"
    assert sandbox("exec", made, "--", "python3", "-", stdin=TALK).returncode == 1
    refused = sandbox("create", "--network", "allow", "--allow", "not a name")
    assert (refused.returncode, "not a name" in refused.stderr) == (3, True)


def test_a_limit_that_makes_no_sense_is_refused_and_no_sandbox_is_made(sandbox: Sandbox) -> None:
    assert_told(sandbox("create", "--memory", "1"), 3, "memory_bytes")
    assert_told(sandbox("create", "--memory", "much"), 2, "size")
    assert_told(sandbox("create", "--ttl", "90d"), 2, "30 days")
    for way in ("up", "down"):
        held = sandbox("create", f"--bandwidth-{way}", "1M")  # of no network
        assert_told(held, 3, f"bandwidth_{way}_bytes_s")
        assert_told(sandbox("create", f"--bandwidth-{way}", "much"), 2, f"--bandwidth-{way}")
    assert listed(sandbox) == {}


def test_rm_ends_those_that_are_named_or_none(sandbox: Sandbox, made: str) -> None:
    other = sandbox("create", "--memory", "64M").stdout.strip()

    assert_told(sandbox("rm", other, "sb-000000"), 2, "sb-000000")
    assert set(listed(sandbox)) == {made, other}
    assert_told(sandbox("rm"), 2, "--all")
    assert sandbox("rm", other).stdout.strip() == other
    assert listed(sandbox) == {made: "live"}
    gone = sandbox("exec", other, "true")
    assert (gone.returncode, "was removed" in gone.stderr) == (125, True)


def test_a_sandbox_ends_at_its_deadline(sandbox: Sandbox) -> None:
    brief = sandbox("create", "--memory", "64M", "--ttl", "0.2s").stdout.strip()
    done = sandbox("exec", brief, "--", "sleep", 600)

    assert done.returncode == 125
    while listed(sandbox):
        pass
    assert_told(sandbox("exec", brief, "true"), 125, brief, "its time was over")


def test_without_a_daemon_nothing_is_started_to_say_so(sandbox: Sandbox, runtime: Path) -> None:
    assert listed(sandbox) == {}
    assert sandbox("rm", "--all").returncode == 0
    assert sandbox("stop").stdout == "there was no yard daemon\n"
    assert not daemons(runtime)
    assert list(runtime.iterdir()) == []


def test_every_command_explains_itself(sandbox: Sandbox) -> None:
    for name in ("create", "exec", "cp", "ls", "top", "rm", "sweep", "stop"):
        assert "Usage:" in sandbox(name, "--help").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "--cwd", b"/\xff", "sb-000000", "--", "true"),
        ("exec", "x" * 65, "--", "true"),
        ("cp", b"sb-000000:\xff", "here"),
        ("cp", "sb-000000:" + "x" * 5000, "here"),
        ("rm", b"\xff"),
    ],
)
def test_words_that_cannot_be_sent_are_the_users_to_correct(
    sandbox: Sandbox, words: tuple[str | bytes, ...]
) -> None:
    done = sandbox(*(os.fsdecode(word) for word in words))
    assert done.returncode in {2, 125}
    assert "cannot be sent" in done.stderr
    assert "report" not in done.stderr
