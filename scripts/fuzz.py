"""Builds and runs the fuzzers of the C programs: `make fuzz`, or `scripts/fuzz.py --help`.

The programs are compiled as they are, from the lists in native/CMakeLists.txt, so that a new file
is fuzzed from its first day. native/fuzz/seam.txt then says of every call that leaves them what
becomes of it, and a call that it does not know stops the build: an input must never start, kill or
mount anything, nor touch a file outside of a temporary directory. See
docs/decisions/0010-fuzzing.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "tiltyard-launcher"
"""What is fuzzed is one program; as pid 1 of a sandbox it is the supervisor."""
TARGETS = ("supervisor", "launcher")
CHECKS = "address,undefined"
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-common")
VARIABLES = {"data": (".data", ".data.rel", ".data.rel.local"), "bss": (".bss",)}
INPUT_BYTES_MAX = 16_384
RUN_TIMEOUT_S = 10
MEMORY_MIB_MAX = 1024
EXIT_FOUND, EXIT_NOT_BUILT = 1, 2


class NotBuilt(Exception):
    """The fuzzers cannot be built here; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A compiler, and what makes a program of a harness."""

    compiler: str
    instrument: tuple[str, ...]
    """Flags for what is fuzzed."""
    link: tuple[str, ...]
    main: tuple[str, ...]
    """Sources of the `main` around a harness, where the compiler brings none."""


def main() -> int:
    options = _options()
    try:
        engine = _replayer() if options.replay else _libfuzzer()
        with tempfile.TemporaryDirectory(prefix="tiltyard-fuzz-") as scratch:
            if options.build:
                options.build.mkdir(parents=True, exist_ok=True)
            for name in options.target or TARGETS:
                out = options.build or Path(scratch)
                program = build(name, engine, native=options.native, out=out)
                run = _replay if options.replay else _fuzz
                if not run(program, name, options):
                    return EXIT_FOUND
    except NotBuilt as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return EXIT_NOT_BUILT
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (60)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="may be repeated")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="only run the inputs that are there, with any compiler that has the sanitizers",
    )
    parser.add_argument(
        "--inputs", type=Path, action="append", default=[], help="more inputs: DIR/TARGET/*"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "build" / "fuzz",
        help="inputs and findings are kept here",
    )
    parser.add_argument(
        "--build", type=Path, help="where the programs are kept; nowhere by default"
    )
    parser.add_argument("--native", type=Path, default=ROOT / "native", help="the sources")
    return parser.parse_args()


def _libfuzzer() -> Engine:
    for name in ("clang", *(f"clang-{version}" for version in range(21, 13, -1))):
        compiler = shutil.which(name)
        engine = compiler and Engine(
            compiler=compiler,
            instrument=(f"-fsanitize=fuzzer-no-link,{CHECKS}",),
            link=(f"-fsanitize=fuzzer,{CHECKS}",),
            main=(),
        )
        if engine and _compiles(engine.compiler, *engine.link):
            return engine
    raise NotBuilt("no clang with libFuzzer was found. Fix: scripts/setup-system --fuzz")


def _replayer() -> Engine:
    for name in ("cc", "gcc", "clang"):
        compiler = shutil.which(name)
        if compiler and _compiles(compiler, f"-fsanitize={CHECKS}", main=True):
            checks = (f"-fsanitize={CHECKS}",)
            return Engine(compiler=compiler, instrument=checks, link=checks, main=("replay.c",))
    raise NotBuilt("no compiler with the sanitizers' libraries was found. Fix: install gcc")


def _compiles(compiler: str, *flags: str, main: bool = False) -> bool:
    source = "int main(void) { return 0; }" if main else _EMPTY_HARNESS
    with tempfile.TemporaryDirectory() as scratch:
        argv = [compiler, "-x", "c", "-", *flags, "-o", f"{scratch}/probe"]
        done = subprocess.run(argv, input=source, text=True, capture_output=True, check=False)
    return done.returncode == 0


_EMPTY_HARNESS = (
    "int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n) { return !b && n; }"
)


def build(name: str, engine: Engine, *, native: Path, out: Path) -> Path:
    """Builds one fuzzer; returns its path. Raises `NotBuilt`."""
    checks = ("-fno-sanitize-recover=all", f"-fsanitize={CHECKS}")
    include = ("-I", str(ROOT / "native" / "fuzz" / "stub"), "-I", str(native))
    harness = ROOT / "native" / "fuzz"
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        under = []
        for source in _sources(native, PROGRAM):
            target = scratch / f"under-{source.stem}.o"
            flags = (*FLAGS, *checks, *engine.instrument, *include)
            _run(engine.compiler, *flags, "-c", str(source), "-o", str(target))
            under.append(target)
        rules = _rules(harness / "seam.txt")
        _cut(under, rules=rules, native=native)
        plain = scratch / "seam_plain.c"
        plain.write_text(_plain_answers(rules))
        parts = (f"{name}.c", "seam.c", "seam_files.c", "seam_calls.c", *engine.main)
        objects = []
        for part in (*(harness / part for part in parts), plain):
            target = scratch / f"{part.name}.o"
            warnings = ("-Wall", "-Wextra", "-Werror")
            _run(
                *(engine.compiler, *FLAGS, *warnings, *checks, *include),
                *("-c", str(part), "-o", str(target)),
            )
            objects.append(target)
        program = out / f"fuzz-{name}"
        _run(engine.compiler, *engine.link, *map(str, (*objects, *under)), "-o", str(program))
    return program


def _sources(native: Path, program: str) -> list[Path]:
    listed = re.search(
        rf"add_executable\({program}\s+([^)]*)\)", (native / "CMakeLists.txt").read_text()
    )
    if listed is None:
        raise NotBuilt(f"native/CMakeLists.txt builds no {program}")
    return [native / name for name in re.findall(r"\b\w+\.c\b", listed[1])]


def _rules(path: Path) -> dict[str, str]:
    """What becomes of each call."""
    rules: dict[str, str] = {}
    for line in path.read_text().splitlines():
        rule, *names = line.partition("#")[0].split() or [""]
        rules |= dict.fromkeys(names, rule)
    return rules


def _plain_answers(rules: dict[str, str]) -> str:
    """C for the calls that are answered in one of the few plain ways."""
    answers = {rule: f"seam_{rule}" for rule in ("done", "nothing", "refuse", "end")}
    declared = "".join(f"long {name}(void);\n" for name in answers.values())
    return declared + "".join(
        f"long seam_{name}(void);\nlong seam_{name}(void) {{ return {answers[rule]}(); }}\n"
        for name, rule in rules.items()
        if rule in answers
    )


def _cut(objects: Sequence[Path], *, rules: dict[str, str], native: Path) -> None:
    """Renames every call that leaves the objects, and gathers their variables."""
    own = {name for path in objects for name in _symbols(path, "--defined-only")}
    called = {name for path in objects for name in _symbols(path, "--undefined-only")} - own
    called = {name for name in called if not re.match(r"__(asan|ubsan|sanitizer|sancov|st)", name)}
    if unknown := sorted(called - rules.keys()):
        raise NotBuilt(
            f"{native} calls {', '.join(unknown)}, and native/fuzz/seam.txt does not say what "
            "becomes of that under the fuzzer. Fix: add each to the rule that it needs."
        )
    renamed = {name: f"seam_{name}" for name in called if rules[name] != "keep"}
    renamed["main"] = "under_main"
    sections = [
        f"--rename-section={section}=under_{kind}"
        for kind, names in VARIABLES.items()
        for section in names
    ]
    changes = [f"--redefine-sym={old}={new}" for old, new in renamed.items()]
    for path in objects:
        _run(_tool("objcopy"), *sections, *changes, str(path))


def _symbols(path: Path, which: str) -> Iterator[str]:
    listed = subprocess.run(
        [_tool("nm"), which, "--extern-only", "--format=just-symbols", path],
        capture_output=True,
        text=True,
        check=True,
    )
    yield from listed.stdout.split()


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise NotBuilt(f"{name} is missing. Fix: install binutils")
    return path


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotBuilt(f"{' '.join(argv[:1])} failed: {done.stderr.strip()[-2000:]}")


def _inputs(name: str, options: argparse.Namespace) -> list[Path]:
    kept = (ROOT / "native" / "fuzz" / "inputs", *options.inputs)
    return [directory / name for directory in kept if (directory / name).is_dir()]


@contextmanager
def _environment() -> Iterator[dict[str, str]]:
    """Of a fuzzer. Files in memory: the tree of an input is made and removed each time."""
    memory = Path("/dev/shm")  # noqa: S108 - only a directory of a new name in it
    place = memory if os.access(memory, os.W_OK) else None
    checks = "abort_on_error=0:allocator_may_return_null=1:detect_leaks=1:handle_abort=1"
    with tempfile.TemporaryDirectory(prefix="tiltyard-fuzz-", dir=place) as tree:
        yield {"PATH": os.defpath, "TMPDIR": tree, "ASAN_OPTIONS": checks}


def _replay(program: Path, name: str, options: argparse.Namespace) -> bool:
    files = [path for directory in _inputs(name, options) for path in sorted(directory.iterdir())]
    with _environment() as env:
        argv = [program, *files]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    print(f"{name}: {done.stdout.strip() or done.stderr[-8000:]}")
    return done.returncode == 0


def _fuzz(program: Path, name: str, options: argparse.Namespace) -> bool:
    corpus, found = options.work / "corpus" / name, options.work / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    flags = [
        f"-max_total_time={max(1, round(options.seconds))}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={RUN_TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-artifact_prefix={found}/{name}-",
        "-print_final_stats=1",
        "-detect_leaks=0",  # every run's blocks are taken back, and counted, by the seam
    ]
    log = options.work / f"{name}.log"
    argv = [program, *flags, corpus, *_inputs(name, options)]
    with log.open("w") as said, _environment() as env:
        done = subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, stderr=said, check=False)
    text = log.read_text(errors="replace")
    if done.returncode != 0:
        print(text[-8000:])
        print(f"{name}: FOUND something; the input is in {found}, all that was said in {log}")
        return False
    runs = re.search(r"number_of_executed_units: (\d+)", text)
    edges = re.findall(r" cov: (\d+)", text)
    seen = f"{runs[1] if runs else 'no'} runs, {edges[-1] if edges else 0} edges"
    print(f"{name}: {seen}, nothing found")
    return True


if __name__ == "__main__":
    raise SystemExit(main())
