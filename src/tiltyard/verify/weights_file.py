"""Weights in TOML, as a user writes them for a run, or a task for itself: read at the edge.

Whatever is wrong with them is a `UsageError` that names file and field. `docs/rewards.md` has the
format.
"""

import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tiltyard.core.errors import UsageError
from tiltyard.core.weights import Bounds, ComponentWeight, Unresolved, Weighting, Weights

FILE_BYTES_MAX = 1024 * 1024
ENTRIES_MAX = 1_000
_FORMAT = "docs/rewards.md describes the format, with an example."


def _one_nth(quantum: float) -> float:
    """Otherwise 1, and with it the reward of a right answer, could not be reached."""
    if quantum and abs(1 / quantum - round(1 / quantum)) > 1e-6 / quantum:
        raise ValueError("must go into 1 a whole number of times, as 0.05 does")
    return quantum


_Weight = Annotated[float, Field(ge=0, le=1e6)]
_Quantum = Annotated[float, Field(ge=0, le=1), AfterValidator(_one_nth)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Tests(_Table):
    weight: _Weight = 1.0
    partial: bool = False


class _Component(_Table):
    weight: _Weight
    best: float | None = None
    worst: float | None = None
    relative: bool = False
    quantum: _Quantum = 0.0
    # Strict would refuse the name of a member.
    unresolved: Annotated[Unresolved, Field(strict=False)] = Unresolved.DROP

    @model_validator(mode="after")
    def _bounds_are_two(self) -> Self:
        if (self.best is None) != (self.worst is None):
            raise ValueError("best and worst go together")
        if self.best is not None and self.best == self.worst:
            raise ValueError("best and worst must differ")
        if self.relative and self.best is None:
            raise ValueError("relative needs best and worst")
        return self

    def weight_of(self) -> ComponentWeight:
        bounds = None
        if self.best is not None and self.worst is not None:
            bounds = Bounds(best=self.best, worst=self.worst, relative=self.relative)
        return ComponentWeight(
            weight=self.weight, bounds=bounds, quantum=self.quantum, unresolved=self.unresolved
        )


class WeightsTable(_Table):
    """`Weights`, as a task or a run writes them."""

    gate: bool = True
    quantum: _Quantum = 0.0
    tests: _Tests = Field(default_factory=_Tests)
    components: dict[_Name, _Component] = Field(default_factory=dict, max_length=ENTRIES_MAX)

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if "tests" in self.components:
            raise ValueError("the tests are no component: [tests] is their table")
        if not self.tests.weight and not any(each.weight for each in self.components.values()):
            raise ValueError("all weights are zero, so nothing could be paid")
        return self

    def weights(self) -> Weights:
        """What the table says."""
        return Weights(
            tests=self.tests.weight,
            partial=self.tests.partial,
            gate=self.gate,
            quantum=self.quantum,
            components=MappingProxyType(
                {name: each.weight_of() for name, each in self.components.items()}
            ),
        )


_Read = TypeVar("_Read", bound=WeightsTable)


class _File(WeightsTable):
    tasks: dict[_Name, WeightsTable] = Field(default_factory=dict, max_length=ENTRIES_MAX)


def read_weights(path: Path) -> Weighting:
    """The weights in a TOML file.

    Raises `UsageError`, naming file and field, when it cannot be read or does not fit the format.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe that nobody writes to has no end
            raise UsageError(f"{path} is not a file.", fix="Name a file with weights in TOML.")
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", fix="Name a file with weights in TOML."
        ) from error
    if len(raw) > FILE_BYTES_MAX:
        raise UsageError(f"{path} has more than {FILE_BYTES_MAX} bytes.", fix=_FORMAT)
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and TOMLDecodeError too
        raise UsageError(f"{path} is not TOML: {str(error)[:200]}.", fix=_FORMAT) from None
    read = _checked(_File, table, str(path))
    by_task = tuple((pattern, each.weights()) for pattern, each in read.tasks.items())
    return Weighting(default=read.weights(), by_task=by_task)


def weights_of(table: Mapping[str, object], *, where: str) -> Weights:
    """The weights in a table that was read already, such as a task's own; `where` names it.

    Raises `UsageError`, naming the field, when it does not fit the format.
    """
    return _checked(WeightsTable, table, where).weights()


def _checked(kind: type[_Read], table: Mapping[str, object], where: str) -> _Read:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "weights"
        said = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            said = "is no field of the format"
        raise UsageError(f"{where}: {field}: {said}.", fix=_FORMAT) from None
