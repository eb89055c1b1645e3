"""The C programs under the fuzzers, for seconds; `make fuzz` goes on for as long as it is given.

Every input that once broke a program is in native/fuzz/inputs and is run again here. The tests of
the seam matter as much: a fuzzer that looks at nothing finds nothing either.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native import seeds

pytestmark = pytest.mark.slow

SECONDS = 4
NOT_BUILT = 2
NO_COMPILER = "no compiler with the sanitizers"
NO_LIBFUZZER = "no clang with libFuzzer"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "seeds"
    seeds.write(directory)
    return directory


def fuzz(repository: Path, *options: object) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, str(repository / "scripts" / "fuzz.py"), *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
    )
    for missing in (NO_COMPILER, NO_LIBFUZZER):
        if missing in done.stderr:
            pytest.skip(done.stderr.strip())
    return done


@pytest.fixture
def sources(repository: Path, tmp_path: Path) -> Path:
    """A copy of the C programs, to be spoiled."""
    return Path(shutil.copytree(repository / "native", tmp_path / "native"))


def spoil(path: Path, right: str, wrong: str) -> None:
    source = path.read_text()
    assert source.count(right) == 1, f"{path.name} has changed: choose another fault for this test"
    path.write_text(source.replace(right, wrong))


@pytest.mark.parametrize("target", ["supervisor", "launcher"])
def test_known_inputs_break_nothing(repository: Path, inputs: Path, target: str) -> None:
    done = fuzz(repository, "--replay", "--target", target, "--inputs", inputs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: " in done.stdout
    assert " inputs" in done.stdout


@pytest.mark.parametrize("target", ["supervisor", "launcher"])
def test_a_short_search_finds_nothing(
    repository: Path, inputs: Path, tmp_path: Path, target: str
) -> None:
    work = tmp_path / "work"
    options = ("--target", target, "--seconds", SECONDS, "--inputs", inputs, "--work", work)
    done = fuzz(repository, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout
    assert any((work / "corpus" / target).iterdir()), "no input of its own: nothing was searched"


def test_a_missing_bound_is_found(repository: Path, inputs: Path, sources: Path) -> None:
    spoil(
        sources / "frames.c",
        "fields->bad || (size_t)(fields->end - fields->at) < length",
        "fields->bad",
    )
    (inputs / "supervisor" / "short").write_bytes(seeds.cut_short())
    done = fuzz(
        repository, "--replay", "--target", "supervisor", "--inputs", inputs, "--native", sources
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AddressSanitizer: use-after-poison" in done.stdout


def test_a_leaking_request_is_found(repository: Path, inputs: Path, sources: Path) -> None:
    spoil(sources / "frames.c", "free(*each);", "(void)*each;")
    (inputs / "supervisor" / "many").write_bytes(seeds.many_refused())
    done = fuzz(
        repository, "--replay", "--target", "supervisor", "--inputs", inputs, "--native", sources
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "blocks were left allocated" in done.stdout


def test_a_call_that_the_seam_does_not_know_is_not_built(repository: Path, sources: Path) -> None:
    path = sources / "frames.c"
    path.write_text(path.read_text() + "\nint gethostid_(void) { return (int)gethostid(); }\n")
    done = fuzz(repository, "--replay", "--target", "launcher", "--native", sources)
    assert done.returncode == NOT_BUILT
    assert "calls gethostid" in done.stderr
