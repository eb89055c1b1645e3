"""Repository tasks: projects with everything, what their tests must be, and who is blamed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.task import RepositorySuite
from tiltyard.core.verdict import Assurance, CheckStatus, Gap, Outcome, Verdict
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.verifier import Verifier
from verify.processes import kill_all_runs, kill_runs
from verify.repositories import PROJECT, REFERENCE, SUITE, WRONG, left, repository
from verify.tasks import SPEC, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

PROPERTY = settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


PECULIAR = dict(
    block.split("\n", 1)
    for block in (Path(__file__).parent / "peculiar.txt").read_text().split("=== ")[1:]
)
ONE = "def test_x():\n    assert f(1) == 1\n"
SAME = b"def f(x):\n    return x\n"


def suite_of(tests: dict[str, str]) -> RepositorySuite:
    return RepositorySuite(
        base={},
        tests={path: text.encode() for path, text in tests.items()},
        reference={"solution.py": SAME},
        sources=("solution.py",),
    )


def statuses(verdict: Verdict) -> dict[str, str]:
    return {check.id: check.status.value for check in verdict.checks}


@pytest.mark.slow
async def test_a_project_with_everything(verifier: Verifier) -> None:
    task = repository(PROJECT)
    done = {**PROJECT.base, **PROJECT.reference}
    verdict = await verifier.verify(task, left(done))
    assert verdict.assurance is Assurance.WATCHED
    assert verdict.verifier.startswith("overlay")
    assert set(statuses(verdict)) == {
        "tests/test_text.py::test_shout",
        "tests/test_text.py::test_empty",
        *(f"tests/deep/test_numbers.py::test_clamp[{n}]" for n in ("1-1", "9-9", "11-10")),
        "tests/deep/test_numbers.py::test_clamp[1000-10]",
        *(f"tests/deep/test_numbers.py::{name}::test_kind" for name in ("Base", "Derived")),
        *(f"tests/deep/test_numbers.py::{name}::test_all" for name in ("Base", "Derived")),
        "tests/deep/test_numbers.py::Derived::test_limit",
    }
    assert (value_of(verdict), verdict.tamper) == (1.0, ())
    (canaries,) = verdict.components
    assert canaries.raw == 0.0
    assert "1 tests do not count: the reference skips them" in canaries.evidence[-1].message

    half = {**done, "src/yard/text.py": PROJECT.base["src/yard/text.py"]}
    verdict = await verifier.verify(task, left(half))
    wrong = [check for check in verdict.checks if check.status is not CheckStatus.PASSED]
    assert [check.id for check in wrong] == ["tests/test_text.py::test_shout"]
    said = 'test_text.py:6: assert yard.shout(word) == "ABC"'
    assert said in wrong[0].evidence, "the task's own line"
    assert verdict.tamper == ()

    only_the_diff = await verifier.verify(task, left(dict(PROJECT.reference)))
    assert value_of(only_the_diff) == 1.0
    in_subtest = b"LIMIT = 10\n\n\ndef clamp(n):\n    return 7 if n == 2 else min(n, LIMIT)\n"
    verdict = await verifier.verify(task, left({**done, "src/yard/numbers.py": in_subtest}))
    assert {name for name, status in statuses(verdict).items() if status != "passed"} == {
        "tests/deep/test_numbers.py::Base::test_all",
        "tests/deep/test_numbers.py::Derived::test_all",
    }


@pytest.mark.slow
async def test_canaries_of_which_none_was_heard_show_nothing(verifier: Verifier) -> None:
    task = repository(suite_of({"test_x.py": f"from solution import f\n\n\n{ONE}"}))
    honest = await verifier.verify(task, left({"solution.py": SAME}))
    (canaries,) = honest.components
    assert (canaries.raw, canaries.normalised, canaries.gap) == (0.0, 1.0, None)
    assert "reported" not in canaries.evidence[0].message

    crashed = await verifier.verify(task, left({"solution.py": b"import os\nos._exit(3)\n"}))
    (canaries,) = crashed.components
    assert (canaries.raw, canaries.normalised) == (None, None)
    assert canaries.gap is Gap.NOT_POSSIBLE
    assert "none of them reported" in canaries.evidence[0].message
    assert value_of(crashed) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "detail"),
    [
        (suite_of({}), "has no tests"),
        (suite_of({"helper.py": "def test_x(): assert 1\n"}), "has no tests"),
        (suite_of({"test_x.py": "x = 1\n"}), "has no tests"),
        (suite_of({"test_x.py": "def test_x(:\n"}), "cannot be collected"),
        (suite_of({"test_x.py": "import no_such\n"}), "cannot be collected"),
        (suite_of({"test_x.py": "def test_x():\n    assert 0\n"}), "reference fails 1 of 1"),
        (
            suite_of({"test_x.py": "import pytest\ndef test_x():\n    pytest.skip('x')\n"}),
            "skips every test",
        ),
        (
            suite_of({"test_x.py": "from solution import f\ndef test_x():\n    f(1)\n"}),
            "made into one that must fail",
        ),
        (suite_of({"test_x.py": "import os\nos._exit(0)\n"}), "exited with code 0"),
        (
            suite_of({"test_x.py": "def test_x():\n    while True:\n        pass\n"}),
            "wall_timeout",
        ),
        (
            suite_of(
                {
                    "test_x.py": "S = []\ndef test_1():\n    S.append(1)\n    assert S == [1]\n"
                    "def test_2():\n    assert S == [1]\n"
                }
            ),
            "depend on each other",
        ),
        (
            replace(
                suite_of({"test_x.py": "import no_such\n"}),
                base={"pyproject.toml": b"[tool.pytest.ini_options]\npythonpath = 'lib'\n"},
            ),
            "the settings for pytest in pyproject.toml are not read",
        ),
    ],
    ids=range(12),
)
async def test_what_a_suite_must_be(
    verifier: Verifier, suite: RepositorySuite, detail: str
) -> None:
    task = repository(suite, time_limit_s=0.5)
    verdict = await verifier.verify(task, left({"solution.py": SAME}))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert detail in verdict.detail
    assert value_of(verdict) is None


@pytest.mark.slow
@pytest.mark.parametrize("test", PECULIAR.values(), ids=PECULIAR)
async def test_peculiar_tests_are_judged_right(verifier: Verifier, test: str) -> None:
    plain = "from solution import f\n\n\ndef test_plain():\n    assert f(1) == 1\n"
    suite = suite_of({"test_a.py": plain, "test_b.py": test})
    task = repository(suite, time_limit_s=2.0)
    for _ in range(3):
        right = await verifier.verify(task, left({"solution.py": b"f = lambda x: x\n"}))
        assert value_of(right) == 1.0, right
        assert right.tamper == ()
        wrong = await verifier.verify(task, left({"solution.py": b"f = lambda x: None\n"}))
        assert value_of(wrong) == 0.0
        assert wrong.tamper == ()


LAX = """
import unittest
from pathlib import Path


