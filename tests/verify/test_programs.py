"""Programs by what they print: built, run for each case in a place of its own, compared outside."""

from dataclasses import replace

import pytest

from tiltyard.core.execution import MIB
from tiltyard.core.task import CompareOutput, ProgramCase, ProgramSuite, Submission, Task
from tiltyard.core.verdict import CheckStatus, Outcome, Verdict
from tiltyard.verify.split.outputs import difference
from tiltyard.verify.verifier import Verifier
from verify.tasks import task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

CASES = (
    ProgramCase(id="two", stdin=b"2\n3 4\n", expected=b"7\n12\n"),
    ProgramCase(id="other", stdin=b"2\n5 5\n", expected=b"10\n25\n", weight=3.0),
)
PYTHON = ProgramSuite(source="solution.py", run=("python3", "solution.py"), cases=CASES)
C = ProgramSuite(
    source="main.c", build=("cc", "-O1", "-o", "main", "main.c"), run=("./main",), cases=CASES
)
RIGHT = """
n = int(input())
a, b = map(int, input().split())
print(a + b)
print(a * b)
"""
RIGHT_C = """
#include <stdio.h>
int main(void) {
    int n, a, b;
    if (scanf("%d %d %d", &n, &a, &b) != 3) return 1;
    printf("%d\\n%d\\n", a + b, a * b);
    return 0;
}
"""
CHECKER = """
import sys
given, expected, output = (open(path, "rb").read() for path in sys.argv[1:])
if sorted(output.split()) == sorted(expected.split()):
    sys.exit(0)
print("not the same words")
sys.exit(1)
"""
CHECKED = replace(PYTHON, compare=CompareOutput.CHECKER, checker=CHECKER)


def program(suite: ProgramSuite = PYTHON, *, reference: str = RIGHT, limit_s: float = 5.0) -> Task:
    judged = task(reference=reference, time_limit_s=limit_s, reference_checked=False)
    return replace(judged, hidden=suite)


async def judged(verifier: Verifier, source: str, judged_by: Task | None = None) -> Verdict:
    given = judged_by or program()
    assert isinstance(given.hidden, ProgramSuite)
    submission = Submission(files={given.hidden.source: source.encode()})
    return await verifier.verify(given, submission)


async def test_a_right_program_is_paid(verifier: Verifier) -> None:
    for suite, reference in ((PYTHON, RIGHT), (C, RIGHT_C), (CHECKED, RIGHT)):
        verdict = await judged(verifier, reference, program(suite, reference=reference))
        assert value_of(verdict) == 1.0, verdict
        assert [check.weight for check in verdict.checks] == [1.0, 3.0]
        assert {check.evidence for check in verdict.checks} == {"exited with 0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "statuses"),
    [
        ("", {CheckStatus.WRONG_ANSWER}),
        ("print(7)", {CheckStatus.WRONG_ANSWER}),
        ("print('7\\n12\\n10\\n25')", {CheckStatus.WRONG_ANSWER}),
        (f"{RIGHT}\nprint()\nprint('more')", {CheckStatus.WRONG_ANSWER}),
        (f"{RIGHT}\nimport sys; sys.exit(3)", {CheckStatus.CRASH}),
        (f"{RIGHT}\nimport sys; sys.stdout.flush(); sys.exit('4 passed')", {CheckStatus.CRASH}),
        ("import sys; sys.exit(0)", {CheckStatus.WRONG_ANSWER}),
        ("raise SystemExit(137)", {CheckStatus.CRASH}),
        (f"{RIGHT}\nimport os, sys; sys.stdout.flush(); os.abort()", {CheckStatus.CRASH}),
        ("x = 'x' * 1000\nwhile True: print(x)", {CheckStatus.OUTPUT_LIMIT, CheckStatus.TIMEOUT}),
        ("print('x' * 200_000)", {CheckStatus.OUTPUT_LIMIT}),
        ("while True: pass", {CheckStatus.TIMEOUT}),
        ("x = bytearray(1 << 33)", {CheckStatus.CRASH, CheckStatus.OOM}),
        ("x = [b'x' * (1 << 20) for _ in range(4096)]", {CheckStatus.CRASH, CheckStatus.OOM}),
        (
            "import os\nwhile True: os.fork()",
            {CheckStatus.CRASH, CheckStatus.TIMEOUT, CheckStatus.NO_REPLY},
        ),
        ("import os\nos.kill(os.getppid(), 9); os.kill(1, 9)", {CheckStatus.WRONG_ANSWER}),
        (
            "import os\nos.remove('solution.py'); print(open('expected').read())",
            {CheckStatus.CRASH},
        ),
    ],
)
async def test_a_wrong_program_is_not(
    verifier: Verifier, source: str, statuses: set[CheckStatus]
) -> None:
    verdict = await judged(verifier, source, program(limit_s=1.0))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert value_of(verdict) == 0.0
    assert verdict.passed == 0
    assert {check.status for check in verdict.checks} <= statuses, verdict.checks


