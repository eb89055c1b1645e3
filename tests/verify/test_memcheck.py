"""What programs lose of their heap: seeded ones, hostile ones, and the report that tells it."""

import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.checks import Checks, Leaks
from tiltyard.core.task import ProgramSuite, Submission, Task
from tiltyard.core.verdict import CheckStatus, Component, Gap
from tiltyard.sandbox.native.image import Record, RecordKind, host_image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.dynamic.binary import Binary, binary_of
from tiltyard.verify.dynamic.memcheck_report import Frame, OddReportError, read_report
from tiltyard.verify.verifier import Verifier
from verify.measured import components
from verify.memcheck_programs import CPP, PROGRAMS, REFERENCE, C, Program, c
from verify.tasks import SPEC, task as a_task

sandboxed = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
CPP_REFERENCE = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n * n; }\n"
SAMPLE = ("frees all", "writes a clean report itself")
PYTHON = ProgramSuite(source="solution.py", run=("python3", "solution.py"), cases=C.cases)
SQUARE = "n = int(input())\nprint(n * n)\n"


def leak_task(suite: ProgramSuite, reference: str) -> Task:
    judged = a_task(reference=reference, time_limit_s=5.0, reference_checked=False)
    return replace(judged, hidden=suite, checks=Checks(leaks=Leaks()))


async def leaks_of(verifier: Verifier, judged: Task, source: str) -> Component:
    assert isinstance(judged.hidden, ProgramSuite)
    submission = Submission(files={judged.hidden.source: source.encode()})
    return components(await verifier.verify(judged, submission))["leaks"]


def wrong(program: Program, got: Component) -> str:
    """Empty when it was told right."""
    said = "; ".join(each.message for each in got.evidence)
    found = (got.raw, got.normalised, got.gap)
    right = found == (program.lost_bytes, program.normalised, program.gap)
    return "" if right and program.word in said else f"{program.name}: {found} {said}"


class TestPrograms:
    pytestmark = sandboxed

    @pytest.mark.parametrize(
        "program",
        [
            pytest.param(each, id=each.name, marks=() if each.name in SAMPLE else pytest.mark.long)
            for each in PROGRAMS
        ],
    )
    async def test_what_is_lost(self, verifier: Verifier, program: Program) -> None:
        reference = CPP_REFERENCE if program.suite is CPP else REFERENCE
        judged = leak_task(program.suite, reference)
        assert wrong(program, await leaks_of(verifier, judged, program.source)) == ""

    async def test_names_the_place(self, verifier: Verifier) -> None:
        source = c("lose(50);")
        got = await leaks_of(verifier, leak_task(C, REFERENCE), source)
        lines = source.splitlines()
        place = next(at for at, line in enumerate(lines, 1) if "static void lose" in line)
        assert {(each.path, each.line) for each in got.evidence} == {("main.c", place)}
        assert (got.reference, got.unit) == (0.0, "bytes")

    @pytest.mark.long
    async def test_what_the_reference_loses_is_free(self, verifier: Verifier) -> None:
        judged = leak_task(C, c("lose(60);"))
        got = await leaks_of(verifier, judged, c("lose(60);"))
        assert (got.raw, got.reference, got.normalised) == (60.0, 60.0, 1.0)
        got = await leaks_of(verifier, judged, c("lose(61);"))
        assert (got.raw, got.reference, got.normalised) == (61.0, 60.0, 0.0)

    async def test_interpreted_programs_are_not_told(self, verifier: Verifier) -> None:
        got = await leaks_of(verifier, leak_task(PYTHON, SQUARE), SQUARE)
        assert (got.raw, got.gap) == (None, Gap.UNRESOLVED)
        assert "interpreter" in got.evidence[0].message

    async def test_without_valgrind_nothing_is_told(self) -> None:
        image = host_image()
        hidden = Record(kind=RecordKind.HIDE, path="/", argument=b"bin/valgrind")
        at = next(at for at, each in enumerate(image.records) if each.path == "/usr") + 1
        records = (*image.records[:at], hidden, *image.records[at:])
        async with (
            NativeProvider(image=replace(image, records=records)) as provider,
            Verifier(provider, interpreter=provider.interpreter, spec=SPEC) as verifier,
        ):
            got = await leaks_of(verifier, leak_task(C, REFERENCE), REFERENCE)
        assert (got.raw, got.gap) == (None, Gap.UNRESOLVED)
        assert "valgrind is not in the sandbox" in got.evidence[0].message

    async def test_a_wrong_program_has_nothing_to_measure(self, verifier: Verifier) -> None:
        submission = Submission(files={"main.c": c("n = 7;").encode()})
        verdict = await verifier.verify(leak_task(C, REFERENCE), submission)
        assert verdict.checks[0].status is CheckStatus.WRONG_ANSWER
        assert [each.gap for each in verdict.components] == [Gap.NOT_POSSIBLE]