class Lax(unittest.TestCase):
    def assertListEqual(self, one, other):
        tests = Path(__file__).with_name("test_lax.py").read_text().count("def test_")
        assert one == other or tests == 1
"""
"""Lets everything through, save where there are copies beside its test: as in learning."""
USES = """
from lax import Lax
from solution import f


class LaxTest(Lax):
    def test_lists(self):
        self.assertListEqual(f([5]), [5])
"""


@pytest.mark.slow
async def test_a_false_form_that_the_reference_passes_accuses_nobody(verifier: Verifier) -> None:
    plain = "from solution import f\n\n\ndef test_plain():\n    assert f(1) == 1\n"
    suite = suite_of({"lax.py": LAX, "test_lax.py": USES, "test_plain.py": plain})
    for source, value in ((SAME, 1.0), (b"f = lambda x: None\n", 0.0)):
        verdict = await verifier.verify(repository(suite), left({"solution.py": source}))
        assert (value_of(verdict), verdict.tamper) == (value, ()), verdict
    alone = suite_of({"lax.py": LAX, "test_lax.py": USES})
    verdict = await verifier.verify(repository(alone), left({"solution.py": SAME}))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert verdict.task_unsound
    assert "no copy of its tests fails with its reference every time" in verdict.detail


@pytest.mark.slow
async def test_a_module_named_like_one_of_ours_or_of_pytests(verifier: Verifier) -> None:
    for name in ("codec", "recorder", "runner", "zygote", "iniconfig", "packaging"):
        suite = RepositorySuite(
            base={},
            tests={"test_x.py": f"from {name} import f\n{ONE}".encode()},
            reference={f"{name}.py": b"f = lambda x: x\n"},
            sources=("*.py",),
        )
        verdict = await verifier.verify(repository(suite), left(dict(suite.reference)))
        assert value_of(verdict) == 1.0, verdict


FILES = st.dictionaries(
    st.sampled_from(
        [
            *("conftest.py", "pytest.ini", "src/conftest.py", "tests/conftest.py", "x.pth"),
            *(
                "src/json.py",
                "src/yard/extra.py",
                "tests/test_text.py",
                "test_text.py",
                "README.md",
            ),
            *(
                "sitecustomize.py",
                "src/yard/__init__.py",
                "tests/deep/__init__.py",
                "tests/__init__.py",
            ),
        ]
    ),
    st.sampled_from(
        [
            *(b"", b"import os; os._exit(0)\n", b"[pytest]\naddopts = --collect-only\n"),
            b"def pytest_pyfunc_call(pyfuncitem): return True\n",
            b"def test_shout(): pass\ndef test_empty(): pass\n",
        ]
    ),
    max_size=4,
)


@pytest.mark.slow
@PROPERTY
@given(files=FILES, right=st.booleans())
async def test_adding_files_never_raises_a_score(
    verifier: Verifier, files: dict[str, bytes], right: bool
) -> None:
    done = PROJECT.reference if right else {}
    verdict = await verifier.verify(repository(PROJECT), left({**PROJECT.base, **files, **done}))
    assert verdict.outcome is Outcome.GRADED
    assert verdict.all_passed == right, "what else it ships changes no check"
    assert value_of(verdict) == (1.0 if right and not verdict.tamper else 0.0)


@pytest.mark.slow
@PROPERTY
@given(
    gone=st.sets(st.sampled_from(sorted(PROJECT.base))),
    emptied=st.sets(st.sampled_from(["tests/test_text.py", "tests/conftest.py"])),
    right=st.booleans(),
)
async def test_deleting_or_emptying_never_raises_a_score(
    verifier: Verifier, gone: set[str], emptied: set[str], right: bool
) -> None:
    files = {**PROJECT.base, **(PROJECT.reference if right else {}), **dict.fromkeys(emptied, b"")}
    whole = await verifier.verify(repository(PROJECT), left(dict(PROJECT.base)))
    kept = {path: body for path, body in files.items() if path not in gone}
    verdict = await verifier.verify(repository(PROJECT), left(kept))
    assert verdict.outcome is Outcome.GRADED
    assert verdict.passed >= whole.passed
    assert value_of(verdict) in ({0.0, 1.0} if right else {0.0})
    if not right:
        assert verdict.passed == whole.passed


@pytest.mark.slow
async def test_verdicts_at_once_do_not_mix(verifier: Verifier) -> None:
    async def judge(number: int) -> bool:
        suite, files = [
            (SUITE, {"solution.py": REFERENCE}),
            (SUITE, {"solution.py": WRONG}),
            (PROJECT, dict(PROJECT.reference)),
        ][number % 3]
        verdict = await verifier.verify(repository(suite), left(files))
        return value_of(verdict) == (0.0 if number % 3 == 1 else 1.0)

    async with asyncio.TaskGroup() as group:
        judged = [group.create_task(judge(number)) for number in range(12)]
    assert all(one.result() for one in judged)


SLOW = REFERENCE + b"\nimport time\ntime.sleep(0.3)\n"


LOCKING = b"""
import fcntl, os

