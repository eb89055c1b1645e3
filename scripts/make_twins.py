"""Makes `tiltyard.sync.twins` from the asynchronous classes, so that nothing is written twice.

    python scripts/make_twins.py            write the files
    python scripts/make_twins.py --check    write nothing; exit with 1 when they would differ

Begins at the classes of `twin_source.ROOTS` and goes on with every asynchronous class that one of
their public methods returns. Signatures and docstrings come from the source's own text; what they
say decides how arguments and results are translated. Anything that this program does not
understand is an error here, never a method that is missing there.
"""

import ast
import difflib
import subprocess
import sys
import textwrap
import types
import typing
from pathlib import Path

from twin_source import (
    ROOTS,
    Definition,
    Module,
    NotUnderstood,
    all_twinned,
    asynchronous_in,
    attributes,
    is_asynchronous,
    plain_function,
    public_methods,
)

TWINS = Path(__file__).resolve().parents[1] / "src/tiltyard/sync/twins"
FIRST_PARTY = ("--config", "lint.isort.known-first-party=['tiltyard']")
"""Else a module that is not written yet would be taken for somebody else's."""
ROOM = '''\
"""The sandbox room without `await`: for scripts, notebooks and all that has no event loop.

Its classes are twins of the asynchronous ones: the same names, arguments, results and exceptions.
`scripts/make_twins.py` makes them, and this file. Their coroutines run on one event loop in a
thread of its own, which lives while anything is open; they work in any thread, and inside a running
loop. A room of its own above the composition root: it decides nothing, and nothing below knows it.
"""

from tiltyard.sync.portal import WrongProcess, WrongThread
from tiltyard.sync.twin import OpenTwin, Twin
'''
EXPORTED = ("OpenTwin", "Twin", "WrongProcess", "WrongThread")
ITERATORS = {"AsyncIterator", "AsyncGenerator"}


