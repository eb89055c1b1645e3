"""Every single-line fault that a source can be given.

A fault is made on the syntax tree's positions but written into the text, so that exactly one
line changes and everything else, layout included, stays as it was: replacing that line by the
old one restores the source. Whether a fault changes what the code does is not known here; the
generator runs it and drops those that do not.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tiltyard.tasks.repair.edits import Edit, FaultKind, Scope, expression_edits
from tiltyard.tasks.repair.statements import statement_edits
from tiltyard.tasks.repair.template import LINE_COLUMNS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of a source, replaced."""

    kind: FaultKind
    line_number: int
    """1-based."""
    line: str
    """The faulty line with its indentation, without a line end."""

    def apply(self, source: str) -> str:
        """`source` with the fault."""
        lines = source.split("\n")
        lines[self.line_number - 1] = self.line
        return "\n".join(lines)


@lru_cache(maxsize=2048)
def faults_of(source: str) -> tuple[Fault, ...]:
    """All faults of a source, in a fixed order, each text once, under the first kind that makes it.

    A few may not compile; see `Program`.
    """
    lines = source.split("\n")
    found: dict[tuple[int, str], Fault] = {}
    for edit in _edits(source):
        line = edit.line_of(lines[edit.line_number - 1])
        where = (edit.line_number, line)
        if line == lines[edit.line_number - 1] or len(line) > LINE_COLUMNS_MAX or where in found:
            continue
        found[where] = Fault(kind=edit.kind, line_number=edit.line_number, line=line)
    return tuple(found.values())


def _edits(source: str) -> Iterator[Edit]:
    tree = ast.parse(source)
    lines = tuple(source.split("\n"))
    for top in tree.body:
        members = top.body if isinstance(top, ast.ClassDef) else [top]
        attributes = _attributes(top)
        for member in members:
            if not isinstance(member, ast.FunctionDef):
                continue
            scope = Scope(
                parameters=tuple(arg.arg for arg in member.args.args if arg.arg != "self"),
                names=_names(member),
                attributes=attributes,
            )
            yield from statement_edits(member, scope, lines)
            for node in ast.walk(member):
                yield from expression_edits(node, scope, source)


def _names(member: ast.FunctionDef) -> tuple[str, ...]:
    """Parameters and assigned names, in order of appearance, without `self`."""
    names = [arg.arg for arg in member.args.args if arg.arg != "self"]
    stored = [
        node
        for node in ast.walk(member)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    stored.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys([*names, *(node.id for node in stored)]))


def _attributes(top: ast.stmt) -> tuple[str, ...]:
    """Attributes that a class assigns on `self`, in order of appearance."""
    return tuple(
        dict.fromkeys(
            node.attr
            for node in ast.walk(top)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )
    )
