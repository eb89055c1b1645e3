"""What a program loses of its heap, as valgrind's memcheck counts it.

The program as it was built runs under memcheck on cases of its hidden suite, each in a sandbox of
its own, and has to answer them rightly there too. Lost is what nothing points to any more when a
process ends, by whatever way it ends. What the reference loses on the same case is nobody's fault.

The report is written inside the submission's sandbox. `memcheck_report` and `binary` refuse what a
program can easily do to it; what is refused is never worth anything. See docs/decisions/0024.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tiltyard.core.errors import SandboxFileError
from tiltyard.core.execution import Reason
from tiltyard.core.task import ProgramCase, ProgramSuite, Task
from tiltyard.core.verdict import CheckStatus, Component, Evidence, Gap
from tiltyard.verify.crossing import beside_the_loop
from tiltyard.verify.dynamic.binary import BINARY_BYTES_MAX, Binary, binary_of
from tiltyard.verify.dynamic.leaks import NAME
from tiltyard.verify.dynamic.memcheck_report import (
    OddReportError,
    ProcessReport,
    read_report,
)
from tiltyard.verify.dynamic.program_bench import NOT_BUILT, ProgramBench
from tiltyard.verify.evidence import plain
from tiltyard.verify.expected import Remembered, digest_of
from tiltyard.verify.found import without
from tiltyard.verify.provenance import suite_digest
from tiltyard.verify.split.program_runs import (
    CAPTURED_BYTES_MAX,
    WORKSPACE,
    Built,
    NotBuilt,
    Printed,
    run,
)
from tiltyard.verify.split.programs import judged

CASES_MAX = 10
"""Spread evenly over the suite. Each costs a second for starting memcheck alone."""
SLOWER = 50.0
"""How many times as long as without it a case may take under memcheck."""
CASE_S_MAX = 60.0
ALL_S_MAX = 120.0
DESCRIPTORS_SPARE = 8
"""A few files that are open at the end are how programs are written; more were forgotten."""
CASES_SHOWN_MAX = 5
TRY_S = 20.0
REPORT = 9
"""The descriptor that is told to valgrind, which writes to a copy that the program cannot close."""
MEMCHECK = (
    *("/bin/sh", "-c", f'exec "$@" {REPORT}>&2 2>/dev/null', "memcheck"),
    *("valgrind", f"--log-fd={REPORT}", "--tool=memcheck"),
    "--command-line-only=yes",  # nothing of a .valgrindrc that building left
    "--vgdb=no",
    "--trace-children=yes",
    "--child-silent-after-fork=no",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--leak-resolution=low",
    "--undef-value-errors=no",
    "--error-limit=no",
    "--track-fds=yes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tally:
    """One case: what the process lost that lost most."""

    worst: ProcessReport
    descriptors: int
    reachable_bytes: int

    def beyond(self, reference: "_Tally") -> bool:
        """Whether it lost something that the reference did not."""
        spare = reference.descriptors + DESCRIPTORS_SPARE
        return self.worst.lost_bytes > reference.worst.lost_bytes or self.descriptors > spare


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unseen:
    """Why nothing is known, in words about "it"."""

    why: str
    gap: Gap = Gap.UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """What is found out once about a task."""

    tallies: Mapping[str, _Tally]
    """By the ids of cases that it gets through under memcheck."""
    why: str = ""
    """Why there are none."""


class Memchecks:
    """What measuring needs, and what is remembered of references."""

    def __init__(self, bench: ProgramBench) -> None:
        """`bench` is open."""
        self.runs = bench.runs
        self.comparison = bench.comparison
        self.references = Remembered[_Reference]()


class MemcheckMeter:
    """Measures one program of one task."""

    def __init__(self, shared: Memchecks, task: Task, suite: ProgramSuite, source: bytes) -> None:
        self._shared = shared
        self._runs = shared.runs
        self._task = task
        self._suite = suite
        self._source = source

    async def measure(self) -> Component:
        """Raises `SandboxError` or `GraderError` when the fault is ours."""
        texts = (self._task.reference, repr(self._task.time_limit_s), suite_digest(self._suite))
        key = digest_of(*(text.encode() for text in texts))
        reference = await self._shared.references.get(key, self._learn)
        if not reference.tallies:
            return without(NAME, Gap.UNRESOLVED, reference.why)
        async with self._runs.built(self._task, self._source, self._suite) as built:
            if isinstance(built, NotBuilt):
                return without(NAME, Gap.NOT_POSSIBLE, NOT_BUILT)
            seen = await self._look(built, wanted=reference.tallies)
        return self._component(seen, reference.tallies)

    async def _learn(self) -> _Reference:
        """Tries memcheck with the reference. Raises `UnsoundTask` where it cannot be built."""
        nothing: Mapping[str, _Tally] = MappingProxyType({})
        async with self._runs.sandbox(self._runs.spec) as sandbox:
            tried = await run(sandbox, ("valgrind", "--version"), timeout_s=TRY_S)
        if not tried.ok:
            why = "valgrind is not in the sandbox: install it with scripts/setup-system"
            return _Reference(tallies=nothing, why=why)
        async with self._runs.reference(self._task, self._suite) as built:
            seen = await self._look(built, wanted=None)
        tallies = {id_: each for id_, each in seen.items() if isinstance(each, _Tally)}
        whys = [f"{id_}: {each.why}" for id_, each in seen.items() if isinstance(each, _Unseen)]
        why = f"memcheck says nothing of the task's reference: {'; '.join(whys[:3])}"
        return _Reference(tallies=MappingProxyType(tallies), why=why)

    async def _look(
        self, built: Built, *, wanted: Mapping[str, _Tally] | None
    ) -> Mapping[str, "_Tally | _Unseen"]:
        """What each case loses, by id; of `wanted` those only, None those that are chosen."""
        cases = _chosen(self._suite.cases)
        if wanted is not None:
            cases = tuple(case for case in cases if case.id in wanted)
        binary = await self._binary(built)
        if binary is not Binary.DYNAMIC:
            own = binary is Binary.ASKS_VALGRIND
            unseen = _Unseen(why=f"it {binary}", gap=Gap.NOT_POSSIBLE if own else Gap.UNRESOLVED)
            return {cases[0].id: unseen}
        until = time.monotonic() + ALL_S_MAX
        seen: dict[str, _Tally | _Unseen] = {}
        for case in cases:
            left_s = until - time.monotonic()
            if left_s <= 0:
                seen[case.id] = _Unseen(why=f"the cases before it took {ALL_S_MAX:.0f} s")
            else:
                seen[case.id] = await self._tally(built, case, left_s=left_s)
        return seen

    async def _binary(self, built: Built) -> Binary:
        name = self._suite.run[0]
        if "/" not in name:
            return Binary.SCRIPT  # found by PATH, so it is none that was built here
        async with self._runs.sandbox(built.spec) as sandbox:
            try:
                path = name if name.startswith("/") else f"{WORKSPACE}/{name}"
                content = await sandbox.read(path, bytes_max=BINARY_BYTES_MAX)
            except SandboxFileError:
                return Binary.FOREIGN
        return await beside_the_loop(len(content), binary_of, content)

    async def _tally(self, built: Built, case: ProgramCase, *, left_s: float) -> "_Tally | _Unseen":
        limit_s = min(self._task.time_limit_s * SLOWER, CASE_S_MAX, left_s)
        under = replace(self._suite, run=(*MEMCHECK, *self._suite.run))
        large = len(case.expected) > CAPTURED_BYTES_MAX
        printed = await self._runs.ask(built, under, case, timeout_s=limit_s, large=large)
        if problem := await self._problem(case, printed, limit_s=limit_s):
            return _Unseen(why=problem)
        captured = printed.result.stderr
        if captured.truncated:
            return _Unseen(why="its report is too long", gap=Gap.NOT_POSSIBLE)
        try:
            text = captured.head + captured.tail
            reports = await beside_the_loop(len(text), read_report, text)
        except OddReportError as error:
            why = f"the report about it {plain(str(error))}"
            return _Unseen(why=why, gap=Gap.NOT_POSSIBLE)
        return _Tally(
            worst=max(reports, key=lambda report: report.lost_bytes),
            descriptors=max(report.descriptors for report in reports),
            reachable_bytes=max(report.reachable_bytes for report in reports),
        )

    async def _problem(self, case: ProgramCase, printed: Printed, *, limit_s: float) -> str:
        """How it did not do under memcheck what it did without; empty when it did."""
        if printed.result.reason is Reason.WALL_TIMEOUT:
            return f"it did not end within {limit_s:.3g} s under memcheck"
        compare = self._shared.comparison.wrong_again
        check = await judged(self._task, self._suite, case, printed, compare)
        if check.status is CheckStatus.PASSED:
            return ""
        last = plain(printed.result.stderr.text.strip()[-200:])
        return f"{check.status} under memcheck, which last said: {last}"

    def _component(
        self, seen: Mapping[str, "_Tally | _Unseen"], reference: Mapping[str, _Tally]
    ) -> Component:
        tallies = {id_: each for id_, each in seen.items() if isinstance(each, _Tally)}
        unseen = {id_: each for id_, each in seen.items() if isinstance(each, _Unseen)}
        leaks = [id_ for id_, each in tallies.items() if each.beyond(reference[id_])]
        leaks.sort(key=lambda id_: -tallies[id_].worst.lost_bytes)
        if unseen and not leaks:
            worst = min(unseen, key=lambda id_: unseen[id_].gap is not Gap.NOT_POSSIBLE)
            return without(NAME, unseen[worst].gap, f"case {worst}: {unseen[worst].why}")
        evidence = [
            self._evidence(id_, tallies[id_], reference[id_]) for id_ in leaks[:CASES_SHOWN_MAX]
        ]
        if not leaks:
            evidence.append(_nothing_lost(tallies))
        return Component(
            name=NAME,
            raw=float(max(each.worst.lost_bytes for each in tallies.values())),
            reference=float(max(each.worst.lost_bytes for each in reference.values())),
            unit="bytes",
            normalised=0.0 if leaks else 1.0,
            evidence=tuple(evidence),
        )

    def _evidence(self, id_: str, tally: _Tally, reference: _Tally) -> Evidence:
        worst, theirs = tally.worst, reference.worst.lost_bytes
        if worst.lost_bytes <= theirs:
            return Evidence(
                message=f"case {id_}: {tally.descriptors} descriptors are open at the end, the "
                f"reference's {reference.descriptors}",
                value=float(tally.descriptors),
                unit="descriptors",
            )
        message = f"case {id_}: {worst.lost_bytes} bytes in {worst.lost_blocks} blocks are lost"
        frames = worst.losses[0].frames if worst.losses else ()
        own = next((frame for frame in frames if frame.file == self._suite.source), None)
        frame = own or next(iter(frames), None)
        if frame is not None:
            message += f", most of them from {frame.function} at {frame.file}:{frame.line}"
        return Evidence(
            message=plain(f"{message}; the reference loses {theirs} bytes"),
            path="" if frame is None else plain(frame.file),
            line=0 if frame is None else frame.line,
            value=float(worst.lost_bytes),
            unit="bytes",
        )


def _chosen(cases: tuple[ProgramCase, ...]) -> tuple[ProgramCase, ...]:
    """At most `CASES_MAX`, the first and the last among them."""
    if len(cases) <= CASES_MAX:
        return cases
    last = len(cases) - 1
    return tuple(cases[round(at * last / (CASES_MAX - 1))] for at in range(CASES_MAX))


def _nothing_lost(tallies: Mapping[str, _Tally]) -> Evidence:
    reachable = max(each.reachable_bytes for each in tallies.values())
    return Evidence(
        message=f"nothing is lost in {len(tallies)} cases; up to {reachable} bytes are still "
        "reachable at the end",
        value=float(reachable),
        unit="bytes",
    )