async def test_what_does_not_compile_is_the_agents(verifier: Verifier) -> None:
    given = program(C, reference=RIGHT_C)
    verdict = await judged(verifier, "int main(void) { return nonsense; }", given)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert [check.status for check in verdict.checks] == [
        CheckStatus.EXCEPTION,
        CheckStatus.NOT_RUN,
    ]
    assert "nonsense" in verdict.checks[0].evidence
    told = verdict.checks[0].evidence.splitlines()
    assert told[0] == "it cannot be built: cc exited with 1:"
    assert [line for line in told[1:] if line.startswith("main.c:1:")], "a compiler's own lines"
    for source in ('#include "/dev/zero"\n', "char x[1 << 28] = {1};\nint main(void) {}\n"):
        verdict = await judged(verifier, source, given)
        assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)


@pytest.mark.slow
async def test_one_case_leaves_nothing_to_the_next(verifier: Verifier) -> None:
    """A process that stays, and files: the second case would find them."""
    source = """
import os, sys, time
if os.path.exists("seen") or os.path.exists("/tmp/seen") or os.path.exists("/dev/shm/seen"):
    sys.exit(5)
for path in ("seen", "/tmp/seen", "/dev/shm/seen"):
    open(path, "w").close()
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
others = [pid for pid in os.listdir("/proc") if pid.isdigit()]
if len(others) > 3:
    sys.exit(6)
"""
    verdict = await judged(verifier, source + RIGHT)
    assert value_of(verdict) == 1.0, verdict.checks


async def test_after_some_timeouts_it_is_not_tried_again(verifier: Verifier) -> None:
    many = tuple(replace(CASES[0], id=str(number)) for number in range(20))
    given = program(replace(PYTHON, cases=many), limit_s=0.3)
    given = replace(given, reference_checked=True)
    verdict = await judged(verifier, "import time; time.sleep(60)", given)
    statuses = [check.status for check in verdict.checks]
    assert statuses == [CheckStatus.TIMEOUT] * 3 + [CheckStatus.NOT_RUN] * 17
    assert verdict.checks[0].evidence == "did not end within 0.3 s"


@pytest.mark.slow
async def test_large_outputs(verifier: Verifier) -> None:
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    case = ProgramCase(id="many", stdin=b"200000\n", expected=lines)
    given = program(
        replace(PYTHON, cases=(case,)), reference="print(*range(int(input())), sep='\\n')\n"
    )
    for source, value in (
        (given.reference, 1.0),
        ("print(*range(199_999), sep='\\n')", 0.0),
        ("import os; os.remove('/tmp/output'); os.symlink('/dev/zero', '/tmp/output')", 0.0),
        ("import os; os.remove('/tmp/output'); os.mkfifo('/tmp/output')", 0.0),
        (f"print('x' * {9 * MIB})", 0.0),
    ):
        verdict = await judged(verifier, source, given)
        assert verdict.outcome is Outcome.GRADED, verdict.detail
        assert value_of(verdict) == value, verdict.checks


@pytest.mark.slow
async def test_a_checker_decides(verifier: Verifier) -> None:
    given = program(CHECKED)
    swapped = RIGHT.replace("a + b", "a * b", 1).replace("print(a * b)\n", "print(a + b)\n", 1)
    swapped = "_, a, b = map(int, open(0).read().split())\nprint(a * b, a + b)"
    assert value_of(await judged(verifier, swapped, given)) == 1.0
    verdict = await judged(verifier, "print('\\0' * 1000)", given)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0)
    assert "not the same words" in verdict.checks[0].evidence


