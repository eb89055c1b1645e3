"""The shape of one line of a task file, and its way to a `Task` and back.

Pydantic checks the outside world here and nowhere further in; what leaves this file is a `Task`
of frozen values. Anything unknown or doubtful is refused, since a test that is silently left out
is a reward that means nothing.
"""

import builtins
import re
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from tiltyard.core.checks import Checks, StateCheck
from tiltyard.core.execution import Limits
from tiltyard.core.ids import TaskId
from tiltyard.core.task import (
    CallCase,
    CallSuite,
    Compare,
    MethodCall,
    PytestSuite,
    Split,
    Suite,
    Task,
)
from tiltyard.core.values import Value
from tiltyard.tasks.literals import LiteralError, read_literal, write_literal
from tiltyard.tasks.manifest import (
    ChecksTable,
    GrowthTable,
    InputsTable,
    LeaksTable,
    StateTable,
)
from tiltyard.tasks.names import PlainId, PythonName

CASES_MAX = 10_000
FILES_MAX = 100
SOURCE_CHARS_MAX = 1_000_000
TIME_LIMIT_S_MAX = 3600.0

_MIB = 1024 * 1024
_EXCEPTIONS = frozenset(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
)


def _exception(text: str) -> str:
    if text not in _EXCEPTIONS:
        raise ValueError("must be the name of a builtin exception, such as ValueError")
    return text


def _literal(text: str) -> str:
    read_literal(text)
    return text


def _arguments(text: str) -> str:
    if type(read_literal(text)) not in {tuple, list}:
        raise ValueError("must be a tuple of the arguments, for one argument '(1,)'")
    return text


