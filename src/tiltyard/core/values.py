"""The values that may cross between a solution and its tests: exact builtin types, nothing else."""

from typing import TypeAlias, Union

Value: TypeAlias = Union[  # noqa: UP007 - a recursive alias needs the string forms
    None,
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
]
