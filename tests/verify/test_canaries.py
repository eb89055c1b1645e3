"""Copies of tests with a false expectation: what is changed in them, and how they are mixed."""

import ast
from collections.abc import Mapping

import pytest

from tiltyard.verify.overlay.alike import alike
from tiltyard.verify.overlay.canaries import Kind, canaries_of
from tiltyard.verify.overlay.draw import Suite, draw
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.owners import owners_of
from tiltyard.verify.overlay.plan import Tried, parts_of
from tiltyard.verify.overlay.source import SourceFile, read, renameable
from verify.copies import HEAD, body, copies, rng_of, text_of
from verify.repositories import TESTS


@pytest.mark.parametrize(
    ("test", "kept", "gone"),
    [
        ("assert f(5, 7) == 12", ["f(5, 7)"], "12"),
        ("assert 12 == f(5, 7)", ["f(5, 7)"], "12"),
        ("want = 12\n    assert f(5, 7) == want", ["f(5, 7)"], "12"),
        ("want = 12\n    assert eq(f(5, 7), 12)", ["f(5, 7)"], "12"),
        ("assert f('ab') == 'xy'", ["f('ab')"], "'xy'"),
        ("assert f(1) == [0, {'k': 77}][1:]", ["f(1)"], ""),
        ("assert f(12) == 12", ["f(12)"], "== 12"),
        ("assert f(2) == pytest.approx(3.25, abs=0.1)", ["f(2)", "abs=0.1"], "3.25"),
        ("assert math.isclose(f(2), 9.5)", ["f(2)"], "9.5"),
        ("for n, want in [(1, 10), (2, 20)]:\n        assert f(n) == want", ["(1, ", "(2, "], ""),
        ("assert f(1) == True", ["f(1)"], "True"),
        ("assert f(1) == None", ["f(1)"], "None"),
    ],
)
def test_what_is_expected_changes_and_what_is_given_does_not(
    test: str, kept: list[str], gone: str
) -> None:
    for seed in range(5):
        found = copies(body(test), Kind.LITERAL, seed)
        assert found
        for copy in found:
            assert copy != body(test)
            assert all(part in copy for part in kept), copy
            assert not gone or gone not in copy, copy
            ast.parse(copy)


@pytest.mark.parametrize(
    "test",
    [
        "n = 12\n    assert f(n) == n",  # the number is also given to the solution
        "xs = [1, 2]\n    f(xs)\n    assert g() == xs",
        "assert f(3) == g(3)",  # nothing here is the test's own
        "assert f(3) in (1, 2)",  # another right solution may return what the copy allows
        "assert f(3) < 10",
        "assert f(3)",
        "if f(1):\n        assert f(3) == 3",  # not everyone gets there
        "for x in f(1):\n        assert x == 3",
        "try:\n        assert f(3) == 3\n    except ValueError:\n        pass",
        "with pytest.raises(AssertionError):\n        assert f(3) == 3",
        "if f(1):\n        return\n    assert f(3) == 3",
        "if not f(1):\n        pytest.skip('no')\n    assert f(3) == 3",
        "assert f(3) == f'{1}{2}'",
    ],
)
def test_where_a_right_solution_could_pass_a_copy_there_is_none(test: str) -> None:
    assert copies(body(test), Kind.LITERAL) == []


def test_tables_are_changed_row_by_row_and_never_for_others() -> None:
    test = (
        "CASES = [(1, 10), (2, 20)]\n\n\n@pytest.mark.parametrize('n, want', CASES)\n"
        "def test_x(n, want):\n    assert f(n) == want\n"
    )
    found = copies(test, Kind.LITERAL)
    assert found
    for copy in found:
        (decorator,) = ast.parse(copy).body[0].decorator_list  # type: ignore[attr-defined]
        rows = ast.literal_eval(decorator.args[1])
        assert [n for n, _ in rows] == [1, 2]
        assert sum(want not in (10, 20) for _, want in rows) == 1


LOOP = "def test_y():\n    for n, want in CASES:\n        assert g(n) == want\n"


@pytest.mark.parametrize(
    ("rest", "moved"),
    [
        ("", True),
        ("# CASES are few\n", True),
        (LOOP, True),
        ("def test_y():\n    assert CASES\n", False),
        (f"{LOOP}names = list(map(str, CASES))\n", False),
        ("def test_y():\n    assert f(0) == globals()['CASES']\n", False),
    ],
)
def test_a_table_that_tests_loop_over_is_written_into_each(rest: str, moved: bool) -> None:
    text = (
        "CASES = ([\n    (1, 10),\n    (2, 'é'),\n]); n = 1\n"
        "@pytest.mark.parametrize('n, want', CASES)\n"
        f"def test_x(n, want):\n    assert f(n) == want\n{rest}"
    )
    (file,) = read({"tests/test_x.py": text.encode()}).values()
    found = file.content.decode()
    assert ("parametrize('n, want', [(1, 10), (2, 'é')])" in found) == moved
    assert ("for n, want in [(1, 10), (2, 'é')]:" in found) == (moved and rest == LOOP)
    assert ("CASES" not in found.replace("# CASES", "")) == moved
    assert found.splitlines()[5] == "def test_x(n, want):"