TEXT_CHECKER = """
import sys
given, expected, output = (open(path).read() for path in sys.argv[1:])
sys.exit(sorted(output.split()) != sorted(expected.split()))
"""


@pytest.mark.slow
async def test_a_checker_may_read_nothing_but_text(verifier: Verifier) -> None:
    """It would break on bytes that are no text, which a solution prints at will."""
    given = program(replace(CHECKED, checker=TEXT_CHECKER))
    assert value_of(await judged(verifier, RIGHT, given)) == 1.0
    broken = "import sys\nsys.stdout.buffer.write(b'\\xff')\n"
    for source in (broken, RIGHT + "\n" + broken):
        verdict = await judged(verifier, source, given)
        assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0), verdict
        assert "not UTF-8" in verdict.checks[0].evidence


GUARDED = """
import json, sys
output = open(sys.argv[3], errors="replace").read().strip()
try:
    {}
except ValueError:
    sys.exit(1)
sys.exit(open(sys.argv[3], "rb").read() != open(sys.argv[2], "rb").read())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "checker",
    [
        "import os; os.abort()",
        "raise SystemExit(2)",
        "import os; os._exit(255)",
        "1 / 0",
        "def f(:",
        "import sys; int(open(sys.argv[3]).read())",
        "import sys; sys.exit(open(sys.argv[3]).read() != open(sys.argv[2]).read() and 3)",
        GUARDED.format("json.loads(output)"),
        GUARDED.format("[round(float(word)) for word in output.split()]"),
        GUARDED.format("pass").replace(
            "sys.exit(o", "output.isdigit() and int(output)\nsys.exit(o"
        ),
    ],
)
async def test_a_checker_that_breaks_is_a_fault_of_ours(verifier: Verifier, checker: str) -> None:
    given = program(replace(CHECKED, checker=checker))
    for source in (RIGHT, "", "print('x')"):
        verdict = await judged(verifier, source, given)
        assert verdict.outcome is Outcome.GRADER_FAULT, verdict
        assert value_of(verdict) is None
        assert "checker" in verdict.detail
        assert verdict.task_unsound
        assert not verdict.tamper


async def test_an_answer_that_alone_breaks_the_checker_is_told(verifier: Verifier) -> None:
    """What is not worth a 0 must not go unseen where nobody could foresee it."""
    checker = CHECKER.replace("sys.exit(1)", "sys.exit(5 if output == b'odd\\n' else 1)")
    given = program(replace(CHECKED, checker=checker))
    assert value_of(await judged(verifier, RIGHT, given)) == 1.0
    verdict = await judged(verifier, "print('odd')", given)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADER_FAULT, None)
    assert verdict.tamper == ("no reward, though the reference has one",)
    assert not verdict.task_unsound


COUNTS = """
import sys
output = open(sys.argv[3], errors="replace").read()[:9]
number = int(output) if output.strip().isascii() and output.strip().isdigit() else 0
counted = [bytearray(1 << 20) for _ in range(number)]
sys.exit(len(counted) != 12)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("billed")  # a limit of each process is only a MemoryError of the checker's
async def test_no_output_gets_out_of_its_zero_by_being_too_much_for_the_checker(
    verifier: Verifier,
) -> None:
    cases = (ProgramCase(id="one", stdin=b"1\n5 7\n", expected=b"12\n"),)
    given = program(replace(CHECKED, checker=COUNTS, cases=cases), reference="print(12)")
    assert value_of(await judged(verifier, "print(12)", given)) == 1.0
    verdict = await judged(verifier, "print(10 ** 6)", given)
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0), verdict.detail
    assert "did not get through" in verdict.checks[0].evidence


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (replace(PYTHON, cases=()), "has no tests"),
        (replace(PYTHON, run=()), "no command"),
        (replace(PYTHON, source="../x"), "no plain file name"),
        (replace(PYTHON, source="a\0b"), "no plain file name"),
        (replace(PYTHON, source="\ud800"), "no plain file name"),
        (replace(PYTHON, source="x" * 300), "no plain file name"),
        (replace(PYTHON, build=("tr\0ue",)), "a command or an argument"),
        (replace(PYTHON, cases=(replace(CASES[0], arguments=("\0",)),)), "or an argument has"),
        (replace(PYTHON, cases=(replace(CASES[0], arguments=("\ud800",)),)), "or an argument has"),
        (replace(PYTHON, cases=(replace(CASES[0], arguments=("x" * MIB,)),)), "or an argument has"),
        (replace(PYTHON, cases=(replace(CASES[0], arguments=("x" * 200_000,)),)), "too long"),
        (replace(PYTHON, float_tolerance=-1.0), "float_tolerance"),
        (replace(PYTHON, float_tolerance=float("inf")), "float_tolerance"),
        (replace(PYTHON, cases=CASES[:1] * 2), "a case id twice"),
        (replace(PYTHON, checker=CHECKER), "a checker"),
        (replace(PYTHON, compare=CompareOutput.CHECKER), "a checker"),
        (replace(PYTHON, run=("no-such-program",)), "cannot be started"),
        (replace(PYTHON, build=("no-such-compiler",)), "cannot be started"),
        (replace(PYTHON, build=("false",)), "cannot be built"),
        (replace(PYTHON, cases=(replace(CASES[0], expected=b"8"),)), "its reference fails 1 of 1"),
        (replace(PYTHON, cases=(replace(CASES[0], exit_code=1),)), "its reference fails 1 of 1"),
        (replace(PYTHON, cases=(replace(CASES[0], stdin=b"x" * (2 * MIB)),)), "bytes of input"),
    ],
)
async def test_a_suite_that_is_none(verifier: Verifier, suite: ProgramSuite, words: str) -> None:
    given = program(suite)
    submission = Submission(files={suite.source: RIGHT.encode()})
    verdict = await verifier.verify(given, submission)
    assert verdict.outcome is Outcome.GRADER_FAULT, verdict
    assert words in verdict.detail


