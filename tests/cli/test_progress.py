"""Progress on a terminal and without one."""

import io
import threading

from rich.console import Console

from tiltyard.cli.progress import progress


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


def test_on_a_terminal_there_is_a_bar() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with progress("tasks", 2, console=console) as advance:
        advance("sound")
        advance("unsound")

    assert "2/2" in out.getvalue()
    assert "sound 1, unsound 1" in out.getvalue()
