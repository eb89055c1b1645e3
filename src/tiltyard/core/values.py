"""The values that may cross between a solution and its tests: exact builtin types, nothing else."""

from typing import TypeAlias, Union

Value: TypeAlias = Union[
    bool,
    int,
    float,
    str,
    bytes,
    "list[Value]",
    "tuple[Value, ...]",
    "dict[Value, Value]",
    "set[Value]",
    "frozenset[Value]",
    None,
]
