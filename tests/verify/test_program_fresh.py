"""New inputs for programs, with what the reference prints for them."""

import asyncio
from dataclasses import replace

import pytest

from tiltyard.core.errors import SandboxDied, UnsoundTask
from tiltyard.core.task import CompareOutput, ProgramSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.split.fresh import program_case
from tiltyard.verify.split.program_runs import ProgramRuns
from tiltyard.verify.verifier import Verifier
from verify.measured_programs import (
    C_PAIRS,
    C_SORTED,
    CPP,
    CPP_LIST,
    CPP_SORTED,
    PY_SET,
    PY_SORTED,
    PYTHON,
    C,
    fresh,
    in_c,
    verdict_on,
)
from verify.processes import kill_all_runs
from verify.tasks import SPEC, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LONG = pytest.mark.long

BAD_ON_NEW = "xs = open(0).read().split()\nif len(xs) > 5:\n    {}\nprint(len(set(xs)))\n"
CHECKER = """
import sys
given, expected, output = (open(path, "rb").read() for path in sys.argv[1:])
sys.exit(output.split() != expected.split()[-1:])
"""


@pytest.mark.parametrize(
    ("suite", "reference", "solution"),
    [
        (C, in_c(C_SORTED), in_c(C_PAIRS)),
        pytest.param(CPP, CPP_SORTED, CPP_LIST, marks=LONG),
        (PYTHON, PY_SET, PY_SORTED),
    ],
    ids=["c", "c++", "python"],
)
async def test_a_right_program_is_right_on_new_inputs_too(
    verifier: Verifier, suite: ProgramSuite, reference: str, solution: str
) -> None:
    verdict = await verdict_on(verifier, fresh(suite, reference), solution)
    assert value_of(verdict) == 1.0, verdict
    assert [each.id for each in verdict.checks][2:] == [f"fresh-{number}" for number in range(4)]
    seed = verdict.provenance["seed"]
    assert {each.evidence for each in verdict.checks[2:]} == {f"seed {seed}: exited with 0"}


async def test_remembered_answers_are_worth_nothing(verifier: Verifier) -> None:
    table = "print({'3 1 3': 2, '': 0}.get(open(0).read().strip(), 0))\n"
    verdict = await verdict_on(verifier, fresh(), table)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert [each.status for each in verdict.checks[:2]] == [CheckStatus.PASSED] * 2
    assert {each.status for each in verdict.checks[2:]} == {CheckStatus.WRONG_ANSWER}


async def test_a_seed_gives_the_same_inputs_again(verifier: Verifier) -> None:
    shows = "xs = open(0).read().split()\nprint(len(set(xs)) if len(xs) in (0, 3) else xs)\n"
    seen = [
        [each.evidence for each in (await verdict_on(verifier, fresh(), shows, seed=seed)).checks]
        for seed in (1, 1, 2)
    ]
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("line", "statuses"),
    [
        ("while True: pass", {CheckStatus.TIMEOUT}),
        pytest.param("import time; time.sleep(600)", {CheckStatus.TIMEOUT}, marks=LONG),
        ("while True: print('x' * 1000)", {CheckStatus.OUTPUT_LIMIT, CheckStatus.TIMEOUT}),
        ("raise ValueError", {CheckStatus.CRASH}),
        ("import os; os.kill(os.getpid(), 9)", {CheckStatus.CRASH}),
        ("print(len(set(xs))); raise SystemExit(3)", {CheckStatus.CRASH}),
        ("x = [b'x' * (1 << 20) for _ in range(4096)]", {CheckStatus.CRASH, CheckStatus.OOM}),
        ("print(0); raise SystemExit", {CheckStatus.WRONG_ANSWER}),
    ],
)
async def test_what_fails_on_new_inputs_only(
    verifier: Verifier, line: str, statuses: set[CheckStatus]
) -> None:
    task = fresh(time_limit_s=1.0)
    verdict = await verdict_on(verifier, task, BAD_ON_NEW.format(line))
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0), verdict.detail
    got = [each.status for each in verdict.checks]
    assert got[:4] == [CheckStatus.PASSED] * 4  # the hidden ones, and those of 1 and 3 numbers
    assert set(got[4:]) <= statuses, verdict.checks


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "failed: raised"),
        ("def generate(:", "cannot be loaded"),
        ("def generate(rng, size): raise ValueError('mine')", "failed: raised"),
        ("def generate(rng, size): return 3", "no text and no bytes"),
        ("def generate(rng, size): return (1, 2, 3)", "no text and no bytes"),
        ("def generate(rng, size): return 'x', 'y'", "no list"),
        ("def generate(rng, size): return 'x', ['a\\0b']", "command line"),
        ("def generate(rng, size): return '\\ud800'", "surrogates"),
        ("def generate(rng, size): return 'x' * 2_000_000 if size > 7 else ''", "more than"),
        ("def generate(rng, size): return 'no number'", "no answer to fresh-0: exited with 1"),
        ("import os; os._exit(0)", "cannot be loaded"),
    ],
)
async def test_a_generator_that_breaks_is_a_fault_of_ours(
    verifier: Verifier, source: str, words: str
) -> None:
    for given in (PY_SET, "raise SystemExit(1)"):
        verdict = await verdict_on(verifier, fresh(source=source), given)
        assert verdict.outcome is Outcome.GRADER_FAULT, verdict
        assert value_of(verdict) is None
        assert verdict.task_unsound
        assert words in verdict.detail


