"""Inputs that no solution has seen, with the reference's answers."""

from dataclasses import replace

import pytest

from tiltyard.core.checks import Checks, Inputs
from tiltyard.core.task import CallCase, CallSuite, Compare, PytestSuite, Task
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.split.mode import SplitMode
from tiltyard.verify.verifier import Verifier
from verify.tasks import SPEC, answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

GENERATOR = """
def generate(rng, size):
    return ([rng.randrange(1000) for _ in range(size)],)
"""
REFERENCE = "def order(xs):\n    return sorted(xs)\n"
HIDDEN = CallSuite(cases=(CallCase(id="one", target="order", args=([2, 1],), expected=[1, 2]),))
TESTS = PytestSuite(
    files={"test_a.py": "from solution import order\ndef test_a():\n    assert order([1]) == [1]\n"}
)


def fresh(
    source: str = GENERATOR,
    *,
    hidden: CallSuite | PytestSuite = HIDDEN,
    cases: int = 5,
    reference: str = REFERENCE,
    target: str = "order",
) -> Task:
    inputs = Inputs(source=source, target=target, fresh_cases=cases)
    return replace(
        task(hidden, reference=reference, time_limit_s=2.0), checks=Checks(inputs=inputs)
    )


@pytest.mark.parametrize("hidden", [HIDDEN, TESTS], ids=["calls", "pytest"])
async def test_a_right_answer_is_right_on_new_inputs_too(
    verifier: Verifier, hidden: CallSuite | PytestSuite
) -> None:
    verdict = await verifier.verify(fresh(hidden=hidden), answer(REFERENCE))
    assert value_of(verdict) == 1.0, verdict
    assert [check.id for check in verdict.checks][1:] == [f"fresh-{n}" for n in range(5)]
    seed = verdict.provenance["seed"]
    assert verdict.checks[1].evidence == f"seed {seed}"
    again = await verifier.verify(fresh(hidden=hidden), answer(REFERENCE))
    assert again.provenance["seed"] != seed
    assert again.provenance["suite"] == verdict.provenance["suite"]
    assert verdict.provenance["suite"].startswith("sha256:")


async def test_remembered_answers_are_worth_nothing(verifier: Verifier) -> None:
    table = "def order(xs):\n    return {(2, 1): [1, 2]}.get(tuple(xs), [])\n"
    verdict = await verifier.verify(fresh(), answer(table))
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert verdict.checks[0].status is CheckStatus.PASSED
    assert {check.status for check in verdict.checks[1:]} == {CheckStatus.WRONG_ANSWER}
    for source in ("import os; os._exit(0)", "", "while True: pass"):
        verdict = await verifier.verify(fresh(), answer(source))
        assert verdict.outcome is Outcome.GRADED
        assert len(verdict.checks) == 6
        assert verdict.passed == 0


async def test_a_seed_gives_the_same_inputs_again(provider: NativeProvider) -> None:
    shows = "def order(xs):\n    return repr(xs)\n"
    async with SplitMode(provider, interpreter=provider.interpreter, spec=SPEC) as mode:
        seen = [
            [
                check.evidence
                for check in (await mode.judge(fresh(), answer(shows), seed=seed)).checks
            ]
            for seed in (1, 1, 2)
        ]
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "failed: raised"),
        ("def generate(:", "cannot be loaded"),
        ("def generate(rng, size): raise ValueError('mine')", "failed: raised"),
        ("def generate(rng, size): return 3", "failed: raised"),
        ("def generate(rng, size): return (object(),)", "failed: bad"),
        ("import os; os._exit(0)", "cannot be loaded"),
        pytest.param(
            "def generate(rng, size):\n    while True: pass",
            "failed: ended: wall_timeout",
            marks=pytest.mark.long,
        ),
        ("def generate(rng, size): return (1,)", "only raises exceptions: TypeError"),
        ("def generate(rng, size): return ()", "only raises exceptions: TypeError"),
    ],
)
@pytest.mark.slow
async def test_a_generator_that_breaks_is_a_fault_of_ours(
    verifier: Verifier, source: str, words: str
) -> None:
    for given in (REFERENCE, "import os; os._exit(0)"):
        verdict = await verifier.verify(fresh(source), answer(given))
        assert verdict.outcome is Outcome.GRADER_FAULT, verdict
        assert value_of(verdict) is None
        assert words in verdict.detail


async def test_a_reference_that_has_no_answer(verifier: Verifier) -> None:
    for reference, words in (
        (
            "import os\ndef order(xs):\n    return sorted(xs) if len(xs) < 3 else os._exit(1)",
            "input 1",
        ),
        ("def order(xs):\n    return sorted(xs) if len(xs) < 3 else object()", "input 1"),
    ):
        verdict = await verifier.verify(fresh(reference=reference), answer(REFERENCE))
        assert verdict.outcome is Outcome.GRADER_FAULT, verdict
        assert words in verdict.detail


async def test_exceptions_and_any_order_are_answers_too(verifier: Verifier) -> None:
    case = CallCase(
        id="one", target="order", args=([2, 1],), expected=[2, 1], compare=Compare.UNORDERED
    )
    reference = (
        "def order(xs):\n    if len(xs) < 3: raise ValueError\n    return list(reversed(xs))\n"
    )
    given = fresh(hidden=CallSuite(cases=(case,)), reference=reference)
    other = reference.replace("list(reversed(xs))", "sorted(xs)").replace("3: raise", "2: raise")
    assert value_of(await verifier.verify(given, answer(other))) == 1.0
    verdict = await verifier.verify(given, answer(REFERENCE))
    assert [check.status for check in verdict.checks][:3] == [
        CheckStatus.PASSED,
        CheckStatus.WRONG_ANSWER,
        CheckStatus.PASSED,
    ]
