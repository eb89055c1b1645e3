"""What `make_twins.py` reads: the asynchronous classes, their source, and where names come from."""

import ast
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterator

from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.setups import SetUps

ROOTS: tuple[type, ...] = (NativeProvider, Pool, SetUps)
"""Made by their users; every other twin comes out of a method."""
LEFT_OUT = {
    # Spoken between rooms of Tiltyard, in frames and raw executions.
    "Sandbox.programs",
    # For a snapshot that is being made.
    "Files.still",
    # The writing end.
    "Chunks.begin_with",
    "Chunks.feed",
    "Chunks.close",
    # Of no use outside the event loop: `with` does it.
    "NativeProvider.aclose",
    # Kept interpreters have a protocol of their own, which only verification speaks.
    "NativeProvider.interpreter",
}
SAID = {"Process.argv": "tuple[str, ...]"}
"""Types of attributes that their source leaves to be inferred; mypy holds them to it."""
GUARDED = "tiltyard.sandbox.native"
"""Only the composition root may import from it, so its names are imported from there."""
COMPOSITION_ROOT = "tiltyard.wiring"
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class NotUnderstood(Exception):
    """The source has a form that cannot be translated yet: extend this program or the source."""


class Module:
    """A source module: its tree, and where each of its names comes from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespace = vars(importlib.import_module(name))
        self.text = inspect.getsource(sys.modules[name])
        self.tree = ast.parse(self.text)
        self._imports: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = (node.module, alias.name)

    def import_of(self, name: str) -> str | None:
        """The line that imports a name; None for a builtin."""
        if name not in self.namespace:
            return None
        module, original = self._imports.get(name, (self.name, name))
        if module.startswith(GUARDED):
            module = COMPOSITION_ROOT
        return f"from {module} import {original}" + (f" as {name}" * (name != original))

    def meant(self, hint: ast.expr) -> object:
        """What an annotation of this module stands for."""
        holder = types.SimpleNamespace(__annotations__={"it": ast.unparse(hint)})
        return typing.get_type_hints(holder, self.namespace)["it"]

    def definition(self, class_: type) -> ast.ClassDef:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_.__name__:
                return node
        raise NotUnderstood(f"{class_} is not at the top of {self.name}")


def is_asynchronous(class_: object) -> bool:
    if not isinstance(class_, type) or not class_.__module__.startswith("tiltyard."):
        return False
    return any(
        inspect.iscoroutinefunction(inspect.unwrap(each))
        or inspect.isasyncgenfunction(inspect.unwrap(each))
        for name, each in vars(class_).items()
        if callable(each) and (not name.startswith("_") or name.startswith("__a"))
    )


def asynchronous_in(hint: object) -> set[type]:
    """The asynchronous classes that a type speaks of."""
    if is_asynchronous(hint):
        return {typing.cast("type", hint)}
    return {found for each in typing.get_args(hint) for found in asynchronous_in(each)}


def public_methods(definition: ast.ClassDef) -> Iterator[Definition]:
    for node in definition.body:
        public = isinstance(node, Definition) and not node.name.startswith("_")
        if public and f"{definition.name}.{node.name}" not in LEFT_OUT:
            yield node


def plain_function(class_: type, name: str) -> typing.Any:
    member = inspect.getattr_static(class_, name)
    return inspect.unwrap(member.fget if isinstance(member, property) else member)


def all_twinned() -> list[type]:
    """The roots, and what can be reached from them."""
    found = list(ROOTS)
    for class_ in found:  # it grows meanwhile
        module = Module(class_.__module__)
        definition = module.definition(class_)
        results: list[object] = [
            typing.get_type_hints(plain_function(class_, method.name)).get("return")
            for method in public_methods(definition)
        ]
        results += [module.meant(hint) for _, hint, _ in attributes(module, definition)]
        new = {each for result in results for each in asynchronous_in(result)} - set(found)
        found += sorted(new, key=lambda each: each.__name__)
    return found


def attributes(module: Module, definition: ast.ClassDef) -> Iterator[tuple[str, ast.expr, str]]:
    """What a class's `__init__` sets for everybody, with its type and its docstring."""
    for node in definition.body:
        if not (isinstance(node, ast.FunctionDef) and node.name == "__init__"):
            continue
        arguments = (*node.args.args, *node.args.kwonlyargs)
        parameters = {each.arg: each.annotation for each in arguments}
        for line, after in zip(node.body, [*node.body[1:], None], strict=True):
            match line:
                case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=hint):
                    pass
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                    hint = type_of(value, parameters)
                case _:
                    continue
            full = f"{definition.name}.{name}"
            if name.startswith("_") or full in LEFT_OUT:
                continue
            if full in SAID:
                hint = ast.parse(SAID[full], mode="eval").body
            if hint is None:
                raise NotUnderstood(f"{module.name}: annotate `self.{name}`, or say it in SAID")
            doc = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                doc = inspect.cleandoc(str(after.value.value))
            yield name, hint, doc


def type_of(value: ast.expr, parameters: dict[str, ast.expr | None]) -> ast.expr | None:
    """The type of what an attribute is set to, where that is plain; None where it is not."""
    match value:
        case ast.Name(id=name):
            return parameters.get(name)
        case ast.IfExp(body=body):
            return type_of(body, parameters)
        case ast.Compare():
            return ast.Name("bool")
        case ast.Constant(value=constant):
            return ast.Name(type(constant).__name__)
        case ast.Call(func=ast.Name(id="MappingProxyType" | "dict"), args=[inner]):
            return type_of(inner, parameters)  # it is a Mapping in any case
        case ast.Call(func=ast.Name(id=name)) if name[0].isupper():
            return ast.Name(name)
    return None