def test_tests_with_one_table_are_false_in_turn() -> None:
    text = (
        f"CASES = [(1, 10), (2, 20)]\n{LOOP}"
        "@pytest.mark.parametrize('n, want', CASES)\n"
        "def test_x(n, want):\n    assert f(n) == want\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_z(n):\n    assert h(n) == n * 10\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_w(n):\n    assert len(k(n)) == 1\n"
    )
    groups = alike(read({"tests/test_x.py": text.encode()}), frozenset())
    assert {frozenset(each.name for each in group) for group in groups} == {
        frozenset({"test_x", "test_y"}),
        frozenset({"test_z"}),
        frozenset({"test_w"}),
    }


def test_trivial_values_take_the_place_of_what_is_expected() -> None:
    (copy,) = copies(body("assert f([2, 1]) == sorted([2, 1])"), Kind.TRIVIAL)
    assert copy == body("assert f([2, 1]) == []")
    assert set(copies(body("assert f(1) == 'x'"), Kind.TRIVIAL)) == {
        body("assert f(1) == ''"),
        body("assert f(1) == None"),
    }


@pytest.mark.parametrize(
    ("test", "turned"),
    [
        ("assert f(3) < 10, 'why'", "assert f(3) >= 10, 'why'"),
        ("assert f(3)", "assert not f(3)"),
        ("assert (f(3)) == (g(3))", "assert (f(3)) != (g(3))"),
        ("assert not f(3)", "assert f(3)"),
        ("assert 3 not in f(3)", "assert 3 in f(3)"),
        ("assert f(3) and g(3)", "assert not (f(3) and g(3))"),
        ("self.assertEqual(f(3), g(3))", "self.assertNotEqual(f(3), g(3))"),
        ("self.assertTrue(f(3))", "self.assertFalse(f(3))"),
        ("self.assertIsNotNone(f(3))", "self.assertIsNone(f(3))"),
    ],
)
def test_assertions_are_turned_round(test: str, turned: str) -> None:
    assert copies(body(test), Kind.NEGATED) == [body(turned)]


@pytest.mark.parametrize(
    "test",
    [
        "with pytest.raises(ValueError):\n        f(1)",
        "with self.assertRaises(ValueError) as caught:\n        f(1)",
        "self.assertRaises(ValueError, f, 1)",
        "pytest.raises(ValueError, f, 1)",
    ],
)
def test_another_exception_is_expected(test: str) -> None:
    (copy,) = copies(body(test), Kind.EXCEPTION)
    assert "ValueError" not in copy
    before, after = test.split("ValueError")
    assert copy.startswith(body(before).rstrip())
    assert copy.endswith(f"{after}\n")


def suite_of(tests: Mapping[str, bytes]) -> tuple[Suite, list[Tried]]:
    """As it is learned where every copy does what it must."""
    files = read(tests)
    rng = rng_of(0)
    modules = frozenset({"checker", "test_hidden"})
    functions = [each for file in files.values() for each in file.functions]
    owners = owners_of(files, [each.place for each in functions])
    suite = Suite(
        files=files,
        renamed=renameable(files, tests),
        owners=owners,
        groups=alike(files, modules),
        kept=frozenset(),
    )
    tried = [
        Tried(canary=canary, beside={(canary.function.place, ""): frozenset()})
        for file in files.values()
        for canary in canaries_of(file, Module(file.tree, modules), rng)
        if canary.kind is not Kind.WRITTEN
    ]
    return suite, tried


HIDDEN = {f"tests/{path}": text for path, text in TESTS.items()}


def many(count: int) -> dict[str, bytes]:
    text = "from solution import f\n" + "".join(
        f"\n\ndef test_{n}():\n    assert f({n}) == {n + 7}\n" for n in range(count)
    )
    return {"tests/test_hidden.py": text.encode()}


@pytest.mark.parametrize("tests", [HIDDEN, many(1), many(4), many(9), many(200)])
def test_no_run_has_two_forms_and_every_test_is_true_in_one(tests: dict[str, bytes]) -> None:
    suite, tried = suite_of(tests)
    drawn = set()
    for seed in range(20):
        plans = draw(suite, tried, rng_of(seed))
        assert sum(len(plan.forms.false) for plan in plans) >= min(8, len(suite.groups))
        assert set().union(*(plan.ids for plan in plans)) == set(suite.owners)
        for plan in plans:
            assert not plan.ids & plan.against
            (text,) = (plan.files["tests/test_hidden.py"].decode(),)
            there = [
                node.name
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
            ]
            assert len(there) == len(set(there)) == len(plan.ids) + len(plan.against)
            for group in suite.groups:
                false = [each for each in group if each in plan.forms.false]
                true = [each for each in group if plan.forms.true(each)]
                assert not (false and true)
                assert len(false) <= 1
        drawn.add(tuple(plan.against for plan in plans))
    assert len(drawn) > 6, "each verification has others"