_Source = Annotated[str, Field(max_length=SOURCE_CHARS_MAX)]
_LiteralText = Annotated[str, AfterValidator(_literal)]
_ArgumentsText = Annotated[str, AfterValidator(_arguments)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CallRecord(_Record):
    """A `MethodCall`."""

    name: PythonName
    args: _ArgumentsText = "()"

    def call(self) -> MethodCall:
        return MethodCall(name=self.name, args=_args(self.args))


class CaseRecord(_Record):
    """A `CallCase`."""

    id: PlainId
    target: PythonName
    args: _ArgumentsText = "()"
    then: list[CallRecord] = Field(default_factory=list, max_length=1000)
    expected: _LiteralText | None = None
    raises: Annotated[str, AfterValidator(_exception)] | None = None
    arguments_kept: bool = False
    compare: Literal["exact", "unordered", "any_of"] = "exact"
    weight: float = Field(default=1.0, gt=0.0, le=1e6)

    @model_validator(mode="after")
    def _expects_one_thing(self) -> "CaseRecord":
        if (self.expected is None) == (self.raises is None):
            raise ValueError("needs exactly one of 'expected' and 'raises'")
        if self.compare != "exact" and (
            self.expected is None or type(read_literal(self.expected)) not in {list, tuple}
        ):
            raise ValueError(f"compares as {self.compare!r}, so 'expected' must be a list or tuple")
        return self

    def case(self) -> CallCase:
        return CallCase(
            id=self.id,
            target=self.target,
            args=_args(self.args),
            then=tuple(call.call() for call in self.then),
            expected=None if self.expected is None else read_literal(self.expected),
            raises=self.raises,
            arguments_kept=self.arguments_kept,
            compare=Compare(self.compare),
            weight=self.weight,
        )


class CallSuiteRecord(_Record):
    """A `CallSuite`."""

    cases: list[CaseRecord] = Field(max_length=CASES_MAX)
    float_tolerance: float = Field(default=1e-9, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _ids_differ(self) -> "CallSuiteRecord":
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                raise ValueError(f"has the case id {case.id!r} twice")
            seen.add(case.id)
        return self

    def suite(self) -> CallSuite:
        return CallSuite(
            cases=tuple(case.case() for case in self.cases), float_tolerance=self.float_tolerance
        )


class PytestSuiteRecord(_Record):
    """A `PytestSuite`: sources by file name."""

    tests: dict[str, _Source] = Field(min_length=1, max_length=FILES_MAX)
    inplace: bool = False

    @model_validator(mode="after")
    def _named_as_tests(self) -> "PytestSuiteRecord":
        for name in self.tests:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}\.py", name):
                raise ValueError(
                    f"has the file name {name[:60]!r}; use plain names such as test_a.py"
                )
        if not any(name.startswith("test_") or name.endswith("_test.py") for name in self.tests):
            raise ValueError("has no test_*.py file, so pytest would find nothing")
        return self

    def suite(self) -> PytestSuite:
        return PytestSuite(files=MappingProxyType(dict(self.tests)), inplace=self.inplace)


class LimitsRecord(_Record):
    """Those `Limits` that differ from the default."""

    memory_bytes: int = Field(default=Limits().memory_bytes, ge=16 * _MIB, le=2**40)
    pids: int = Field(default=Limits().pids, ge=1, le=32_768)
    cpus: float = Field(default=Limits().cpus, gt=0.0, le=1024.0)
    open_files: int = Field(default=Limits().open_files, ge=16, le=1_048_576)
    disk_bytes: int = Field(default=Limits().disk_bytes, ge=_MIB, le=2**40)
    inodes: int = Field(default=Limits().inodes, ge=16, le=2**32)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


def _suite_kind(raw: object) -> str:
    tests = "tests" in raw if isinstance(raw, dict) else isinstance(raw, PytestSuiteRecord)
    return "<pytest>" if tests else "<calls>"


_HiddenRecord = Annotated[
    Annotated[CallSuiteRecord, Tag("<calls>")] | Annotated[PytestSuiteRecord, Tag("<pytest>")],
    Discriminator(_suite_kind),
]
"""The tags are in angle brackets so that a message can leave them out of a field's path."""


class TaskRecord(_Record):
    """A `Task`: one line of a task file."""

    id: PlainId
    family: PlainId = "file"
    split: Literal["train", "heldout"] = "heldout"
    revision: PlainId = "1"
    instruction: str = Field(min_length=1, max_length=SOURCE_CHARS_MAX)
    module: PythonName = "solution"
    starter: _Source = ""
    reference: _Source = Field(min_length=1)
    visible: CallSuiteRecord = CallSuiteRecord(cases=[])
    hidden: _HiddenRecord
    limits: LimitsRecord = LimitsRecord()
    time_limit_s: float = Field(default=5.0, gt=0.0, le=TIME_LIMIT_S_MAX)
    provenance: dict[str, str] = Field(default_factory=dict, max_length=100)
    checks: ChecksTable = ChecksTable()

    @model_validator(mode="after")
    def _has_tests_of_its_own(self) -> "TaskRecord":
        if isinstance(self.hidden, CallSuiteRecord):
            if not self.hidden.cases:
                raise ValueError("has no hidden case, so nothing could be rewarded")
        elif f"{self.module}.py" in self.hidden.tests:
            raise ValueError(f"has a test file named like its module, {self.module}.py")
        return self

    @model_validator(mode="after")
    def _can_be_measured(self) -> "TaskRecord":
        if self.checks.inputs is not None and self.checks.inputs.file is not None:
            raise ValueError("names a file in checks.inputs; give the program itself in 'source'")
        if problem := self.checks.unmeasurable(program=False):
            raise ValueError(f"asks for checks that it cannot have: {problem}")
        return self

    @classmethod
    def of(cls, task: Task) -> "TaskRecord":
        """The record of a task. Raises LiteralError or pydantic's ValidationError."""
        if task.weights is not None or task.baseline:
            raise LiteralError("(what its reward is made of) needs a task directory")
        return cls(
            id=task.id,
            family=task.family,
            split=task.split.value,
            revision=task.revision,
            instruction=task.instruction,
            module=task.module,
            starter=task.starter,
            reference=task.reference,
            visible=_calls_record(task.visible),
            hidden=_suite_record(task.hidden),
            limits=LimitsRecord(**asdict(task.limits)),
            time_limit_s=task.time_limit_s,
            provenance=dict(task.provenance),
            checks=_checks_table(task.checks),
        )

    def task(self) -> Task:
        return Task(
            id=TaskId(self.id),
            family=self.family,
            split=Split(self.split),
            revision=self.revision,
            instruction=self.instruction,
            module=self.module,
            starter=self.starter,
            reference=self.reference,
            visible=self.visible.suite(),
            hidden=self.hidden.suite(),
            limits=self.limits.limits(),
            time_limit_s=self.time_limit_s,
            provenance=MappingProxyType(dict(self.provenance)),
            checks=self.checks.checks(),
        )


def _suite_record(suite: Suite) -> CallSuiteRecord | PytestSuiteRecord:
    match suite:
        case CallSuite():
            return _calls_record(suite)
        case PytestSuite():
            return PytestSuiteRecord(tests=dict(suite.files), inplace=suite.inplace)
        case _:
            raise LiteralError("(its hidden suite) needs a task directory")


def _calls_record(suite: CallSuite) -> CallSuiteRecord:
    return CallSuiteRecord(
        cases=[_case_record(case) for case in suite.cases], float_tolerance=suite.float_tolerance
    )


def _case_record(case: CallCase) -> CaseRecord:
    return CaseRecord(
        id=case.id,
        target=case.target,
        args=write_literal(case.args),
        then=[CallRecord(name=call.name, args=write_literal(call.args)) for call in case.then],
        expected=write_literal(case.expected) if case.raises is None else None,
        raises=case.raises,
        arguments_kept=case.arguments_kept,
        compare=case.compare.value,
        weight=case.weight,
    )


def _checks_table(checks: Checks) -> ChecksTable:
    return ChecksTable(
        static=checks.static,
        types=checks.types,
        cost=checks.cost,
        inputs=InputsTable(**asdict(checks.inputs)) if checks.inputs else None,
        growth=GrowthTable(**asdict(checks.growth)) if checks.growth else None,
        leaks=LeaksTable(**asdict(checks.leaks)) if checks.leaks else None,
        state=[_state_table(check) for check in checks.state],
        rubric=dict(checks.rubric.criteria) if checks.rubric else {},
    )


def _state_table(check: StateCheck) -> StateTable:
    # Only what differs from the default: a table refuses fields that its kind does not use.
    given = {
        each.name: getattr(check, each.name)
        for each in fields(check)
        if getattr(check, each.name) != each.default
    }
    given["kind"] = check.kind.value
    if check.rows:
        given["rows"] = [list(row) for row in check.rows]
    return StateTable(**given)


def _args(text: str) -> tuple[Value, ...]:
    """The arguments of a text that `_arguments` has let through."""
    value = read_literal(text)
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
