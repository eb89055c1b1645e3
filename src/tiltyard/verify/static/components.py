"""From what the tools said of a solution and of the reference to components. Pure.

Every measure is relative to the reference: what it has, a solution may have. Findings are counted
for each 100 lines of the *reference*, so no padding thins them out and no brevity hides them; sums
and maxima are taken, no means, so splitting functions gains nothing.

    share of findings   1 - (n - n_ref) / (lines_ref / 10), lines_ref at least 25
    share of a size     1 up to `free` times the reference's, 0 from `worst` times, straight between

each kept within 0 and 1. Where a solution can run text, and the reference does not, what was read
of it says nothing, and every share is 0. docs/rewards.md lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tiltyard.core.verdict import Component, Evidence, Gap
from tiltyard.verify.static.reading import Absent, Failed, Report, Result

LINES_MIN = 25
"""Of a reference: in a very short one a single finding would otherwise be worth everything."""
LINES_PER_FINDING = 10
SIZE_FREE, SIZE_WORST = 1.5, 5.0
COMPLEXITY_FREE, COMPLEXITY_WORST = 1.0, 3.0

RUNS_TEXT = frozenset(
    {
        *("name exec", "name eval", "name compile", "attribute CodeType", "attribute FunctionType"),
        *("module runpy", "module code", "module codeop", "module marshal", "module pickle"),
        *("module importlib", "module imp", "module zipimport", "name __import__"),
        *("attribute __import__", "computed", "module builtins", "name builtins"),
        *("name __builtins__", "attribute __builtins__", "attribute __globals__"),
        *("name __globals__", "name __subclasses__", "attribute __subclasses__"),
    }
)
"""Kinds of dynamic code by which a solution can consist of code that no tool reads."""

Numbers = Mapping[str, Mapping[str, float]]
"""By tool, what it counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """One component: which tools it needs, and how it follows from their numbers."""

    name: str
    unit: str
    tools: tuple[str, ...]
    raw: Callable[[Numbers, Numbers], float]
    """From the solution's numbers and the reference's; the reference's own raw with both its."""
    share: Callable[[Numbers, Numbers], float]


def _findings(numbers: Numbers) -> float:
    return numbers["style"]["findings"] + numbers["size"]["suppressions"]


def _beyond_findings(own: float, reference: float, numbers: Numbers) -> float:
    lines = max(LINES_MIN, numbers["size"]["lines"])
    return _within(1 - (own - reference) / (lines / LINES_PER_FINDING))


def _beyond_size(own: float, reference: float, free: float, worst: float) -> float:
    reference = max(1.0, reference)
    return _within((worst * reference - own) / ((worst - free) * reference))


def _within(share: float) -> float:
    return min(1.0, max(0.0, share))


def _more_dynamic(own: Numbers, reference: Numbers) -> float:
    """How many suspicious things are there that the reference does not have, kind by kind."""
    allowed = reference["dynamic_code"]
    return sum(
        max(0.0, count - allowed.get(name, 0.0)) for name, count in own["dynamic_code"].items()
    )


def _unread(own: Mapping[str, Result], reference: Mapping[str, Result]) -> tuple[str, ...]:
    """By what a solution can run code from data where the reference does not."""
    match own.get("dynamic_code"), reference.get("dynamic_code"):
        case Report(numbers=mine), Report(numbers=theirs):
            return tuple(
                sorted(kind for kind in RUNS_TEXT & mine.keys() if not theirs.get(kind, 0.0))
            )
        case _:
            return ()


def _complexity_share(own: Numbers, reference: Numbers) -> float:
    return min(
        _beyond_size(
            own["complexity"][name],
            reference["complexity"][name],
            COMPLEXITY_FREE,
            COMPLEXITY_WORST,
        )
        for name in ("sum", "max")
    )


_MEASURES = (
    _Measure(
        name="style",
        unit="findings",
        tools=("style", "size"),
        raw=lambda own, _: _findings(own),
        share=lambda own, ref: _beyond_findings(_findings(own), _findings(ref), ref),
    ),
    _Measure(
        name="complexity",
        unit="branches",
        tools=("complexity",),
        raw=lambda own, _: own["complexity"]["sum"],
        share=_complexity_share,
    ),
    _Measure(
        name="security",
        unit="points",
        tools=("security", "size"),
        raw=lambda own, _: own["security"]["points"],
        share=lambda own, ref: _beyond_findings(
            own["security"]["points"], ref["security"]["points"], ref
        ),
    ),
    _Measure(
        name="size",
        unit="tokens",
        tools=("size",),
        raw=lambda own, _: own["size"]["tokens"],
        share=lambda own, ref: _beyond_size(
            own["size"]["tokens"], ref["size"]["tokens"], SIZE_FREE, SIZE_WORST
        ),
    ),
    _Measure(
        name="dynamic_code",
        unit="more than the reference has",
        tools=("dynamic_code",),
        raw=_more_dynamic,
        share=lambda own, ref: 0.0 if _more_dynamic(own, ref) else 1.0,
    ),
    _Measure(
        name="types",
        unit="errors",
        tools=("types", "size"),
        raw=lambda own, _: own["types"]["findings"],
        share=lambda own, ref: _beyond_findings(
            own["types"]["findings"], ref["types"]["findings"], ref
        ),
    ),
    # Where no linter knows the language, what asks linters to look away still counts.
    _Measure(
        name="suppressions",
        unit="comments",
        tools=("size",),
        raw=lambda own, _: own["size"]["suppressions"],
        share=lambda own, ref: _beyond_findings(
            own["size"]["suppressions"], ref["size"]["suppressions"], ref
        ),
    ),
)