async def test_exit_codes_arguments_and_no_input(verifier: Verifier) -> None:
    case = ProgramCase(
        id="a", stdin=b"x" * 500_000, arguments=("one", "a b"), expected=b"a b\n", exit_code=3
    )
    source = "import sys\nprint(sys.argv[2])\nsys.exit(3)\n"
    given = program(replace(PYTHON, cases=(case,)), reference=source)
    assert value_of(await judged(verifier, source, given)) == 1.0
    verdict = await judged(verifier, source.replace("(3)", "(0)"), given)
    assert verdict.checks[0].status is CheckStatus.CRASH
    assert "exited with 0, expected 3; its output is right" in verdict.checks[0].evidence


LINES, TOKENS, EXACT = CompareOutput.LINES, CompareOutput.TOKENS, CompareOutput.EXACT


@pytest.mark.parametrize(
    ("compare", "expected", "got", "right"),
    [
        (EXACT, b"a\n", b"a\n", True),
        (EXACT, b"a\n", b"a", False),
        (EXACT, b"a", b"a\n", False),
        (EXACT, b"a\r\n", b"a\n", False),
        (LINES, b"a\nb\n", b"a \r\nb\n\n\n", True),
        (LINES, b"a\nb\n", b"a\n", False),
        (LINES, b"a\nb\n", b"", False),
        (LINES, b"a\n", b"a\nb\n", False),
        (LINES, b"a\nb\n", b"a\n\nb\n", False),
        (LINES, b"a\n", b" a\n", False),
        (LINES, b"", b"\n \n", True),
        (TOKENS, b"1 2\n3", b"1\n2 3 ", True),
        (TOKENS, b"1 2 3", b"1 2", False),
        (TOKENS, b"1 2", b"1 2 3", False),
        (TOKENS, b"0.3", b"0.30000000000000004", True),
        (TOKENS, b"0.3", b"3e-1", True),
        (TOKENS, b"0.3", b"0.31", False),
        (TOKENS, b"3", b"3.0", True),
        (TOKENS, b"007", b"7", True),
        (TOKENS, b"1000000000000001", b"1000000000000002", False),
        (TOKENS, b"nan", b"nan", True),
        (TOKENS, b"nan", b"1", False),
        (TOKENS, b"1", b"nan", False),
        (TOKENS, b"1e999", b"2e999", False),
        (TOKENS, b"1000", b"1_000", False),
        (TOKENS, b"1", "\u0661".encode(), False),
        (TOKENS, b"", b"", True),
    ],
)
async def test_outputs(compare: CompareOutput, expected: bytes, got: bytes, right: bool) -> None:
    said = difference(compare, expected, got, tolerance=1e-9)
    assert (said is None) == right, said
