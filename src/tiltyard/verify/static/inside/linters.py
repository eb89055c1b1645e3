"""ruff and bandit on Python sources, by rules of ours and nothing else. Runs inside.

The sources get names of ours in a directory of ours, so that nothing that a submission ships can
configure a tool; comments that ask to look away are ignored.
"""

import logging
import os
import re
import subprocess
from typing import Any

from bandit.core import config, manager

Files = list[tuple[str, bytes]]
LISTED_MAX = 50
RUFF = "/run/tiltyard/ruff"
RULES = "B,C4,E,F,PERF,PIE,RET,SIM,UP,W"
"""Defects and needless detours; nothing of taste alone, and no names, which tasks dictate."""
PLACE = "/workspace/sources"
FINDING = re.compile(rb"^(?:\S*/)?m(\d+)\.py:(\d+):\d+: (\S+?):? (.*)$")
POINTS = {"LOW": 1.0, "MEDIUM": 3.0, "HIGH": 10.0}

logging.disable(logging.CRITICAL)
# Loading its plugins takes a tenth of a second, and every run is forked from here.
BANDIT = manager.BanditManager(config.BanditConfig(), "file", ignore_nosec=True)


def placed(files: Files) -> list[str]:
    """Writes the sources under names of ours and returns these."""
    os.makedirs(PLACE, exist_ok=True)
    names = [f"m{number}.py" for number in range(len(files))]
    for name, (_, source) in zip(names, files, strict=True):
        with open(f"{PLACE}/{name}", "wb") as file:
            file.write(source)
    return names


def style(files: Files) -> Any:
    """ruff's findings."""
    names = placed(files)
    argv = [RUFF, "check", "--isolated", "--no-cache", "--ignore-noqa", "--no-fix", "--quiet"]
    argv += ["--select", RULES, "--line-length", "100", "--target-version", "py311"]
    argv += ["--output-format", "concise", *names]
    count = 0
    found: list[Any] = []
    with subprocess.Popen(
        argv, cwd=PLACE, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            match = FINDING.match(line.rstrip())
            if match is None:
                continue
            count += 1
            if len(found) < LISTED_MAX:
                number, at, code, words = match.groups()
                path = files[int(number)][0]
                message = words.decode("utf-8", "replace")[:200]
                found.append([code.decode(), message, path, int(at), None])
    if process.returncode not in {0, 1}:
        return ("failed", f"ruff ended with {process.returncode}")
    return ("report", {"findings": float(count)}, found)


def security(files: Files) -> Any:
    """bandit's findings, with 1, 3 or 10 points by severity."""
    names = placed(files)
    paths = [f"{PLACE}/{name}" for name in names]
    BANDIT.files_list = list(paths)
    BANDIT.run_tests()
    if BANDIT.skipped:
        return ("failed", f"bandit: {BANDIT.skipped[0][1]}")
    points = 0.0
    found: list[Any] = []
    for issue in BANDIT.results:
        points += POINTS.get(issue.severity, 1.0)
        if len(found) < LISTED_MAX:
            path = files[paths.index(issue.fname)][0]
            value = POINTS.get(issue.severity, 1.0)
            found.append([issue.test_id, str(issue.text)[:200], path, int(issue.lineno), value])
    return ("report", {"points": points, "findings": float(len(BANDIT.results))}, found)
