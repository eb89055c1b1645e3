"""Programs in a sandbox as the commands run them: their streams, their terminal, their end."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.yard.conftest import Sandbox
from sample_command import COMMAND

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

Start = Callable[..., "subprocess.Popen[str]"]
BIG = 24 * 2**20
"""More than waits anywhere on the way."""


def running_in(sandbox: Sandbox, made: str) -> list[str]:
    return sandbox("exec", made, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()


def test_much_output_waits_for_a_slow_reader(start: Start, sandbox: Sandbox, made: str) -> None:
    process = start("exec", made, "--", "sh", "-c", f"head -c {BIG} /dev/zero; touch written")
    assert process.stdout is not None
    beginning = process.stdout.read(1)
    seen = sandbox("exec", made, "ls")
    rest = len(process.stdout.read())

    assert beginning == "\0"
    assert "written" not in seen.stdout
    assert 1 + rest == BIG
    assert process.wait(60) == 0


def test_much_input_comes_through(sandbox: Sandbox, made: str) -> None:
    done = sandbox("exec", made, "wc", "-c", stdin="x" * BIG)

    assert (done.returncode, done.stdout) == (0, f"{BIG}\n")


def test_a_reader_that_has_seen_enough_ends_the_program(
    start: Start, sandbox: Sandbox, made: str
) -> None:
    process = start("exec", made, "--", "yes")
    assert process.stdout is not None
    assert process.stdout.readline() == "y\n"
    process.stdout.close()
    process.stdout = None

    assert process.wait(60) == 141
    assert "yes" not in running_in(sandbox, made)


def test_ctrl_c_kills_a_program_that_does_not_read(
    start: Start, sandbox: Sandbox, made: str
) -> None:
    process = start("exec", made, "--", "sh", "-c", "echo begun; exec sleep 600")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    try:
        os.set_blocking(process.stdin.fileno(), False)
        while select.select([], [process.stdin], [], 0)[1]:
            os.write(process.stdin.fileno(), bytes(4096))
    except BlockingIOError:
        pass
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 130
    assert "sleep" not in running_in(sandbox, made)


class Typist:
    """A person at a terminal on which a command runs."""

    def __init__(self, ours: int, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._ours = ours
        self._seen = b""

    def type(self, words: str) -> None:
        os.write(self._ours, words.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, words: str) -> None:
        while words.encode() not in self._seen:
            assert select.select([self._ours], [], [], 60)[0], self._seen
            self._seen += os.read(self._ours, 4096)
        self._seen = self._seen.partition(words.encode())[2]


@pytest.fixture
def typist(environment: dict[str, str]) -> Iterator[Callable[..., Typist]]:
    opened: list[Typist] = []

    def run(*arguments: str) -> Typist:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            ["setsid", "--ctty", str(COMMAND), "sandbox", *arguments],
            env={**environment, "TERM": "vt100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        opened.append(Typist(ours, process))
        return opened[-1]

    yield run
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        os.close(each._ours)


def test_a_shell_on_a_terminal(typist: Callable[..., Typist], made: str) -> None:
    person = typist("shell", made, "--", "sh", "-i")
    person.type("PS1=''; stty -echo\n")
    person.type("echo term=$TERM; test -t 0 && echo tty\n")
    person.wait_for("term=vt100")
    person.wait_for("tty")
    person.resize(31, 97)
    person.type("while test \"$(stty size)\" != '31 97'; do :; done; echo resized\n")
    person.wait_for("resized")
    person.type("echo waiting; sleep 600\n")
    person.wait_for("waiting")
    person.type("\x03")
    person.type("echo after; exit 5\n")
    person.wait_for("after")

    assert person.process.wait(60) == 5


def test_a_shell_without_a_terminal_says_so(sandbox: Sandbox, made: str) -> None:
    done = sandbox("shell", made)

    assert (done.returncode, "needs a terminal" in done.stderr) == (2, True)


def test_the_terminal_is_given_back(
    typist: Callable[..., Typist], sandbox: Sandbox, made: str, tmp_path: Path
) -> None:
    person = typist("shell", made, "--", "sh", "-c", "echo here; exec sleep 600")
    person.wait_for("here")
    raw = termios.tcgetattr(person._ours)[3]
    person.process.terminate()
    code = person.process.wait(60)
    given_back = termios.tcgetattr(person._ours)[3]

    assert code == 143
    assert not raw & termios.ICANON
    assert given_back & termios.ICANON
    assert "sleep" not in running_in(sandbox, made)
