"""How a verdict is told to a person: each thing once, and no more than can be read."""

from tiltyard.cli.judged import brief, check_rows, checks_left_out, tamper_lines, why_of
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Verdict
from tiltyard.verify.reward import reward_of

PASSED, WRONG, RAISED = CheckStatus.PASSED, CheckStatus.WRONG_ANSWER, CheckStatus.EXCEPTION


def verdict(*checks: tuple[str, CheckStatus, str], tamper: tuple[str, ...] = ()) -> Verdict:
    made = tuple(Check(id=name, status=status, evidence=said) for name, status, said in checks)
    return Verdict(outcome=Outcome.GRADED, checks=made, tamper=tamper)


def rows(told: Verdict) -> list[tuple[str, ...]]:
    return [tuple(cell.plain for cell in row) for row in check_rows(told)]


def test_new_inputs_that_went_the_same_way_are_told_once() -> None:
    wrong = [(f"fresh-{n}", WRONG, f"seed 1: f({n}) gave 0, expected {n}") for n in range(1, 30)]
    raised = [(f"fresh-{n}", RAISED, f"seed 1: f({n}) raised KeyError: {n}") for n in (30, 31)]
    other = ("fresh-32", RAISED, "seed 1: f(32) raised ValueError: no")
    passed = [(f"fresh-{n}", PASSED, "") for n in range(33, 40)]
    told = verdict(("a", PASSED, ""), *wrong, *raised, other, *passed, ("b", WRONG, "b gave 0"))

    assert rows(told) == [
        ("fresh-1 and 28 more", "wrong_answer", "seed 1: f(1) gave 0, expected 1"),
        ("fresh-30 and 1 more", "exception", "seed 1: f(30) raised KeyError: 30"),
        ("fresh-32", "exception", "seed 1: f(32) raised ValueError: no"),
        ("b", "wrong_answer", "b gave 0"),
        ("a", "passed", ""),
        ("fresh-33 and 6 more", "passed", ""),
    ]


def test_the_tests_of_a_task_are_told_one_by_one() -> None:
    told = verdict(*((f"test_{n}", WRONG, f"gave {n}") for n in range(250)))

    assert [row[0] for row in rows(told)] == [f"test_{n}" for n in range(200)]
    assert checks_left_out(told) == 50


def test_a_reason_that_follows_itself_is_told_once() -> None:
    why = "it cannot be built:\nmain.c:1: error"
    told = verdict(("a", RAISED, why), ("b", CheckStatus.NOT_RUN, why), ("c", PASSED, ""))

    assert [row[2] for row in rows(told)] == [why, "as above", ""]


def test_signs_of_tampering_are_bounded_and_counted() -> None:
    signs = tuple(f"ships a file that configures test runs: {'x' * 900}{n}" for n in range(30))
    told = verdict(("a", PASSED, ""), tamper=signs)
    reward = reward_of(told)
    lines = [line.plain for line in tamper_lines(told)]

    assert all(sign in reward.why for sign in signs), "the record keeps all of it"
    assert len(lines) == 6
    assert max(map(len, lines)) < 400
    assert lines[-1] == "tamper: 25 more signs; --json has all"
    assert why_of(told, reward) == "tampering, 30 signs of it above"


def test_one_sign_is_not_said_twice() -> None:
    told = verdict(("a", PASSED, ""), tamper=("ships a link: x",))

    assert [line.plain for line in tamper_lines(told)] == ["tamper: ships a link: x"]
    assert why_of(told, reward_of(told)) == "tampering, as told above"


def test_what_is_short_is_told_whole() -> None:
    told = verdict(("a", WRONG, "x"))

    assert why_of(told, reward_of(told)) == "0 of 1 checks passed"
    assert brief("x" * 300) == "x" * 300
    assert brief("x" * 301) == f"{'x' * 300}... (301 characters; --json has all)"
