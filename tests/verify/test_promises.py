"""The five promises of verification, in every mode: whatever a submission is, they hold.

Wrong outputs never pass; a submission cannot make itself unscored; adding files never raises a
score; deleting or emptying tests never raises it; doing nothing earns 0 and the reference all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from chosen import sampled
from tiltyard.core.execution import MIB, Limits
from tiltyard.core.task import (
    CallCase,
    CallSuite,
    CompareOutput,
    ProgramCase,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Submission,
    Task,
)
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.verify.verifier import Verifier
from verify.tasks import task, value_of

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

# The verifier is open for the whole module on purpose: no example may depend on another.
PROPERTY = settings(
    deadline=None,
    max_examples=6,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
VALUES = (-3, 0, 4, 250)
RIGHT = "def square(x):\n    return x * x\n"
TESTS = "import pytest\nfrom solution import square\n\n\n" + "\n\n".join(
    f"def test_{n}():\n    assert square({x}) == {x * x}" for n, x in enumerate(VALUES)
)
MAIN = "\nif __name__ == '__main__':\n    print(square(int(input())))\n"
# In script mode everything is one process's word, so the script must ask from outside of it.
SCRIPT = (
    "r=1\n"
    + "".join(
        f'[ "$(echo {x} | timeout 1 python3 -I solution.py)" = {x * x} ] || r=0\n' for x in VALUES
    )
    + "echo $r > /logs/verifier/reward.txt\n"
)


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One task, judged in one way."""

    judged: Task
    main: str = ""
    """What a module needs more to be an answer here."""

    def left(self, source: str, files: Mapping[str, bytes] | None = None) -> Submission:
        answer = (source + self.main).encode()
        return Submission(files={**(files or {}), "solution.py": answer})


def modes() -> dict[str, Mode]:
    plain = task(time_limit_s=2.0, reference=RIGHT, reference_checked=False)
    plain = replace(plain, limits=Limits(memory_bytes=256 * MIB, disk_bytes=16 * MIB, pids=48))
    calls = CallSuite(
        cases=tuple(CallCase(id=f"{x}", target="square", args=(x,), expected=x * x) for x in VALUES)
    )
    programs = ProgramSuite(
        source="solution.py",
        run=("python3", "solution.py"),
        cases=tuple(
            ProgramCase(id=f"{x}", stdin=f"{x}\n".encode(), expected=f"{x * x}\n".encode())
            for x in VALUES
        ),
    )
    checker = (
        "import sys\n_, _, want, got = sys.argv\nsys.exit(open(want).read() != open(got).read())"
    )
    repository = RepositorySuite(
        base={"solution.py": b"", "tests/test_visible.py": b"def test_x():\n    assert 1\n"},
        tests={"test_square.py": TESTS.encode()},
        reference={"solution.py": RIGHT.encode()},
        sources=("**",),
        protected=("tests/**",),
    )
    script = ScriptSuite(
        tests={"test.sh": SCRIPT.encode()}, reference={"solution.py": (RIGHT + MAIN).encode()}
    )
    as_program = replace(plain, reference=RIGHT + MAIN)
    return {
        "calls": Mode(judged=replace(plain, hidden=calls)),
        "pytest": Mode(judged=replace(plain, hidden=PytestSuite(files={"test_square.py": TESTS}))),
        "program": Mode(judged=replace(as_program, hidden=programs), main=MAIN),
        "checker": Mode(
            judged=replace(
                as_program,
                hidden=replace(programs, compare=CompareOutput.CHECKER, checker=checker),
            ),
            main=MAIN,
        ),
        "overlay": Mode(judged=replace(plain, hidden=repository)),
        "script": Mode(judged=replace(plain, hidden=script, time_limit_s=20.0), main=MAIN),
    }


MODES = modes()
EACH_MODE = pytest.mark.parametrize("mode", MODES)
DRAWN_IN_EACH_MODE = pytest.mark.parametrize(
    "mode",
    sampled(MODES, {"calls"}),
)


async def verdict_of(
    verifier: Verifier, mode: str, source: str, files: Mapping[str, bytes] | None = None
) -> Verdict:
    judged = MODES[mode]
    return await verifier.verify(judged.judged, judged.left(source, files))


@EACH_MODE
async def test_the_reference_is_paid_in_full_and_nothing_done_earns_nothing(
    verifier: Verifier, mode: str
) -> None:
    reference = await verifier.verify_reference(MODES[mode].judged)
    assert (value_of(reference), reference.tamper) == (1.0, ())
    assert value_of(await verdict_of(verifier, mode, RIGHT)) == 1.0
    for source in ("", "def square(x):\n    return 0\n", "def square(x):\n    pass\n"):
        verdict = await verdict_of(verifier, mode, source)
        assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    nothing = await verifier.verify(MODES[mode].judged, Submission(files={}))
    assert value_of(nothing) == 0.0


