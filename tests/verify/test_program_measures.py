"""What programs cost and how they grow, in real sandboxes; no test looks at absolute time."""

from dataclasses import replace

import pytest

from tiltyard.core.checks import Checks, Inputs
from tiltyard.core.task import CompareOutput, ProgramSuite
from tiltyard.core.verdict import CheckStatus, Component, Gap
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.dynamic import program_cost
from tiltyard.verify.dynamic.program_bench import ProgramBench
from tiltyard.verify.verifier import Verifier
from verify.measured import components
from verify.measured_programs import (
    C_PAIRS,
    C_SORTED,
    CASES,
    CPP,
    CPP_LIST,
    CPP_SORTED,
    PY_LIST,
    PY_SET,
    PY_SORTED,
    PYTHON,
    C,
    counting_task,
    growing,
    in_c,
    verdict_on,
)
from verify.tasks import SPEC

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("billed"),
]

LONG = pytest.mark.long
COST = counting_task(C, in_c(C_SORTED), Checks(cost=True))
SPIN = "for (volatile long k = 0; k < 60000000; k++) {}\n"
IN_A_CHILD = f"""
int done[2];
char byte;
if (pipe(done)) return 1;
if (fork() == 0) {{
  if (fork() == 0) {{ setsid(); {SPIN} return write(done[1], "x", 1) != 1; }}
  _exit(0);
}}
if (read(done[0], &byte, 1) != 1) return 1;
"""
HOLDS = """
volatile char *block = malloc(24 << 20);
for (int i = 0; i < 24 << 20; i += 4096) block[i] = 1;
"""
WRITES = """
FILE *file = fopen("/tmp/x", "w+");
static char block[1 << 20];
for (int i = 0; i < 8; i++) fwrite(block, 1, sizeof block, file);
rewind(file);
while (fread(block, 1, sizeof block, file) > 0) {}
fclose(file);
"""
ON_LARGE = "xs = open(0).read().split()\nif len(xs) > 300:\n    {}\nprint(len(set(xs)))\n"


async def cost(verifier: Verifier, body: str) -> dict[str, Component]:
    return components(await verdict_on(verifier, COST, in_c(body + C_SORTED)))


async def test_what_a_program_uses_is_billed(verifier: Verifier) -> None:
    same = await cost(verifier, "")
    assert (same["cost_memory"].normalised, same["cost_io"].normalised) == (1.0, 1.0)
    assert (same["cost_cpu"].normalised or 0.0) > 0.5
    assert all(each.reference is not None for each in same.values())
    spun = await cost(verifier, SPIN)
    hidden = await cost(verifier, IN_A_CHILD)
    assert (spun["cost_cpu"].normalised, hidden["cost_cpu"].normalised) == (0.0, 0.0)
    assert 0.3 < (hidden["cost_cpu"].raw or 0.0) / (spun["cost_cpu"].raw or 1.0) < 3.0
    held = (await cost(verifier, HOLDS))["cost_memory"]
    assert 0.9 < (held.raw or 0.0) / (24 << 20) < 1.2
    assert held.normalised == 0.0
    moved = (await cost(verifier, WRITES))["cost_io"]
    assert 0.9 < (moved.raw or 0.0) / (2 * len(CASES) * (8 << 20)) < 1.2


async def test_building_is_not_billed(verifier: Verifier) -> None:
    spin = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done"
    suite = replace(PYTHON, build=("sh", "-c", spin))
    verdict = await verdict_on(verifier, counting_task(suite, PY_SET, Checks(cost=True)), PY_SORTED)
    billed = components(verdict)["cost_cpu"]
    assert billed.raw is not None
    assert billed.raw < verdict.cpu_s / 2


async def test_what_is_wrong_when_it_is_billed_is_no_fault_of_a_checkers_task(
    provider: NativeProvider,
) -> None:
    """What such a task expects need be no output: often it is nothing."""
    cases = tuple(replace(case, expected=b"") for case in CASES)
    checker = "import sys\nsys.exit(open(sys.argv[3]).read().strip() not in ('0', '2'))\n"
    suite = replace(PYTHON, cases=cases, compare=CompareOutput.CHECKER, checker=checker)
    task = counting_task(suite, PY_SET, Checks(cost=True))
    async with ProgramBench(provider, spec=SPEC, python=provider.interpreter.python) as bench:
        for wrong in ("print(1)", "import sys\nsys.stdout.buffer.write(b'\\xff')"):
            got = await program_cost.measure(bench, task, suite, source=wrong.encode(), seed=1)
            assert [each.gap for each in got] == [Gap.NOT_POSSIBLE] * 4
            assert "three failed when it was billed" in got[0].evidence[0].message


async def test_nothing_is_measured_of_a_wrong_program(verifier: Verifier) -> None:
    verdict = await verdict_on(verifier, COST, in_c(""))
    assert [each.gap for each in verdict.components] == [Gap.NOT_POSSIBLE] * 4


async def test_a_quadratic_c_program_is_slower(verifier: Verifier) -> None:
    """In one of three measurements at least: a busy machine leaves it unresolved at times."""
    task = growing(C, in_c(C_SORTED), seconds_max=1.5)
    for _ in range(3):
        got = components(await verdict_on(verifier, task, in_c(C_PAIRS)))["growth"]
        if got.normalised is not None and got.normalised < 1.0:
            break
    assert got.normalised is not None, got.evidence
    assert got.normalised < 1.0, got.evidence
    assert [curve.name for curve in got.curves] == ["solution", "reference"]


