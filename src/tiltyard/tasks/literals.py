"""Values as Python literal text: what a task file stores, since JSON has no tuple, bytes or set.

The text is parsed, never evaluated: only the nodes of a `Value` are accepted, within bounds of
length and depth. Infinity and not-a-number have no literal in Python; here they are the names
`inf` and `nan`, and an empty set is `set()`, a frozen one `frozenset({...})`, as `repr` shows them.
"""

import ast
import math
import warnings

from tiltyard.core.values import Value

TEXT_CHARS_MAX = 1_000_000
DEPTH_MAX = 50
_INT_BITS_MAX = 10_000
"""Below the 4,300 digits from which on the interpreter refuses to print an integer."""


class LiteralError(ValueError):
    """The text is not a literal of a `Value`, or exceeds a bound. The message says which."""


_TYPES = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset})


def read_literal(text: str) -> Value:
    """The value that `text` shows. Raises LiteralError."""
    if len(text) > TEXT_CHARS_MAX:
        raise LiteralError(f"longer than {TEXT_CHARS_MAX} characters")
    try:
        with warnings.catch_warnings():
            # A doubtful escape such as "\d" is the writer's business, not a warning of ours.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise LiteralError(f"not a Python literal ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError):
        # A null character, or nesting deeper than the parser's own stack.
        raise LiteralError("not a Python literal, or nested too deeply") from None
    return _value(tree.body, 0)


def write_literal(value: Value) -> str:
    """The text that `read_literal` turns back into an equal value of the same types.

    Raises LiteralError for a value that is no `Value` or exceeds a bound.
    """
    _refuse_foreign(value, 0)
    text = repr(value)
    if len(text) > TEXT_CHARS_MAX:
        raise LiteralError(f"longer than {TEXT_CHARS_MAX} characters")
    return text


def _value(node: ast.expr, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise LiteralError(f"nested deeper than {DEPTH_MAX}")
    match node:
        case ast.List(elts=items):
            value: Value = _values(items, depth)
        case ast.Tuple(elts=items):
            value = tuple(_values(items, depth))
        case ast.Dict(keys=keys, values=values):
            value = _dict(keys, values, depth + 1)
        case ast.Set(elts=items):
            value = _hashed(set, _values(items, depth))
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            value = set()
        case ast.Call(func=ast.Name(id="frozenset"), args=[], keywords=[]):
            value = frozenset()
        case ast.Call(func=ast.Name(id="frozenset"), args=[ast.Set(elts=items)], keywords=[]):
            value = _hashed(frozenset, _values(items, depth))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = -_number(operand)
        case ast.Name():
            value = _number(node)
        case _:
            value = _plain(node)
    return value


def _values(nodes: list[ast.expr], depth: int) -> list[Value]:
    return [_value(node, depth + 1) for node in nodes]


def _number(node: ast.expr) -> int | float:
    """What a sign may stand before, and the two floats that have no literal."""
    match node:
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id=name):
            raise LiteralError(f"holds the name {name[:40]!r}; strings need quotes")
        case _:
            number = _plain(node)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return number
    raise LiteralError("has a sign before something that is no number")


def _plain(node: ast.expr) -> bool | int | float | str | bytes | None:
    match node:
        case ast.Constant(value=str() as text):
            return _encodable(text)
        case ast.Constant(value=int() as number) if number.bit_length() > _INT_BITS_MAX:
            raise LiteralError(f"an integer of more than {_INT_BITS_MAX} bits")
        case ast.Constant(value=None | bool() | int() | float() | bytes() as plain):
            return plain
        case _:
            raise LiteralError(f"holds a {type(node).__name__}, which is no literal")


def _dict(keys: list[ast.expr | None], values: list[ast.expr], depth: int) -> Value:
    pairs: list[tuple[Value, Value]] = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise LiteralError("holds `**`, which is no literal")
        pairs.append((_value(key, depth), _value(value, depth)))
    try:
        return dict(pairs)
    except TypeError:
        raise LiteralError("a dict key that cannot be hashed") from None


def _hashed(
    kind: type[set[Value]] | type[frozenset[Value]], items: list[Value]
) -> set[Value] | frozenset[Value]:
    try:
        return kind(items)
    except TypeError:
        raise LiteralError("a set member that cannot be hashed") from None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LiteralError("a string with half of a surrogate pair") from None
    return text


def _refuse_foreign(value: object, depth: int) -> None:
    """By exact type: a subclass would come back as something else."""
    if depth > DEPTH_MAX:
        raise LiteralError(f"nested deeper than {DEPTH_MAX}")
    if type(value) not in _TYPES:
        raise LiteralError(f"holds a {type(value).__name__}, which is not one of the plain values")
    if isinstance(value, str):
        _encodable(value)
    elif isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        raise LiteralError(f"an integer of more than {_INT_BITS_MAX} bits")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _refuse_foreign(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_foreign(key, depth + 1)
            _refuse_foreign(item, depth + 1)