@DRAWN_IN_EACH_MODE
@PROPERTY
@given(
    wrong=st.dictionaries(
        st.sampled_from(VALUES),
        st.sampled_from(["0.0", "x", "x * x + 1", "'4'", "None", "[x]", "float('nan')", "-x * x"]),
        min_size=1,
    )
)
async def test_wrong_outputs_never_pass(
    verifier: Verifier, mode: str, wrong: dict[int, str]
) -> None:
    lines = [f"    if x == {x}:\n        return {value}\n" for x, value in wrong.items()]
    source = f"def square(x):\n{''.join(lines)}    return x * x\n"
    # Some of these values are right: what is said of the plain function decides.
    namespace: dict[str, object] = {}
    exec(source, namespace)  # noqa: S102 - our own text
    square = namespace["square"]
    assert callable(square)
    as_text = bool(MODES[mode].main)
    shown = repr if not as_text else str
    right = all(shown(square(x)) == shown(x * x) for x in VALUES)
    if mode in {"pytest", "overlay"}:
        right = all(square(x) == x * x for x in VALUES)
    verdict = await verdict_of(verifier, mode, source)
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert value_of(verdict) == (1.0 if right else 0.0), verdict.checks


HOSTILE = (
    "import os; os._exit(0)",
    "import os; os.abort()",
    "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "import os, signal; os.kill(-1, signal.SIGKILL)",
    "import os; os.closerange(0, 1000)",
    "import sys; sys.exit(0)",
    "raise KeyboardInterrupt",
    "while True: pass",
    "held = [bytearray(1 << 20) for _ in range(100_000)]",
    "import sys; sys.stdout.write('16\\n' * 1_000_000)",
    "import sys; sys.stdout.buffer.write(b'\\xff\\x00')",
    "print('1 passed'); print('{\"outcome\": \"infra_fault\"}')",
    "open('filled', 'wb').write(bytes(1 << 28))",
    "import os\nwhile True: os.fork()",
    "import threading as t\nwhile True: t.Thread(target=lambda: t.Event().wait()).start()",
    "import shutil; shutil.rmtree('/', ignore_errors=True)",
    "import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()",
    "import builtins; builtins.len = builtins.print = builtins.isinstance = None",
    "import os; os.chmod('.', 0); os.chdir('/'); os.environ.clear()",
    "import gc, sys; sys.modules.clear(); gc.collect()",
)


@DRAWN_IN_EACH_MODE
@PROPERTY
@given(
    snippets=st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3),
    inside=st.booleans(),
    caught=st.booleans(),
)
async def test_a_submission_cannot_make_itself_unscored(
    verifier: Verifier, mode: str, snippets: list[str], inside: bool, caught: bool
) -> None:
    body = "\n".join(snippets)
    if caught:
        body = "\n".join(
            f"try:\n{indented(snippet)}\nexcept BaseException: pass" for snippet in snippets
        )
    wrong = "    return 7\n"
    if inside:
        source = f"def square(x):\n{indented(body)}\n{wrong}"
    else:
        source = f"{body}\n\n\ndef square(x):\n{wrong}"
    verdict = await verdict_of(verifier, mode, source)
    assert verdict.outcome in {Outcome.GRADED, Outcome.AGENT_FAULT}, verdict.detail
    assert value_of(verdict) == 0.0
    assert value_of(await verdict_of(verifier, mode, RIGHT)) == 1.0, "the next one is untouched"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


ADDED = st.dictionaries(
    st.sampled_from(
        [
            *("conftest.py", "tests/conftest.py", "tests/test_square.py", "tests/test.sh"),
            *("pytest.ini", "pyproject.toml", "setup.cfg", "sitecustomize.py", "x.pth"),
            *("pytest.py", "json.py", "os.py", "solution/other.py", "tests/__init__.py"),
            *("logs/verifier/reward.txt", "reward.txt", "reward.json", "0.out", "checker.py"),
        ]
    ),
    st.sampled_from(
        [
            *(b"", b"1\n", b'{"reward": 1}', b"\xff\x00", b"[pytest]\naddopts = --co\n"),
            b"import os; os._exit(0)\n",
            b"def square(x): return x * x\n",
            b"def test_0(): pass\ndef test_1(): pass\ndef test_2(): pass\ndef test_3(): pass\n",
            b"import pytest\ndef pytest_runtest_call(item): item.obj = lambda: None\n",
        ]
    ),
    max_size=4,
)


@DRAWN_IN_EACH_MODE
@PROPERTY
@given(files=ADDED, right=st.booleans())
async def test_adding_files_never_raises_a_score(
    verifier: Verifier, mode: str, files: dict[str, bytes], right: bool
) -> None:
    source = RIGHT if right else "def square(x):\n    return 16\n"
    alone = await verdict_of(verifier, mode, source)
    assert value_of(alone) == (1.0 if right else 0.0)
    verdict = await verdict_of(verifier, mode, source, files)
    assert verdict.outcome in {Outcome.GRADED, Outcome.AGENT_FAULT}, verdict.detail
    assert (value_of(verdict) or 0.0) <= (value_of(alone) or 0.0)
    assert value_of(verdict) is not None
    assert verdict.passed <= alone.passed


@DRAWN_IN_EACH_MODE
@PROPERTY
@given(
    emptied=st.sets(st.sampled_from(["tests/test_square.py", "tests/test_visible.py", "test.sh"])),
    kept=st.booleans(),
)
async def test_deleting_or_emptying_tests_never_raises_a_score(
    verifier: Verifier, mode: str, emptied: set[str], kept: bool
) -> None:
    """Those that the agent sees are copies; `kept` leaves the project's own beside them."""
    files = dict.fromkeys(emptied, b"")
    if kept and isinstance(suite := MODES[mode].judged.hidden, RepositorySuite):
        files = {**suite.base, **files}
    wrong = "def square(x):\n    return 16\n"
    alone = await verdict_of(verifier, mode, wrong)
    verdict = await verdict_of(verifier, mode, wrong, files)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert verdict.passed <= alone.passed