def components_of(
    own: Mapping[str, Result], reference: Mapping[str, Result]
) -> tuple[Component, ...]:
    """The components for the tools that were asked; `syntax` comes first.

    What a tool could not do with the reference either is a gap of ours; what it could not do with
    the solution alone is the solution's doing.
    """
    syntax = _syntax(own["syntax"], reference["syntax"])
    found = [syntax]
    unread = _unread(own, reference)
    for measure in _MEASURES:
        if not own.keys() >= set(measure.tools):
            continue
        measured = _measured(measure, own, reference)
        if syntax.raw == 0.0 and measured.gap is not Gap.INFRA:
            measured = _gap(measure, Gap.NOT_POSSIBLE, "the source cannot be parsed")
        elif unread and measured.normalised:
            words = Evidence(message=f"it can run code that was not read: {', '.join(unread)}")
            measured = replace(measured, normalised=0.0, evidence=(words, *measured.evidence))
        found.append(measured)
    return tuple(found)


def unmeasured(tools: tuple[str, ...], why: str) -> tuple[Component, ...]:
    """The same components when a fault of ours left them all out."""
    gone = {tool: Absent(why=why) for tool in tools}
    return components_of(gone, gone)


def _syntax(own: Result, reference: Result) -> Component:
    empty = Component(name="syntax", raw=None, unit="(1: it can be parsed)")
    match own, reference:
        case Absent(why=why), _:
            return replace(empty, gap=Gap.INFRA, evidence=(Evidence(message=why),))
        case _, Failed(why=why) | Absent(why=why):
            words = f"the reference cannot be read: {why}"
            return replace(empty, gap=Gap.INFRA, evidence=(Evidence(message=words),))
        case _, Report(numbers=numbers) if numbers.get("errors", 1.0):
            words = "the reference cannot be parsed"
            return replace(empty, gap=Gap.INFRA, evidence=(Evidence(message=words),))
        case Failed(why=why), _:
            evidence = (Evidence(message=f"it cannot be parsed: {why}", code="syntax"),)
            return replace(empty, raw=0.0, normalised=0.0, reference=1.0, evidence=evidence)
        case Report(numbers=numbers, findings=findings), _:
            right = 0.0 if numbers.get("errors", 1.0) else 1.0
            return replace(empty, raw=right, normalised=right, reference=1.0, evidence=findings)


def _measured(
    measure: _Measure, own: Mapping[str, Result], reference: Mapping[str, Result]
) -> Component:
    counted: dict[str, Mapping[str, float]] = {}
    allowed: dict[str, Mapping[str, float]] = {}
    evidence: list[Evidence] = []
    failed = ""
    for tool in measure.tools:
        match own[tool], reference[tool]:
            case Absent(why=why), _:
                return _gap(measure, Gap.INFRA, why)
            case _, Failed(why=why) | Absent(why=why):
                return _gap(measure, Gap.INFRA, f"{tool} of the reference: {why}")
            case Failed(why=why), _:
                failed = failed or f"{tool}: {why}"
            case Report() as mine, Report() as theirs:
                counted[tool], allowed[tool] = mine.numbers, theirs.numbers
                if tool == measure.tools[0] or measure.name == "style":
                    evidence += mine.findings
    if failed:
        return _gap(measure, Gap.NOT_POSSIBLE, failed)
    try:
        return Component(
            name=measure.name,
            raw=measure.raw(counted, allowed),
            unit=measure.unit,
            normalised=measure.share(counted, allowed),
            reference=measure.raw(allowed, allowed),
            evidence=tuple(evidence),
        )
    except KeyError as error:
        # A number that the tool always gives is missing: the answer was not the tool's.
        return _gap(measure, Gap.NOT_POSSIBLE, f"a number is missing: {error}")


def _gap(measure: _Measure, gap: Gap, why: str) -> Component:
    return Component(
        name=measure.name, raw=None, unit=measure.unit, gap=gap, evidence=(Evidence(message=why),)
    )
