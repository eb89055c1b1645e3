"""A record's text form: frozen dataclasses to JSON and back, exactly.

Encoders and decoders are made once from the types' annotations, so a field that the core gains is
recorded without a change here. A general library is not used, because each one tried gives up
something that a record must keep: lone surrogates in a model's text, infinities, tuples, or bytes
that stay readable and compressible. Both directions check types: what cannot be read back must be
refused when it is written, while the caller still holds it.

This module reaches no file and knows nothing of segments.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

from tiltyard.core.trajectory import Trajectory

SCHEMA = 4
"""Raised whenever a record is written in a form that an older reader would refuse or misread."""
READABLE = frozenset({1, 2, 3, 4})
"""Those of schema 1 lack the prompt, and those of 1 and 2 a verdict's components, assurance,
baseline and provenance and a reward's parts, and those before 4 a reward's gates and the weights
that made it: each has a default that says so."""

Json: TypeAlias = Any
Encode: TypeAlias = Callable[[Any], Json]
Decode: TypeAlias = Callable[[Json], Any]
Codec: TypeAlias = tuple[Encode, Decode]

SURROGATES = "surrogates"
"""Key of the object that stands for a text which is not valid Unicode."""


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """The UTF-8 JSON text of a record.

    Raises `ValueError`, naming the field, when a value is not of the field's type.
    """
    encode, _ = _trajectory_codec()
    tree = {"schema": SCHEMA, "trajectory": encode(trajectory)}
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()


def decode_trajectory(text: bytes) -> Trajectory:
    """The record that `encode_trajectory` wrote; raises `ValueError` for anything else."""
    tree = json.loads(text)
    if not isinstance(tree, dict) or tree.keys() != {"schema", "trajectory"}:
        raise ValueError("not a trajectory record")
    if tree["schema"] not in READABLE:
        raise ValueError(
            f"written in record schema {tree['schema']}, this version reads up to {SCHEMA}"
        )
    _, decode = _trajectory_codec()
    trajectory: Trajectory = decode(tree["trajectory"])
    return trajectory


@cache
def _trajectory_codec() -> Codec:
    return _codec(Trajectory, "trajectory")


def _codec(kind: Any, where: str) -> Codec:
    """Encoder and decoder for values of type `kind`; `where` names the place in errors."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, NewType):
        return _codec(kind.__supertype__, where)
    if origin in (Union, UnionType):
        return _optional(arguments, where)
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(arguments[0], where)
    if origin is Mapping:
        return _mapping(arguments[0], arguments[1], where)
    if is_dataclass(kind):
        return _record(kind, where)
    if issubclass(kind, StrEnum):
        return _enum(kind, where)
    if kind in _PLAIN:
        return _PLAIN[kind](where)
    raise TypeError(f"{where}: no codec for {kind}")


def _wrong(where: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{where}: expected {expected}, not {type(value).__name__} {value!r:.60}")


def _text(where: str) -> Codec:
    def encode(value: object) -> Json:
        if not isinstance(value, str):
            raise _wrong(where, value, "text")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                # JSON's escapes would do for one surrogate alone, but they join two adjacent ones.
                return {SURROGATES: b64encode(value.encode("utf-8", "surrogatepass")).decode()}
        return str(value)

    def decode(value: Json) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, dict) and value.keys() == {SURROGATES}:
            return b64decode(value[SURROGATES]).decode("utf-8", "surrogatepass")
        raise _wrong(where, value, "text")

    return encode, decode


def _bytes(where: str) -> Codec:
    # Latin-1 maps every byte to the character of that number: exact, and a program's output stays
    # readable and compresses well, which base64 would spoil.
    def encode(value: object) -> str:
        if not isinstance(value, bytes):
            raise _wrong(where, value, "bytes")
        return value.decode("latin-1")

    def decode(value: Json) -> bytes:
        if not isinstance(value, str):
            raise _wrong(where, value, "bytes as text")
        return value.encode("latin-1")

    return encode, decode


def _integer(where: str) -> Codec:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(where, value, "an integer")
        return int(value)

    return check, check


def _real(where: str) -> Codec:
    def check(value: Any) -> float:
        # A whole number is allowed, as the type checker allows it.
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise _wrong(where, value, "a number")
        return float(value)

    return check, check


def _truth(where: str) -> Codec:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise _wrong(where, value, "true or false")
        return value

    return check, check


_PLAIN: Mapping[type, Callable[[str], Codec]] = MappingProxyType(
    {str: _text, bytes: _bytes, int: _integer, float: _real, bool: _truth}
)


def _enum(kind: type[StrEnum], where: str) -> Codec:
    def encode(value: object) -> str:
        if not isinstance(value, kind):
            raise _wrong(where, value, kind.__name__)
        return value.value

    def decode(value: Json) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            raise _wrong(where, value, f"a {kind.__name__}") from None

    return encode, decode


def _optional(arguments: tuple[Any, ...], where: str) -> Codec:
    rest = [argument for argument in arguments if argument is not NoneType]
    if len(rest) != 1 or len(arguments) != 2:
        raise TypeError(f"{where}: a union needs a tag to be read back: {arguments}")
    inner_encode, inner_decode = _codec(rest[0], where)

    def encode(value: object) -> Json:
        return None if value is None else inner_encode(value)

    def decode(value: Json) -> object:
        return None if value is None else inner_decode(value)

    return encode, decode


def _sequence(kind: Any, where: str) -> Codec:
    item_encode, item_decode = _codec(kind, f"{where}[]")
    # Token ids and log-probabilities are most of a record, and stand for themselves in JSON.
    exact = {kind} & {int, float}

    def encode(value: object) -> list[Json]:
        if not isinstance(value, tuple):
            raise _wrong(where, value, "a tuple")
        if exact.issuperset(map(type, value)):
            return list(value)
        return [item_encode(item) for item in value]

    def decode(value: Json) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        if exact.issuperset(map(type, value)):
            return tuple(value)
        return tuple([item_decode(item) for item in value])

    return encode, decode


def _mapping(key: Any, item: Any, where: str) -> Codec:
    # Pairs and not an object, so that a key may be any text and the order is kept.
    key_encode, key_decode = _codec(key, f"{where} key")
    item_encode, item_decode = _codec(item, f"{where} value")

    def encode(value: object) -> list[Json]:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "a mapping")
        return [[key_encode(name), item_encode(item)] for name, item in value.items()]

    def decode(value: Json) -> Mapping[Any, Any]:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list of pairs")
        return MappingProxyType({key_decode(name): item_decode(item) for name, item in value})

    return encode, decode


def _record(kind: Any, where: str) -> Codec:
    hints = get_type_hints(kind)
    codecs = {
        field.name: _codec(hints[field.name], f"{where}.{field.name}") for field in fields(kind)
    }
    encoders = [(name, encode) for name, (encode, _) in codecs.items()]
    decoders = {name: decode for name, (_, decode) in codecs.items()}
    required = {field.name for field in fields(kind) if _has_no_default(field)}

    def encode(value: object) -> dict[str, Json]:
        if type(value) is not kind:
            raise _wrong(where, value, kind.__name__)
        return {name: field_encode(getattr(value, name)) for name, field_encode in encoders}

    def decode(value: Json) -> object:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        if strange := value.keys() - decoders.keys():
            raise ValueError(f"{where}: unknown field {min(strange)}")
        if missing := required - value.keys():
            raise ValueError(f"{where}: field {min(missing)} is missing")
        return kind(**{name: decoders[name](item) for name, item in value.items()})

    return encode, decode


def _has_no_default(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
