"""The shape of a `task.toml`: Harbor's own tables as far as they matter here, and `[tiltyard]`.

In `[tiltyard]` anything unknown is refused, since a check that is silently left out is a reward
that means nothing; in Harbor's tables it is passed over, as Harbor itself does.
"""

import re
import shlex
from types import MappingProxyType
from typing import Annotated, Literal

import re2
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tiltyard.core.checks import Checks, Growth, Inputs, Leaks, Rubric, StateCheck, StateKind
from tiltyard.tasks.names import PlainId, PythonName
from tiltyard.verify.weights_file import WeightsTable

TIME_LIMIT_S_MAX = 3600.0
GLOBS_MAX = 1_000
WORDS_MAX = 1_000
STATE_CHECKS_MAX = 1_000
CRITERIA_MAX = 100

_VERIFY_FIELDS = {
    ("split", "pytest"): {"module", "inplace"},
    ("split", "program"): {
        *("module", "source", "build", "run", "compare", "checker", "float_tolerance"),
    },
    ("overlay", ""): {"sources", "protected", "base"},
    ("script", ""): {"artifacts", "workdir", "base"},
}
"""What each mode reads beside those of `_ANY_FIELDS`."""
_ANY_FIELDS = {"mode", "kind", "time_limit_s", "baseline"}
_STATE_FIELDS = {
    StateKind.FILE: {"path", "equals", "matches", "mode"},
    StateKind.ABSENT: {"path"},
    StateKind.PROCESS: {"matches"},
    StateKind.PORT: {"port"},
    StateKind.HTTP: {"port", "path", "status", "equals", "matches"},
    StateKind.SQL: {"path", "query", "rows"},
    StateKind.SERVICE: {"path"},
}
_STATE_NEEDS = {
    StateKind.FILE: {"path"},
    StateKind.ABSENT: {"path"},
    StateKind.PROCESS: {"matches"},
    StateKind.PORT: {"port"},
    StateKind.HTTP: {"port"},
    StateKind.SQL: {"path", "query"},
    StateKind.SERVICE: {"path"},
}


def relative_path(text: str) -> str:
    """A plain path below a directory. Raises ValueError for any other."""
    parts = text.split("/")
    if not text or "\0" in text or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a relative path without '.' or '..', such as src/a.py")
    return text


def _glob(text: str) -> str:
    return relative_path(text.removesuffix("/") + "/**" if text.endswith("/") else text)


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path, such as /app")
    relative_path(text[1:])
    return text


def _command(given: object) -> object:
    """A command as one text, split as a shell would, or as its words."""
    if not isinstance(given, str):
        return given
    try:
        return shlex.split(given)
    except ValueError as error:
        raise ValueError(f"is no command line ({error})") from None


def _pattern(text: str) -> str:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"must be a regular expression of RE2 ({error})") from None
    return text


def _permissions(given: object) -> object:
    if isinstance(given, str) and re.fullmatch(r"(0o)?[0-7]{3,5}", given):
        return int(given.removeprefix("0o"), 8)
    return given


def _table_or_true(given: object) -> object:
    """`growth = true` is the table without a field."""
    return {} if given is True else None if given is False else given