class Twin:
    """Writes the twin of one class."""

    def __init__(self, class_: type, twinned: list[type]) -> None:
        self.class_ = class_
        self.name = class_.__name__
        self.twinned = twinned
        self.module = Module(class_.__module__)
        self.imports: set[str] = set()

    def source(self) -> str:
        definition = self.module.definition(self.class_)
        opened = hasattr(self.class_, "__aenter__")
        base = "OpenTwin" if opened else "Twin"
        self.imports.add(f"from tiltyard.sync.twin import {base}")
        self._import_original(self.name)
        parts = [f"class {self.name}({base}[Async{self.name}]):", self._docstring(definition)]
        if self.class_ in ROOTS:
            parts.append(self._constructor(definition))
        if "__anext__" in vars(self.class_):
            parts.append(self._iteration())
        parts += [
            self._attribute(name, hint, doc)
            for name, hint, doc in attributes(self.module, definition)
        ]
        parts += [self._method(method) for method in public_methods(definition)]
        head = (
            f'"""The synchronous twin of `{self.module.name}.{self.name}`.\n\n'
            "Made by scripts/make_twins.py from that class: do not edit. Where its words speak of\n"
            'cancelling, here that is Ctrl-C, or any exception that interrupts the caller.\n"""\n'
        )
        return formatted("\n".join([head, *sorted(self.imports), "", "", *parts]), self.name)

    def _import_original(self, name: str) -> None:
        line = self.module.import_of(name)
        if line is None:
            raise NotUnderstood(f"{self.name}: where does {name} come from?")
        self.imports.add(f"{line.partition(' as ')[0]} as Async{name}")

    def _docstring(self, node: ast.ClassDef | Definition) -> str:
        text = ast.get_docstring(node)
        return textwrap.indent(quoted(text), "    ") + "\n" if text else ""

    def _constructor(self, definition: ast.ClassDef) -> str:
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                call = f"Async{self.name}({self._passed(node)})"
                text = f"def __init__({self._parameters(node)}) -> None:\n{self._docstring(node)}"
                return textwrap.indent(f"{text}    super().__init__({call})\n", "    ")
        raise NotUnderstood(f"{self.name} has no __init__ of its own")

    def _iteration(self) -> str:
        hints = typing.get_type_hints(plain_function(self.class_, "__anext__"))
        if asynchronous_in(hints["return"]):
            raise NotUnderstood(f"{self.name}: an iteration over twins")
        node = next(
            each
            for each in self.module.definition(self.class_).body
            if isinstance(each, Definition) and each.name == "__anext__"
        )
        item = self._annotation(typing.cast("ast.expr", node.returns))
        self.imports.add("from typing import Self")
        text = f"""
            def __iter__(self) -> Self:
                return self

            def __next__(self) -> {item}:
                try:
                    return self._call(self._real.__anext__)
                except StopAsyncIteration:
                    raise StopIteration from None
            """
        return textwrap.indent(textwrap.dedent(text), "    ")

    def _attribute(self, name: str, hint: ast.expr, doc: str) -> str:
        text = f"@property\ndef {name}(self) -> {self._annotation(hint)}:\n"
        if doc:
            text += textwrap.indent(quoted(doc), "    ") + "\n"
        value = self._wrapped(f"self._real.{name}", self.module.meant(hint), "self._portal")
        return textwrap.indent(f"{text}    return {value}\n", "    ")

    def _method(self, node: Definition) -> str:
        decorators = {ast.unparse(each) for each in node.decorator_list}
        hints = typing.get_type_hints(plain_function(self.class_, node.name))
        returned = typing.cast("ast.expr", node.returns)
        if unknown := decorators - {"property", "asynccontextmanager"}:
            raise NotUnderstood(f"{self.name}.{node.name} is decorated with {unknown}")
        result = self._annotation(returned)
        expression = f"self._real.{node.name}"
        if "property" not in decorators:
            expression += f"({self._passed(node)})"
        if "asynccontextmanager" in decorators or self._iterates(returned):
            item = self._annotation(typing.cast("ast.Subscript", returned).slice)
            around = "asynccontextmanager" in decorators
            kind = "AbstractContextManager" if around else "Iterator"
            self.imports.add(f"from {'contextlib' if around else 'collections.abc'} import {kind}")
            result = f"{kind}[{item}]"
            wrap = self._wrap(typing.get_args(hints["return"])[0])
            made = deferred(expression) if around else expression
            body = f"return self.{'_around' if around else '_each'}({made}, {wrap})"
        else:
            verb = "_call" if isinstance(node, ast.AsyncFunctionDef) else "_read"
            got = f"self.{verb}({deferred(expression)})"
            if asynchronous_in(hints["return"]):
                body = f"it = {got}\nreturn {self._wrapped('it', hints['return'], 'self._portal')}"
            else:
                body = got if hints["return"] is types.NoneType else f"return {got}"
        text = "@property\n" if "property" in decorators else ""
        text += f"def {node.name}({self._parameters(node)}) -> {result}:\n"
        text += self._docstring(node) + textwrap.indent(body, "    ") + "\n"
        return textwrap.indent(text, "    ")

    def _iterates(self, returned: ast.expr) -> bool:
        return isinstance(returned, ast.Subscript) and ast.unparse(returned.value) in ITERATORS

    def _parameters(self, node: Definition) -> str:
        """The signature's text, with its types and defaults."""
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
            raise NotUnderstood(f"{self.name}.{node.name}: only plain parameters")
        bare = len(arguments.args) - len(arguments.defaults)
        texts = [
            self._parameter(each, arguments.defaults[at - bare] if at >= bare else None)
            for at, each in enumerate(arguments.args)
        ]
        if arguments.kwonlyargs:
            texts.append("*")
        texts += [
            self._parameter(each, default)
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
        return ", ".join(texts)

    def _parameter(self, node: ast.arg, default: ast.expr | None) -> str:
        text = node.arg
        if node.annotation is not None:
            text += f": {self._annotation(node.annotation, parameter=True)}"
        if default is not None:
            for each in ast.walk(default):
                if isinstance(each, ast.Name):
                    self._import(each.id)
            # As it is written there: 0o644 is not to become 420.
            text += f" = {ast.get_source_segment(self.module.text, default)}"
        return text

    def _passed(self, node: Definition) -> str:
        """The arguments as they are handed on."""
        function = plain_function(self.class_, node.name)
        hints = typing.get_type_hints(function)
        texts = [self._unwrapped(each.arg, hints.get(each.arg)) for each in node.args.args[1:]]
        texts += [
            f"{each.arg}={self._unwrapped(each.arg, hints.get(each.arg))}"
            for each in node.args.kwonlyargs
        ]
        return ", ".join(texts)

    def _annotation(self, node: ast.expr, *, parameter: bool = False) -> str:
        """A type's text, in which a twin has its original's name."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        replaced: dict[str, str] = {}
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                found = self.module.namespace.get(each.id)
                if found in self.twinned:
                    if found is not self.class_:
                        where = f"tiltyard.sync.twins.{file_of(found)}"
                        self.imports.add(f"from {where} import {each.id}")
                elif parameter and is_asynchronous(found):
                    self._import_original(each.id)
                    self.imports.add("from tiltyard.sync.twin import Twin")
                    replaced[each.id] = f"Twin[Async{each.id}]"
                elif each.id not in ITERATORS:
                    self._import(each.id)
        text = ast.unparse(node)
        for name, twin in replaced.items():
            text = text.replace(name, twin)
        return text

    def _import(self, name: str) -> None:
        if line := self.module.import_of(name):
            self.imports.add(line)

    def _wrap(self, hint: object) -> str:
        """The function that makes twins of a result."""
        if hint in self.twinned:
            return typing.cast("type", hint).__name__
        if asynchronous_in(hint):
            return f"lambda it, portal: {self._wrapped('it', hint, 'portal')}"
        self.imports.add("from tiltyard.sync.twin import as_it_is")
        return "as_it_is"

    def _wrapped(self, value: str, hint: object, portal: str) -> str:
        """The expression that makes twins of a result."""
        inner = asynchronous_in(hint)
        if not inner:
            return value
        (class_,) = inner
        one = f"{class_.__name__}({{}}, {portal})"
        arguments = typing.get_args(hint)
        if hint is class_:
            return one.format(value)
        if typing.get_origin(hint) is tuple and arguments == (class_, ...):
            return f"tuple({one.format('each')} for each in {value})"
        if typing.get_origin(hint) is list:
            return f"[{one.format('each')} for each in {value}]"
        if set(arguments) == {class_, types.NoneType}:
            return f"None if {value} is None else {one.format(value)}"
        raise NotUnderstood(f"{self.name}: a result of {hint}")

    def _unwrapped(self, name: str, hint: object) -> str:
        """The expression that takes the originals out of an argument."""
        inner = asynchronous_in(hint)
        arguments = typing.get_args(hint)
        if not inner:
            if "Async" in str(hint) or "Awaitable" in str(hint) or "Coroutine" in str(hint):
                raise NotUnderstood(f"{self.name}: an argument of {hint}")
            return name
        (class_,) = inner
        if hint is class_:
            return f"{name}._real"
        if types.NoneType in arguments and len(arguments) == 2:
            return f"None if {name} is None else {name}._real"
        if len(arguments) == 1:
            return f"[each._real for each in {name}]"
        raise NotUnderstood(f"{self.name}: an argument of {hint}")


def deferred(expression: str) -> str:
    """What is called on the loop."""
    return expression[:-2] if expression.endswith("()") else f"lambda: {expression}"


def quoted(text: str) -> str:
    """A docstring in the words of the synchronous world."""
    for before, after in (("async with", "with"), ("async for", "for"), ("await ", "")):
        text = text.replace(before, after)
    text = text.replace("\\", "\\\\").replace('"""', '\\"""')
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def file_of(class_: type) -> str:
    return class_.__name__.lower()


def formatted(source: str, name: str) -> str:
    """As the house writes it. Of an unused or repeated import nothing is left."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (
        [*ruff, "check", "--fix-only", "--quiet", "--select", "I,F401", *FIRST_PARTY, "-"],
        [*ruff, "format", "-"],
    ):
        done = subprocess.run(
            [*command, "--stdin-filename", str(TWINS / f"{name.lower() or '__init__'}.py")],
            input=source,
            capture_output=True,
            text=True,
            check=False,
            cwd=TWINS.parents[3],
        )
        if done.returncode:
            raise NotUnderstood(f"{name}: {done.stderr}\n{source}")
        source = done.stdout
    return source