def test_a_large_suite_has_a_share_of_false_forms() -> None:
    suite, tried = suite_of(many(400))
    one, two = draw(suite, tried, rng_of(1))
    assert (len(one.ids), len(one.against)) == (340, 60)
    assert (len(two.ids), len(two.against)) == (60, 60)
    assert two.ids == one.against


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("assert f(1) == 1", "assert f(1) == 2", True),
        ("assert f(1) == 1", "x = 1\n    assert f(1) == x", True),
        ("x = 3\n    assert f(x) == 1", "x = 3\n    got = f(x)\n    assert f(x) == 1", True),
        ("assert f(1) == 1", "assert f(2) == 1", False),
        ("x = 3\n    assert f(x) == 1", "x = 4\n    assert f(x) == 1", False),
        (
            "with pytest.raises(ValueError):\n        f('')",
            "self.assertRaises(ValueError, f, '')",
            True,
        ),
        ("c = f()\n    assert c.up(1) == 1", "c = f()\n    assert c.up(2) == 2", False),
    ],
)
def test_tests_that_ask_the_same_go_together(one: str, other: str, same: bool) -> None:
    text = HEAD + body(one) + body(other).replace("test_x", "test_y")
    groups = alike(read({"tests/test_x.py": text.encode()}), frozenset({"checker"}))
    assert (len(groups) == 1) == same


def test_a_value_that_is_computed_is_written_out_and_changed() -> None:
    source = (HEAD + body("assert f([2, 1]) == sorted([2, 1])")).encode()
    file = SourceFile("tests/test_x.py", source)
    rng = rng_of(0)
    found = canaries_of(file, Module(file.tree, frozenset()), rng)
    (probe,) = (each for each in found if each.kind is Kind.WRITTEN)
    true, *others = probe.written("[1, 2]", rng)
    assert text_of(file, true) == body("assert f([2, 1]) == [1, 2]")
    assert len(others) == 2
    for each in others:
        assert each.true is true
        assert text_of(file, each).startswith("def test_x():\n    assert f([2, 1]) == [")
        assert text_of(file, each) != text_of(file, true)


@pytest.mark.parametrize(
    "expected",
    ["int(time.time())", "date.today().year", "hash('a')", "datetime.now().isoformat()"],
)
def test_what_another_moment_or_process_changes_is_not_written_out(expected: str) -> None:
    said = "import time\nfrom datetime import date, datetime\n"
    assert copies(said + body(f"assert f(1) == {expected}"), Kind.WRITTEN) == []


def test_names_say_nothing_and_lines_stay_known() -> None:
    suite, tried = suite_of(HIDDEN)
    assert {"test_small", "test_words"} <= suite.renamed
    texts = set()
    for seed in range(5):
        for plan in draw(suite, tried, rng_of(seed)):
            text = plan.files["tests/test_hidden.py"].decode()
            texts.add(text)
            functions = [
                node.name
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
            ]
            assert {len(name) for name in functions} == {len("test_000000000_00000000")}
            assert sorted(plan.names, key=plan.names.__getitem__) == sorted(plan.names)
            negative = "tests/test_hidden.py::test_negative"
            if negative not in plan.ids:
                continue
            assert parts_of(plan.in_run(negative))[1] in functions
            own = TESTS["test_hidden.py"].decode().splitlines()
            line = 1 + text.splitlines().index("    assert add(-3, 10) == 7")
            said = plan.words(negative, f"test_hidden.py:{line}: x")
            assert said == f"test_hidden.py:{1 + own.index('    assert add(-3, 10) == 7')}: x"
    assert len(texts) > 5


def test_what_an_id_stands_for() -> None:
    text = (
        "class A:\n    def test_a(self): pass\n    def test_b(self): pass\n"
        "class B(A):\n    def test_b(self): pass\n"
        "class C(A): pass\n"
        "def test_c(): pass\ndef test_c(): pass\n"
    )
    ids = [
        f"t.py::{each}" for each in ("A::test_a", "B::test_a", "A::test_b", "C::test_b", "test_c")
    ]
    owners = owners_of(read({"t.py": text.encode()}), ids)
    assert [owner and owner.place for owner in owners.values()] == [
        "t.py::A::test_a",
        "t.py::A::test_a",
        None,
        None,
        None,
    ]


def test_a_name_that_is_spoken_of_stays() -> None:
    text = b"def test_a():\n    test_b()\n\n\ndef test_b():\n    assert True\n"
    tests = {"tests/test_x.py": text}
    assert renameable(read(tests), tests) == {"test_a"}


def test_what_is_no_python_has_no_copies() -> None:
    assert (
        read({"tests/test_a.py": b"def f(:", "tests/test_b.py": b"\xff", "tests/x.txt": b""}) == {}
    )