_Path = Annotated[str, AfterValidator(relative_path), Field(max_length=1000)]
_Globs = list[Annotated[str, AfterValidator(_glob), Field(max_length=1000)]]
_Words = Annotated[list[str], BeforeValidator(_command), Field(max_length=WORDS_MAX)]
_Text = Annotated[str, Field(max_length=100_000)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _HarborTable(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class VerifyTable(_Table):
    """`[tiltyard.verify]`: how a submission is judged."""

    mode: Literal["split", "overlay", "script"]
    kind: Literal["pytest", "program"] = "pytest"
    time_limit_s: float | None = Field(default=None, gt=0.0, le=TIME_LIMIT_S_MAX)
    baseline: float = Field(default=0.0, ge=0.0, lt=1.0)
    module: PythonName = "solution"
    inplace: bool = False
    source: _Path | None = None
    build: _Words = Field(default_factory=list)
    run: _Words = Field(default_factory=list)
    compare: Literal["exact", "lines", "tokens", "checker"] | None = None
    float_tolerance: float = Field(default=1e-9, ge=0.0, le=1.0)
    checker: _Path | None = None
    sources: _Globs = Field(default_factory=list, max_length=GLOBS_MAX)
    protected: _Globs = Field(default_factory=list, max_length=GLOBS_MAX)
    base: _Path | None = None
    artifacts: _Globs | None = Field(default=None, max_length=GLOBS_MAX)
    workdir: Annotated[str, AfterValidator(_absolute)] | None = None

    @model_validator(mode="after")
    def _fits_its_mode(self) -> "VerifyTable":
        if self.mode != "split" and "kind" in self.model_fields_set:
            raise ValueError(f"has the field 'kind', which mode {self.mode!r} does not use")
        used = _VERIFY_FIELDS[self.mode, self.kind if self.mode == "split" else ""]
        told = f"mode {self.mode!r}" + (f" of {self.kind} kind" if self.mode == "split" else "")
        for name in sorted(self.model_fields_set - used - _ANY_FIELDS):
            raise ValueError(f"has the field {name!r}, which {told} does not use")
        if self.mode == "overlay" and not self.sources:
            raise ValueError("needs 'sources', the globs of what is taken of a submission")
        if self.compare == "checker" and self.checker is None:
            raise ValueError("compares by a checker and names none in 'checker'")
        if self.checker is not None and self.compare not in {None, "checker"}:
            raise ValueError("names a checker and compares in another way")
        return self


class InputsTable(_Table):
    """`Inputs`, with the program itself or the file that holds it."""

    file: _Path | None = None
    source: Annotated[str, Field(max_length=1_000_000)] | None = None
    target: PythonName | None = None
    fresh_cases: int = Field(default=0, ge=0, le=10_000)

    @model_validator(mode="after")
    def _has_one_program(self) -> "InputsTable":
        if (self.file is None) == (self.source is None):
            raise ValueError("needs exactly one of 'file' and 'source'")
        return self


class GrowthTable(_Table):
    """A `Growth`."""

    size_min: int = Field(default=Growth().size_min, ge=1, le=2**30)
    size_max: int = Field(default=Growth().size_max, ge=2, le=2**30)
    seconds_max: float = Field(default=Growth().seconds_max, gt=0.0, le=600.0)
    tolerance: float = Field(default=Growth().tolerance, ge=0.0, le=10.0)

    @model_validator(mode="after")
    def _sizes_grow(self) -> "GrowthTable":
        if self.size_min >= self.size_max:
            raise ValueError("needs a 'size_max' above its 'size_min'")
        return self


class LeaksTable(_Table):
    """A `Leaks`; of a program without any field."""

    calls: int = Field(default=Leaks().calls, ge=400, le=1_000_000)
    warm_up: int = Field(default=Leaks().warm_up, ge=0, le=1_000_000)
    size: int = Field(default=Leaks().size, ge=1, le=2**30)
    bytes_per_call_max: float = Field(default=Leaks().bytes_per_call_max, ge=0.0)


class StateTable(_Table):
    """A `StateCheck`."""

    id: PlainId
    kind: Literal["file", "absent", "process", "port", "http", "sql", "service"]
    weight: float = Field(default=1.0, gt=0.0, le=1e6)
    path: str = Field(default="", max_length=4000)
    equals: _Text | None = None
    matches: Annotated[_Text, AfterValidator(_pattern)] | None = None
    mode: Annotated[int, BeforeValidator(_permissions), Field(ge=0, le=0o7777)] | None = None
    port: int = Field(default=0, ge=0, le=65_535)
    status: int = Field(default=200, ge=100, le=599)
    query: _Text = ""
    rows: list[list[str]] = Field(default_factory=list, max_length=10_000)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "StateTable":
        kind = StateKind(self.kind)
        given = self.model_fields_set - {"id", "kind", "weight"}
        for name in sorted(given - _STATE_FIELDS[kind]):
            raise ValueError(f"has the field {name!r}, which kind {self.kind!r} does not use")
        for name in sorted(_STATE_NEEDS[kind] - given):
            raise ValueError(f"needs the field {name!r}")
        return self

    def check(self) -> StateCheck:
        fields = self.model_dump() | {
            "kind": StateKind(self.kind),
            "rows": tuple(map(tuple, self.rows)),
        }
        return StateCheck(**fields)


class ChecksTable(_Table):
    """`[tiltyard.checks]`: what is measured beside the tests."""

    static: bool = False
    types: bool = False
    cost: bool = False
    inputs: InputsTable | None = None
    growth: Annotated[GrowthTable | None, BeforeValidator(_table_or_true)] = None
    leaks: Annotated[LeaksTable | None, BeforeValidator(_table_or_true)] = None
    state: list[StateTable] = Field(default_factory=list, max_length=STATE_CHECKS_MAX)
    rubric: dict[PlainId, _Text] = Field(default_factory=dict, max_length=CRITERIA_MAX)

    def unmeasurable(self, *, program: bool, one_file: bool = True) -> str:
        """What it asks for that an answer of this kind cannot be measured by; empty for nothing.

        An answer is a `program`, or else a module with functions, or more than `one_file`.
        """
        if not one_file:
            asked = self.inputs or self.cost or self.growth or self.leaks
            only = "'inputs', 'cost', 'growth' and 'leaks' are for functions and programs only"
            return only if asked else ""
        if program:
            if self.inputs and self.inputs.target:
                return "inputs.target: a program has none: it is given all of its input"
            if self.leaks and self.leaks.model_fields_set:
                return "leaks: its fields are for functions only; of a program say 'leaks = true'"
            return ""
        if self.inputs and not self.inputs.target:
            return "inputs.target: is missing, the function that is called"
        if (self.cost or self.leaks) and not self.inputs:
            return "needs 'inputs' to measure 'cost' or 'leaks' of a function"
        return ""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "ChecksTable":
        if self.inputs is None and self.growth:
            raise ValueError("needs 'inputs' to measure 'growth'")
        ids = [check.id for check in self.state]
        if len(set(ids)) < len(ids):
            raise ValueError("has two state checks of one id")
        return self

    def checks(self, inputs_source: str | None = None) -> Checks:
        """The checks; `inputs_source` is that of the file that `inputs` names, None without one."""
        inputs = None
        if self.inputs is not None:
            inputs = Inputs(
                source=self.inputs.source or inputs_source or "",
                target=self.inputs.target or "",
                fresh_cases=self.inputs.fresh_cases,
            )
        return Checks(
            static=self.static,
            types=self.types,
            cost=self.cost,
            inputs=inputs,
            growth=Growth(**self.growth.model_dump()) if self.growth else None,
            leaks=Leaks(**self.leaks.model_dump()) if self.leaks else None,
            state=tuple(check.check() for check in self.state),
            rubric=Rubric(criteria=MappingProxyType(dict(self.rubric))) if self.rubric else None,
        )


class TiltyardTable(_Table):
    """`[tiltyard]`."""

    id: PlainId | None = None
    family: PlainId = "directory"
    split: Literal["train", "heldout"] = "heldout"
    revision: PlainId | None = None
    verify: VerifyTable | None = None
    checks: ChecksTable = ChecksTable()
    reward: WeightsTable | None = None


class HarborTask(_HarborTable):
    """`[task]`."""

    name: str = ""


class HarborVerifier(_HarborTable):
    """`[verifier]`."""

    timeout_sec: float | None = Field(default=None, gt=0.0)


class HarborEnvironment(_HarborTable):
    """`[environment]`."""

    workdir: Annotated[str, AfterValidator(_absolute)] | None = None


class HarborArtifact(_HarborTable):
    """One of `artifacts`, where it is a table."""

    source: str


class Manifest(_HarborTable):
    """A whole `task.toml`."""

    task: HarborTask = HarborTask()
    verifier: HarborVerifier = HarborVerifier()
    environment: HarborEnvironment = HarborEnvironment()
    artifacts: list[str | HarborArtifact] = Field(default_factory=list, max_length=GLOBS_MAX)
    steps: list[object] = Field(default_factory=list)
    tiltyard: TiltyardTable = TiltyardTable()

    @model_validator(mode="after")
    def _has_one_step(self) -> "Manifest":
        if self.steps:
            raise ValueError("has several steps, which cannot be judged yet")
        return self