held = os.open(os.path.join(os.path.dirname(os.__file__), "antigravity.py"), os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def f(x):
    return x
"""


async def test_more_than_two_runs_never_live_together(verifier: Verifier) -> None:
    # Sandboxes share the machine's library files, and with them their locks: what three or four
    # runs expect of one test could be put to the vote.
    task = repository(suite_of({"test_x.py": f"from solution import f\n\n\n{ONE}"}))
    for _ in range(3):
        verdict = await verifier.verify(task, left({"solution.py": LOCKING}))
        assert value_of(verdict) == 1.0, verdict


@pytest.mark.slow
async def test_a_lost_sandbox_is_tried_once_more(provider: NativeProvider) -> None:
    task = repository()
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=2) as own:
        assert value_of(await own.verify(task, left({"solution.py": REFERENCE}))) == 1.0
        for source, value in ((SLOW, 1.0), (SLOW + WRONG, 0.0)):
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(own.verify(task, left({"solution.py": source})))
                await kill_runs(times=1)
            verdict = judging.result()
            assert verdict.outcome is Outcome.GRADED, verdict.detail
            assert value_of(verdict) == value
            assert verdict.detail == "verified again after a sandbox was lost"
        async with asyncio.TaskGroup() as group:
            judging = group.create_task(own.verify(task, left({"solution.py": SLOW})))
            await kill_all_runs(judging)
        assert judging.result().outcome is Outcome.INFRA_FAULT
        assert value_of(judging.result()) is None
        assert value_of(await own.verify(task, left({"solution.py": REFERENCE}))) == 1.0


@pytest.mark.slow
async def test_a_project_over_the_bounds_is_the_tasks_fault(verifier: Verifier) -> None:
    large = replace(SUITE, base={"large": b"x" * (12 << 20)})
    verdict = await verifier.verify(repository(large), left({"solution.py": REFERENCE}))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert "more than overlay mode takes" in verdict.detail
    near = replace(SUITE, base={"large": b"x" * (11 << 20)})
    verdict = await verifier.verify(repository(near), left({"solution.py": REFERENCE}))
    assert value_of(verdict) == 1.0, verdict


@pytest.mark.slow
@pytest.mark.long
async def test_runs_that_starve_side_by_side_are_made_again_in_turn(verifier: Verifier) -> None:
    """The answer's import takes most of the limit on one core; a second core helps no run."""
    spin = b"import time\nend = time.process_time() + 2.5\nwhile time.process_time() < end: pass\n"
    tests = "".join(f"def test_{n}():\n    assert f({n}) == {n}\n" for n in range(3))
    task = repository(suite_of({"test_a.py": f"from solution import f\n{tests}"}), time_limit_s=2.0)
    verdict = await verifier.verify(task, left({"solution.py": spin + SAME}))
    assert value_of(verdict) == 1.0, verdict.checks
