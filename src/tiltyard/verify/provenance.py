"""What a verdict depends on, for its record: digests and names, never a secret. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType

from tiltyard.core.task import (
    CallSuite,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Suite,
    Task,
)

DIGITS = 32
"""Of a SHA-256, as many as keep digests apart."""
KEPT_MAX = 64


def provenance_of(task: Task, *, image: str) -> Mapping[str, str]:
    """Whatever a verdict on this task depends on, beside the verifier and the submission."""
    told = {
        "task": str(task.id),
        "task_revision": task.revision,
        "mode": mode_of(task.hidden),
        "suite": suite_digest(task.hidden),
    }
    if image:
        told["image"] = image
    return MappingProxyType(told)


def mode_of(suite: Suite) -> str:
    """How a suite is run: `split`, `overlay` or `script`."""
    match suite:
        case CallSuite() | PytestSuite() | ProgramSuite():
            return "split"
        case RepositorySuite():
            return "overlay"
        case ScriptSuite():
            return "script"


def suite_digest(suite: Suite) -> str:
    """The same for equal suites, in every process and on every machine."""
    return _kept_digest(_Same(suite))


class _Same:
    """A suite by its identity: suites hold mappings, which have no hash."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.suite is self.suite

    def __hash__(self) -> int:
        return id(self.suite)


@lru_cache(maxsize=KEPT_MAX)
def _kept_digest(same: _Same) -> str:
    return value_digest(same.suite)


def value_digest(value: object) -> str:
    """The same for equal values, made of dataclasses and plain containers, in every process."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"sha256:{digest.hexdigest()[:DIGITS]}"


def _parts(value: object) -> Iterator[bytes]:
    """A value as a sequence of texts that no other value has."""
    yield b"map" if isinstance(value, Mapping) else type(value).__name__.encode()
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield field.name.encode()
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield str(len(value)).encode()
        for key, item in sorted(value.items(), key=lambda pair: repr(pair[0])):
            yield from _parts(key)
            yield from _parts(item)
    elif isinstance(value, tuple | list):
        yield str(len(value)).encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, set | frozenset):
        yield str(len(value)).encode()
        for item in sorted(value, key=repr):
            yield from _parts(item)
    elif isinstance(value, bytes):
        yield value
    else:
        yield repr(value).encode("utf-8", "backslashreplace")
