"""`tiltyard conformance` from outside: its table, its document, its exit codes."""

import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from tiltyard.sandbox.conformance.case import Family
from tiltyard.sandbox.conformance.catalogue import CASES
from tiltyard.sandbox.conformance.host import descendants
from tiltyard.sandbox.conformance.neighbour import PATIENCE

Start = Callable[..., "subprocess.Popen[str]"]
Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]


def test_a_case_is_told_as_a_table(tiltyard: Tiltyard) -> None:
    done = tiltyard("conformance", "--only", "raised-limits")

    assert done.returncode == 0, done.stderr
    assert "raised-limits" in done.stdout
    assert "contained" in done.stdout
    assert "1 contained" in done.stdout
    assert re.search(
        r"host was late by \d+ ms, and the neighbour answered after \d+ ms", done.stdout
    )


def test_a_family_is_told_as_a_document(tiltyard: Tiltyard) -> None:
    done = tiltyard("conformance", "--only", "terminals", "--only", "keyrings", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [case["name"] for case in told["cases"]] == ["terminals", "keyrings"]
    assert told["counts"]["contained"] == 2
    assert told["provider"] == "native"
    for case in told["cases"]:
        assert 0 < case["around"]["lag_ms"] < PATIENCE.host_ms
        assert 0 < case["around"]["answer_ms"] < PATIENCE.neighbour_s * 1000
        assert (case["around"]["late"], case["tries"]) == ([], 1)


def test_the_cases_can_be_listed(tiltyard: Tiltyard) -> None:
    done = tiltyard("conformance", "--list")
    told = tiltyard("conformance", "--list", "--only", "memory", "--json")

    assert done.returncode == 0
    assert all(case.name in done.stdout for case in CASES), "a name is there to be copied"
    names = [case["name"] for case in json.loads(told.stdout)]
    assert names == [case.name for case in CASES if case.family == Family.MEMORY]


@pytest.mark.parametrize("arguments", [("--only", "nosuch"), ("--provider", "nosuch")])
def test_what_there_is_not_is_wrong_usage(tiltyard: Tiltyard, arguments: tuple[str, ...]) -> None:
    done = tiltyard("conformance", *arguments)

    assert done.returncode == 2
    assert "nosuch" in done.stderr
    assert "fix:" in done.stderr


def test_a_stop_leaves_nothing(start: Start) -> None:
    process = start("conformance", "--only", "fork-bomb", "--only", "deaf-to-signals")
    assert process.stderr is not None
    process.stderr.readline()  # the first case is on its way
    below = [os.pidfd_open(pid) for pid in descendants(process.pid)]

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert below
    for each in below:
        assert select.select([each], [], [], 10)[0], "a process of it lives on"
        os.close(each)
