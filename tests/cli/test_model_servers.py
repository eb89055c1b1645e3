"""A model server that does not serve: what a user is told, and the exit code."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tiltyard.cli.run import exit_code
from tiltyard.core.verdict import Outcome

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """The URL of a server that gives every request this answer."""

    class Answer(BaseHTTPRequestHandler):
        """Always the same."""

        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"{}", "OPENAI_API_KEY"),
        (404, b"{}", "Check the URL and the model's name"),
        (429, b"{}", "--concurrency"),
        (500, b"{}", "See the server's log"),
        (200, b"<html>", "OpenAI-compatible"),
    ],
)
def test_a_server_that_never_serves_is_told_once(
    tiltyard: Tiltyard, status: int, body: bytes, said: str
) -> None:
    with answering(status, body) as url:
        done = tiltyard("run", "repair:heldout?count=6", "--policy", f"openai:{url}#m")

    assert done.returncode == 3, done.stderr
    assert done.stdout.count(said) == 1
    assert "infra_fault 6 times: The model m" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/v1", "Connection refused"),
        ("http://nosuch.invalid/v1", "the connection failed: "),
    ],
)
def test_a_server_that_is_away_is_a_recorded_fault(tiltyard: Tiltyard, url: str, said: str) -> None:
    done = tiltyard("run", "repair:heldout?count=1", "--policy", f"openai:{url}#m", "--json")
    document = json.loads(done.stdout)

    assert done.returncode == 3
    assert document["outcomes"]["infra_fault"] == 1
    (rollout,) = document["rollouts"]
    assert rollout["reward"] is None
    assert said in rollout["why"]
    assert "ssl:" not in rollout["why"]
    assert not rollout["why"].startswith("infra_fault")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        ([Outcome.GRADED, Outcome.AGENT_FAULT], 0),
        ([Outcome.GRADED, Outcome.INFRA_FAULT], 1),
        ([Outcome.GRADER_FAULT], 1),
        ([Outcome.INFRA_FAULT, Outcome.INFRA_FAULT], 3),
    ],
)
def test_the_exit_code_says_whether_anything_could_be_done(
    outcomes: list[Outcome], code: int
) -> None:
    assert exit_code(outcomes) == code