async def test_a_reference_that_has_no_answer(verifier: Verifier) -> None:
    for line in ("import os; os.abort()", "while True: pass", "print('x' * (9 << 20))"):
        task = fresh(reference=BAD_ON_NEW.format(line), time_limit_s=1.0)
        verdict = await verdict_on(verifier, task, PY_SET)
        assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADER_FAULT, None), verdict
        assert "its reference gives no answer to fresh-2" in verdict.detail


async def test_an_input_may_be_words_as_well(verifier: Verifier) -> None:
    source = "def generate(rng, size):\n    return b'\\xff', [str(rng.random()), 'a b']\n"
    reference = "import sys\nprint(len(open(0, 'rb').read()), *sys.argv[1:]) if sys.argv[1:] else "
    reference += PY_SET
    task = fresh(reference=reference, source=source)
    assert value_of(await verdict_on(verifier, task, reference)) == 1.0
    verdict = await verdict_on(verifier, task, PY_SET)
    assert {each.status for each in verdict.checks[2:]} == {CheckStatus.CRASH}


async def test_a_checker_judges_new_inputs_too(verifier: Verifier) -> None:
    """It takes the last word of what is expected; a reference that prints two is unsound."""
    checked = replace(PYTHON, compare=CompareOutput.CHECKER, checker=CHECKER)
    task = fresh(checked, PY_SET, cases=3)
    assert value_of(await verdict_on(verifier, task, PY_SORTED)) == 1.0
    verdict = await verdict_on(verifier, task, BAD_ON_NEW.format("print('\\0'); raise SystemExit"))
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    two = fresh(checked, BAD_ON_NEW.format("print(1, 2); raise SystemExit"), cases=3)
    verdict = await verdict_on(verifier, two, PY_SET)
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert "what its reference prints for fresh-2 is wrong" in verdict.detail


async def test_a_reference_is_built_once(provider: NativeProvider) -> None:
    task = fresh(C, in_c(C_SORTED))
    async with ProgramRuns(provider, spec=SPEC, references_max=1) as runs:
        async with runs.reference(task, C) as one:
            pass
        async with runs.reference(task, C) as other:
            assert other.spec == one.spec
        broken = replace(task, reference="int main(void) { return nonsense; }")
        with pytest.raises(UnsoundTask, match="nonsense"):
            async with runs.reference(broken, C):
                pass
        assert runs.sandboxes == 0


async def test_a_reference_lost_while_it_is_built_is_no_fault_of_the_task(
    provider: NativeProvider,
) -> None:
    suite = replace(PYTHON, build=("sleep", "2"))
    async with ProgramRuns(provider, spec=SPEC, references_max=1) as runs:

        async def build() -> None:
            with pytest.raises(SandboxDied):
                async with runs.reference(fresh(suite), suite):
                    pass

        async with asyncio.TaskGroup() as group:
            await kill_all_runs(group.create_task(build()), depth=1)


async def test_nothing_lost_while_new_inputs_are_answered_is_paid(
    provider: NativeProvider,
) -> None:
    waits = "import time\ntime.sleep(0.4)\n" + PY_SET
    task = replace(fresh(reference=waits, cases=2), reference_checked=True)
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own:
        async with asyncio.TaskGroup() as group:
            judging = group.create_task(verdict_on(own, task, PY_SET))
            await kill_all_runs(judging, depth=1)
        verdict = judging.result()
        assert (verdict.outcome, verdict.checks) == (Outcome.INFRA_FAULT, ()), verdict
        assert value_of(verdict) is None
        assert value_of(await verdict_on(own, task, PY_SET)) == 1.0


async def test_what_is_an_input() -> None:
    assert program_case("é", id_="a").stdin == "é".encode()
    assert program_case((b"\xff", ["x"]), id_="a").arguments == ("x",)
    for bad in (None, 1, ["x"], (b"", "x"), (b"", [1]), ("x", ["\udc80"])):
        with pytest.raises(ValueError):  # noqa: PT011 - its words are read above
            program_case(bad, id_="a")