def made() -> dict[Path, str]:
    """Every file of the package, by path."""
    twinned = all_twinned()
    files = {TWINS / f"{file_of(each)}.py": Twin(each, twinned).source() for each in twinned}
    names = {each.__name__: file_of(each) for each in twinned}
    room = ROOM + "".join(
        f"from tiltyard.sync.twins.{file} import {name}\n" for name, file in names.items()
    )
    exported = ", ".join(f'"{name}"' for name in sorted((*names, *EXPORTED)))
    files[TWINS.parent / "__init__.py"] = formatted(f"{room}\n__all__ = [{exported}]\n", "")
    files[TWINS / "__init__.py"] = (
        '"""The twins, a file for each class. Made by scripts/make_twins.py: do not edit."""\n'
    )
    return files


def main() -> int:
    files = made()
    there = {*TWINS.glob("*.py"), TWINS.parent / "__init__.py"}
    stale = 0
    for path in sorted(there | files.keys()):
        before = path.read_text(encoding="utf-8") if path in there else ""
        after = files.get(path, "")
        if before == after:
            continue
        stale = 1
        if "--check" in sys.argv:
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
            print(f"{path} is not what its class demands:", *lines, sep="\n")
        elif after:
            path.parent.mkdir(exist_ok=True)
            path.write_text(after, encoding="utf-8")
        else:
            path.unlink()
    if "--check" in sys.argv and stale:
        print("run: python scripts/make_twins.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