REPORT = b"""\
==7== Memcheck, a memory error detector
==7== Command: ./main x
==7==\x20
==7==\x20
==7== FILE DESCRIPTORS: 5 open (3 std) at exit.
==7== Open file descriptor 9:
==7==    <inherited from parent>
==7==\x20
==7== HEAP SUMMARY:
==7==     in use at exit: 1,220 bytes in 11 blocks
==7==   total heap usage: 12 allocs, 1 frees, 5,216 bytes allocated
==7==\x20
==7== 1,120 (112 direct, 1,008 indirect) bytes in 1 blocks are definitely lost in loss record 2 of 2
==7==    at 0x48417B4: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x1092A7: lose(std::map<int, int>) (main.c:10)
==7==    by 0x109389: main (main.c:15)
==7==\x20
==7== LEAK SUMMARY:
==7==    definitely lost: 112 bytes in 1 blocks
==7==    indirectly lost: 1,008 bytes in 9 blocks
==7==      possibly lost: 0 bytes in 0 blocks
==7==    still reachable: 100 bytes in 1 blocks
==7==         suppressed: 0 bytes in 0 blocks
==7==\x20
==7== ERROR SUMMARY: 1 errors from 1 contexts (suppressed: 0 from 0)
"""
LINES = REPORT.splitlines(keepends=True)
NEEDED = re.compile(
    rb"summary:$|use|usage|lost: |reachable: |suppressed: 0 b|descriptors: ", re.IGNORECASE
)


class TestReport:
    def test_is_read(self) -> None:
        (got,) = read_report(REPORT)
        assert (got.pid, got.lost_bytes, got.lost_blocks) == (7, 1120, 10)
        assert (got.reachable_bytes, got.descriptors, got.allocated_blocks) == (100, 1, 12)
        (loss,) = got.losses
        assert (loss.bytes, loss.blocks) == (1120, 1)
        assert loss.frames == (
            Frame(function="lose(std::map<int, int>)", file="main.c", line=10),
            Frame(function="main", file="main.c", line=15),
        )

    def test_of_several_processes_is_taken_apart(self) -> None:
        child = REPORT.replace(b"==7==", b"==8==")
        mixed = b"".join(a + b for a, b in zip(LINES, child.splitlines(keepends=True), strict=True))
        assert [each.pid for each in read_report(mixed)] == [7, 8]

    @pytest.mark.parametrize("at", [at for at, line in enumerate(LINES) if NEEDED.search(line)])
    def test_needs_each_figure_once(self, at: int) -> None:
        for lines in ([*LINES[:at], *LINES[at + 1 :]], [*LINES, LINES[at]]):
            with pytest.raises(OddReportError):
                read_report(b"".join(lines))

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (b"lost: 112 bytes", b"lost: 0 bytes"),
            (b"in 11 blocks", b"in 10 blocks"),
            (b"1 frees", b"2 frees"),
            (b"112 bytes in 1 blocks\n", b"112 bytes in 1 blocks"),
            (b"==7== ERROR", b"ERROR"),
            (b"==7== ERROR", b"**7** all is well\n==7== ERROR"),
            (b"==7== ERROR", b"==7== Memcheck, a memory error detector\n==7== ERROR"),
            (b"(suppressed: 0 from 0)\n", b"(suppre"),
        ],
    )
    def test_odd_ones_are_refused(self, before: bytes, after: bytes) -> None:
        assert before in REPORT
        with pytest.raises(OddReportError):
            read_report(REPORT.replace(before, after))

    @given(st.binary(), st.integers(0, len(REPORT)), st.integers(0, 20))
    def test_whatever_it_holds_it_is_read_or_refused(self, put: bytes, at: int, cut: int) -> None:
        for text in (put, REPORT[:at] + put + REPORT[at + cut :]):
            with suppress(OddReportError):
                read_report(text)

    @pytest.mark.parametrize("text", [b"", b"\n", b"valgrind: cannot start\n", b"\xff\n", b"==7=="])
    def test_nothing_is_none(self, text: bytes) -> None:
        with pytest.raises(OddReportError):
            read_report(text)


class TestBinary:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (b"", Binary.SCRIPT),
            (b"#!/bin/sh\n", Binary.SCRIPT),
            (b"\x7fELF", Binary.FOREIGN),
            (b"\x7fELF\x01\x01" + bytes(100), Binary.FOREIGN),
            (b"\x7fELF\x02\x01" + bytes(12) + b"\x3e" + bytes(100), Binary.FOREIGN),
        ],
    )
    def test_what_is_no_program_of_ours(self, content: bytes, kind: Binary) -> None:
        assert binary_of(content) is kind

    def test_headers_outside_of_the_file_are_passed_over(self) -> None:
        header = bytearray(64)
        header[:6] = b"\x7fELF\x02\x01"
        header[18], header[54], header[56:58] = 62, 56, b"\xff\xff"
        header[32:40] = b"\xff" * 8
        assert binary_of(bytes(header)) is Binary.STATIC
