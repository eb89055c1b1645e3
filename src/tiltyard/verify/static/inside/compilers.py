"""Sources in other languages: their own compilers for the syntax, lizard for the rest. Inside."""

import os
import re
import shutil
import subprocess
from typing import Any

import lizard

Files = list[tuple[str, bytes]]
LISTED_MAX = 50
COMPLEX_LISTED_MAX = 5
PLACE = "/workspace/sources"
COMMANDS = {
    ".c": ("cc", "-fsyntax-only", "-w"),
    ".cc": ("c++", "-fsyntax-only", "-w"),
    ".cpp": ("c++", "-fsyntax-only", "-w"),
    ".go": ("gofmt", "-e"),
    ".js": ("node", "--check"),
    ".rs": ("rustc", "--emit=metadata", "--out-dir", "/tmp"),
    ".sh": ("bash", "-n"),
}
"""Commands that read a source and run nothing of it."""
WORDS_BYTES_MAX = 64 * 1024
PLACED = re.compile(r"^(?:\S*/)?s(\d+)\.\w+:(?: line )?(\d+)[:\s]")
SUPPRESSION = re.compile(
    r"NOLINT|NOSONAR|eslint-disable|ts-ignore|ts-nocheck|pragma\s+(GCC|clang)\s+diagnostic"
    r"|SuppressWarnings|nolint|allow\(|shellcheck\s+disable|cppcheck-suppress"
)


class AbsentError(Exception):
    """This machine does not have the tool."""


def syntax(files: Files, suffix: str) -> Any:
    """Whether the language's own compiler can read each file."""
    command = COMMANDS.get(suffix)
    if command is None or shutil.which(command[0]) is None:
        raise AbsentError(f"there is no {command[0] if command else f'compiler for {suffix}'} here")
    os.makedirs(PLACE, exist_ok=True)
    found = []
    for number, (path, source) in enumerate(files):
        name = f"s{number}{suffix}"
        with open(f"{PLACE}/{name}", "wb") as file:
            file.write(source)
        done = subprocess.run(
            [*command, name],
            cwd=PLACE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            words = done.stderr[:WORDS_BYTES_MAX].decode("utf-8", "replace").strip()
            first = next((line for line in words.splitlines() if PLACED.match(line)), words)
            at = PLACED.match(first)
            line = int(at.group(2)) if at else 0
            found.append(["syntax", first[:200], path, line, None])
    return ("report", {"errors": float(len(found))}, found[:LISTED_MAX])


def size(files: Files, suffix: str) -> Any:
    """Tokens and lines of code by lizard, and comments that ask tools to look away."""
    tokens = lines = suppressions = 0
    found = []
    for path, source in files:
        text = source.decode("utf-8", "replace")
        read = lizard.analyze_file.analyze_source_code(f"s{suffix}", text)
        tokens += read.token_count
        lines += read.nloc
        for number, line in enumerate(text.splitlines(), 1):
            if SUPPRESSION.search(line):
                suppressions += 1
                words = f"asks tools to look away: {line.strip()[:80]}"
                found.append(["suppression", words, path, number, None])
    numbers = {"tokens": tokens, "lines": lines, "suppressions": suppressions}
    return ("report", {name: float(n) for name, n in numbers.items()}, found[:LISTED_MAX])


def complexity(files: Files, suffix: str) -> Any:
    """Cyclomatic complexity by lizard, summed over all functions, and the largest."""
    functions = []
    for path, source in files:
        text = source.decode("utf-8", "replace")
        read = lizard.analyze_file.analyze_source_code(f"s{suffix}", text)
        functions += [
            (each.cyclomatic_complexity, each.name, path, each.start_line)
            for each in read.function_list
        ]
    functions.sort(key=lambda each: -each[0])
    found = [
        ["complexity", f"{name[:80]} has {value}", path, line, float(value)]
        for value, name, path, line in functions[:COMPLEX_LISTED_MAX]
    ]
    largest = float(functions[0][0]) if functions else 0.0
    return ("report", {"sum": float(sum(each[0] for each in functions)), "max": largest}, found)


TOOLS = {"syntax": syntax, "size": size, "complexity": complexity}
