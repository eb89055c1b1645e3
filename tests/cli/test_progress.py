"""Progress on a terminal and without one."""

import io
import threading

import pytest
from rich.console import Console

from tiltyard.cli.progress import phases, progress


class Lines(io.StringIO):
    """Sets its event when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_without_a_terminal_a_plain_line_comes_now_and_then() -> None:
    out = Lines()
    console = Console(file=out, force_terminal=False, width=200)
    with progress("tasks", 3, console=console, line_every_s=0.001) as advance:
        advance("sound")
        assert out.written.wait(10)
        out.written.clear()
        assert out.written.wait(10)

    assert "1 of 3 tasks after 0 s: sound 1\n" in out.getvalue()


def test_what_is_over_at_once_says_nothing() -> None:
    out = io.StringIO()
    with progress("tasks", 1, console=Console(file=out, force_terminal=False)) as advance:
        advance("sound")

    assert out.getvalue() == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_who_wants_quiet_has_it(*, terminal: bool) -> None:
    out = Lines()
    console = Console(file=out, force_terminal=terminal)
    with progress("tasks", 1, console=console, quiet=True, line_every_s=0.001) as advance:
        advance("sound")
        with phases("the tests", console=console, quiet=True, line_every_s=0.001) as tell:
            tell("growth")
            assert not out.written.wait(0.05)

    assert out.getvalue() == ""


def test_what_is_done_now_is_told_on_a_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with phases("the tests", console=console) as tell:
        tell("growth")

    assert "growth" in out.getvalue()


def test_what_is_done_now_is_told_in_lines() -> None:
    out = Lines()
    console = Console(file=out, force_terminal=False, width=200)
    with phases("the tests", console=console, line_every_s=0.001) as tell:
        assert out.written.wait(10)
        tell("growth")
        out.written.clear()
        assert out.written.wait(10)
        out.written.clear()
        assert out.written.wait(10)

    assert out.getvalue().startswith("the tests after 0 s\n")
    assert "growth after 0 s\n" in out.getvalue()


def test_on_a_terminal_there_is_a_bar() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with progress("tasks", 2, console=console) as advance:
        advance("sound")
        advance("unsound")

    assert "2/2" in out.getvalue()
    assert "sound 1, unsound 1" in out.getvalue()