@LONG
@pytest.mark.parametrize(
    ("suite", "reference", "solution", "slower"),
    [
        (C, in_c(C_SORTED), in_c(C_SORTED) + "\n", False),
        (C, in_c(C_SORTED), in_c(C_PAIRS), True),
        (C, in_c(C_PAIRS), in_c(C_PAIRS) + "\n", False),
        (C, in_c(C_PAIRS), in_c(C_SORTED), False),
        (CPP, CPP_SORTED, CPP_SORTED + "\n", False),
        (CPP, CPP_SORTED, CPP_LIST, True),
        (PYTHON, PY_SET, PY_SORTED, False),
        (PYTHON, PY_SET, PY_LIST, True),
        (PYTHON, PY_LIST, PY_SET, False),
    ],
)
async def test_programs_land_on_the_right_side(
    verifier: Verifier, suite: ProgramSuite, reference: str, solution: str, *, slower: bool
) -> None:
    """More often than on the wrong one: a busy machine leaves some unresolved."""
    task = growing(suite, reference)
    found = [components(await verdict_on(verifier, task, solution))["growth"] for _ in range(3)]
    right = [
        each for each in found if each.normalised is not None and (each.normalised < 1) is slower
    ]
    resolved = [each for each in found if each.normalised is not None]
    assert len(right) > len(resolved) / 2, [each.evidence for each in found]


@pytest.mark.parametrize(
    "line",
    [
        "print(7); raise SystemExit",
        "import os; os.abort()",
        pytest.param("import os; os._exit(0)", marks=LONG),
        pytest.param("print(len(set(xs))); raise SystemExit(4)", marks=LONG),
        pytest.param(
            "import os; os.remove('/tmp/output'); os.symlink('/dev/zero', '/tmp/output')",
            marks=LONG,
        ),
    ],
)
async def test_what_is_wrong_on_large_inputs_has_no_growth(verifier: Verifier, line: str) -> None:
    verdict = await verdict_on(verifier, growing(PYTHON, PY_SET), ON_LARGE.format(line))
    got = components(verdict)["growth"]
    assert (got.raw, got.gap) == (None, Gap.NOT_POSSIBLE), got.evidence
    assert "not the reference's answer at size" in got.evidence[0].message


@LONG
@pytest.mark.parametrize(
    "line", ["while True: pass", "while True: print('x' * 1000)", "import time; time.sleep(600)"]
)
async def test_what_never_ends_on_large_inputs_is_not_as_good(
    verifier: Verifier, line: str
) -> None:
    verdict = await verdict_on(verifier, growing(PYTHON, PY_SET), ON_LARGE.format(line))
    got = components(verdict)["growth"]
    assert got.normalised is None or got.normalised < 1.0, got.evidence


@LONG
async def test_a_long_start_does_not_hide_growth(verifier: Verifier) -> None:
    task = growing(C, in_c(C_SORTED))
    got = components(await verdict_on(verifier, task, in_c(SPIN + C_PAIRS)))["growth"]
    assert got.normalised is None or got.normalised < 1.0, got.evidence


@pytest.mark.parametrize(
    ("reference", "source"),
    [
        (PY_SET, "def generate(rng, size):\n    return [1]\n"),
        (PY_SET, "def generate("),
        (PY_SET, "def generate(rng, size): return 'no number'"),
        (ON_LARGE.format("import os; os.abort()"), None),
    ],
)
async def test_a_fault_of_the_task_is_none_of_the_solution(
    verifier: Verifier, reference: str, source: str | None
) -> None:
    task = growing(PYTHON, reference)
    if source is not None:
        checks = replace(task.checks, inputs=Inputs(source=source))
        task = replace(task, checks=checks)
    verdict = await verdict_on(verifier, task, PY_SET)
    assert components(verdict)["growth"].gap is Gap.INFRA
    assert {each.status for each in verdict.checks} == {CheckStatus.PASSED}


@pytest.mark.parametrize(
    "line", ["mkdir /tmp/input", "mkfifo /tmp/input", "rm -r /tmp; touch /tmp"]
)
async def test_what_its_build_left_is_no_fault_of_ours(verifier: Verifier, line: str) -> None:
    """A build that runs what was submitted could leave no place for the input."""
    makefile = "main:\n\tprintf '%s\\n' '#!/usr/bin/python3' '{}' >main; chmod 755 main\n"
    reference = makefile.format(PY_SET.strip())
    suite = replace(PYTHON, source="Makefile", build=("make",), run=("./main",))
    given = growing(suite, reference)
    odd = await verdict_on(verifier, given, f"{reference}\t{line}\n")
    got = components(odd)["growth"]
    assert got.gap is Gap.NOT_POSSIBLE, got.evidence
    assert "leaves no place for its input" in got.evidence[0].message
    whole = await verdict_on(
        verifier, replace(given, reference=f"{reference}\t{line}\n"), reference
    )
    told = components(whole)["growth"]
    assert told.gap is Gap.INFRA
    assert "its reference leaves no place" in told.evidence[0].message
