"""The C programs under the fuzzers, for seconds; `make fuzz` goes on for as long as it is given.

Every input that once broke a program is in native/fuzz/inputs and is run again here. The tests of
the seam matter as much: a fuzzer that looks at nothing finds nothing either.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from native import seeds

pytestmark = pytest.mark.slow

Fuzz = Callable[..., "subprocess.CompletedProcess[str]"]

SECONDS = 4
NOT_BUILT = 2
FAILED = 1
NO_COMPILER = "no compiler with the sanitizers"
NO_LIBFUZZER = "no clang with libFuzzer"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "seeds"
    seeds.write(directory)
    return directory


@pytest.fixture
def fuzz(repository: Path, lacking: Callable[[str], NoReturn]) -> Fuzz:
    """Runs `scripts/fuzz.py`."""

    def run(*options: object) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, str(repository / "scripts" / "fuzz.py"), *map(str, options)],
            capture_output=True,
            text=True,
            check=False,
        )
        for missing in (NO_COMPILER, NO_LIBFUZZER):
            if missing in done.stderr:
                lacking(done.stderr.strip())
        return done

    return run


@pytest.fixture
def sources(repository: Path, tmp_path: Path) -> Path:
    """A copy of the C programs, to be spoiled."""
    return Path(shutil.copytree(repository / "native", tmp_path / "native"))


def spoil(path: Path, right: str, wrong: str) -> None:
    source = path.read_text()
    assert source.count(right) == 1, f"{path.name} has changed: choose another fault for this test"
    path.write_text(source.replace(right, wrong))


@pytest.mark.parametrize("target", ["supervisor", "launcher"])
def test_known_inputs_break_nothing(fuzz: Fuzz, inputs: Path, target: str) -> None:
    done = fuzz("--replay", "--target", target, "--inputs", inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: " in done.stdout
    assert " inputs" in done.stdout


@pytest.mark.parametrize("target", ["supervisor", "launcher"])
def test_a_short_search_finds_nothing(
    fuzz: Fuzz, inputs: Path, tmp_path: Path, target: str
) -> None:
    work = tmp_path / "work"
    options = ("--target", target, "--seconds", SECONDS, "--inputs", inputs, "--work", work)
    done = fuzz(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout
    assert any((work / "corpus" / target).iterdir()), "no input of its own: nothing was searched"


def test_a_missing_bound_is_found(fuzz: Fuzz, inputs: Path, sources: Path) -> None:
    spoil(
        sources / "frames.c",
        "fields->bad || (size_t)(fields->end - fields->at) < length",
        "fields->bad",
    )
    (inputs / "supervisor" / "short").write_bytes(seeds.cut_short())
    done = fuzz("--replay", "--target", "supervisor", "--inputs", inputs, "--native", sources)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AddressSanitizer: use-after-poison" in done.stdout


@pytest.mark.long
def test_a_leaking_request_is_found(fuzz: Fuzz, inputs: Path, sources: Path) -> None:
    spoil(sources / "frames.c", "free(*each);", "(void)*each;")
    (inputs / "supervisor" / "many").write_bytes(seeds.many_refused())
    done = fuzz("--replay", "--target", "supervisor", "--inputs", inputs, "--native", sources)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "blocks were left allocated" in done.stdout


def test_a_call_that_the_seam_does_not_know_is_not_built(fuzz: Fuzz, sources: Path) -> None:
    path = sources / "frames.c"
    path.write_text(path.read_text() + "\nint gethostid_(void) { return (int)gethostid(); }\n")
    done = fuzz("--replay", "--target", "launcher", "--native", sources)
    assert done.returncode == NOT_BUILT
    assert "calls gethostid" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [((), 0, "1 skipped"), (("--require-sandbox",), FAILED, "1 failed")],
)
def test_a_machine_without_a_fuzzer_is_green_only_where_sandboxes_may_be_missing(
    repository: Path, tmp_path: Path, options: tuple[str, ...], code: int, word: str
) -> None:
    one = f"{repository / 'tests/native/test_fuzz.py'}::test_known_inputs_break_nothing[launcher]"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, one],
        env={**os.environ, "PATH": str(tmp_path)},  # where there is no compiler
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert word in done.stdout
    assert NO_COMPILER in done.stdout
