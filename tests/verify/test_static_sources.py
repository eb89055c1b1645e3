"""Which sources are compared, and how numbers become shares."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.task import RepositorySuite, ScriptSuite, Submission
from tiltyard.core.verdict import Gap
from tiltyard.verify.static.components import components_of, unmeasured
from tiltyard.verify.static.reading import Absent, Failed, Report, Result
from tiltyard.verify.static.sources import BYTES_MAX, FILES_MAX, Sources, sources_of
from verify.tasks import REFERENCE, answer, task

REPOSITORY = RepositorySuite(
    base={"src/a.py": b"a = 0\n", "src/b.py": b"b = 0\n", "conftest.py": b""},
    tests={"test_a.py": b""},
    reference={"src/a.py": b"a = 1\n"},
    sources=("src/**",),
    protected=("src/conftest.py",),
)


def compared(suite: RepositorySuite | ScriptSuite, **files: bytes) -> list[dict[str, bytes]] | None:
    paths = {name.replace("__", "/") + ".py": content for name, content in files.items()}
    both = sources_of(replace(task(), hidden=suite), Submission(files=paths))
    return both and [dict(side.files) for side in both]


def test_of_a_project_what_either_changed_is_compared() -> None:
    assert compared(REPOSITORY, src__a=b"a = 2\n") == [
        {"src/a.py": b"a = 2\n"},
        {"src/a.py": b"a = 1\n"},
    ]
    assert compared(REPOSITORY, src__b=b"b = 2\n", src__c=b"c\n") == [
        {"src/a.py": b"a = 0\n", "src/b.py": b"b = 2\n", "src/c.py": b"c\n"},
        {"src/a.py": b"a = 1\n", "src/b.py": b"b = 0\n"},
    ]


def test_what_is_protected_or_not_declared_is_not_looked_at() -> None:
    ours = [{"src/a.py": b"a = 0\n"}, {"src/a.py": b"a = 1\n"}]
    assert compared(REPOSITORY, conftest=b"x", src__conftest=b"x", tests__test_a=b"x") == ours


def test_the_language_is_python_where_there_is_any() -> None:
    suite = ScriptSuite(tests={}, reference={"main.c": b"int x;\n", "t.txt": b""})
    submission = Submission(files={"main.c": b"int y;\n", "lib.c": b"", "notes.md": b"x"})
    both = sources_of(replace(task(), hidden=suite), submission)
    assert both is not None
    assert [each.suffix for each in both] == [".c", ".c"]
    assert set(both[0].files) == {"main.c", "lib.c"}
    assert sources_of(replace(task(), hidden=suite), Submission(files={"a": b""})) is not None
    nothing = ScriptSuite(tests={}, reference={"out.txt": b"x"})
    assert sources_of(replace(task(), hidden=nothing), submission) is not None
    assert sources_of(replace(task(), hidden=nothing), Submission(files={"b.txt": b""})) is None


def test_a_function_task_has_one_source() -> None:
    both = sources_of(task(), answer("x = 1\n", ruff__toml="", other__py="import os"))
    assert both is not None
    own, reference = both
    assert own.files == {"solution.py": b"x = 1\n"}
    assert reference.files == {"solution.py": REFERENCE.encode()}


def test_too_much_is_not_looked_at() -> None:
    assert Sources(suffix=".py", files={"a": b"x" * (BYTES_MAX + 1)}).too_large
    assert Sources(suffix=".py", files={str(n): b"" for n in range(FILES_MAX + 1)}).too_large
    assert not Sources(suffix=".py", files={"a": b"x" * BYTES_MAX}).too_large


def said(
    *, errors: float = 0, findings: float = 0, suppressions: float = 0, lines: float = 100
) -> dict[str, Result]:
    """What the tools say of a source with these numbers."""
    numbers = {"tokens": lines * 8, "lines": lines, "suppressions": suppressions}
    return {
        "syntax": Report(numbers={"errors": errors}),
        "size": Report(numbers=numbers),
        "style": Report(numbers={"findings": findings}),
        "complexity": Report(numbers={"sum": lines / 10, "max": 3.0}),
    }


@pytest.mark.parametrize(
    ("own", "reference", "share"),
    [
        (said(findings=0), said(findings=0), 1.0),
        (said(findings=4), said(findings=4), 1.0),
        (said(findings=2), said(findings=4), 1.0),
        (said(findings=5), said(findings=0), 0.5),
        (said(findings=3, suppressions=2), said(findings=0), 0.5),
        (said(findings=99), said(findings=0), 0.0),
        # Lines of its own do not thin out what was found.
        (said(findings=5, lines=1000), said(findings=0), 0.5),
        # A short reference counts as 25 lines.
        (said(findings=1, lines=3), said(lines=3), 0.6),
    ],
)
def test_the_share_of_style(
    own: dict[str, Result], reference: dict[str, Result], share: float
) -> None:
    style = next(each for each in components_of(own, reference) if each.name == "style")
    assert style.normalised == pytest.approx(share)


COUNTS = st.floats(0, 1e6)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_shares_are_shares_and_more_findings_never_raise_one(
    findings: float, more: float, suppressions: float, lines: float, allowed: float
) -> None:
    reference = said(findings=allowed, lines=lines)
    before = components_of(said(findings=findings, suppressions=suppressions), reference)
    after = components_of(said(findings=findings + more, suppressions=suppressions), reference)
    for one, other in zip(before, after, strict=True):
        assert one.normalised is not None
        assert other.normalised is not None
        assert 0 <= other.normalised <= one.normalised <= 1


def gaps(own: dict[str, Result], reference: dict[str, Result]) -> dict[str, Gap | None]:
    return {each.name: each.gap for each in components_of(own, reference)}


def test_who_is_at_fault_when_a_tool_gives_no_answer() -> None:
    right, failed, absent = said(), Failed(why="crash"), Absent(why="none here")
    assert set(gaps(right, right).values()) == {None}
    assert gaps(right | {"style": failed}, right)["style"] is Gap.NOT_POSSIBLE
    assert gaps(right | {"style": failed}, right | {"style": failed})["style"] is Gap.INFRA
    assert gaps(right, right | {"style": failed})["style"] is Gap.INFRA
    assert gaps(right | {"style": absent}, right | {"style": absent})["style"] is Gap.INFRA
    # Style counts suppressions too, which another tool finds.
    assert gaps(right | {"size": failed}, right)["style"] is Gap.NOT_POSSIBLE
    unreadable = gaps(said(errors=1), right)
    assert unreadable.pop("syntax") is None
    assert set(unreadable.values()) == {Gap.NOT_POSSIBLE}
    lost = unmeasured(("syntax", "size", "style"), "a sandbox was lost")
    assert {each.gap for each in lost} == {Gap.INFRA}


@given(st.dictionaries(st.text(max_size=5), COUNTS, max_size=3))
def test_forged_numbers_are_no_fault_of_ours(numbers: dict[str, float]) -> None:
    forged = {tool: Report(numbers=numbers) for tool in said()}
    for each in components_of(forged, said()):
        assert each.gap in {None, Gap.NOT_POSSIBLE}
