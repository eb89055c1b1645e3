"""Static checks as a measure: a task and a submission in, components out. Nothing of it is run."""

import hashlib
from collections import OrderedDict
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import structlog

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import Submission, Task
from tiltyard.core.verdict import Component
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter
from tiltyard.verify.found import Found
from tiltyard.verify.room import Room
from tiltyard.verify.static.components import components_of, unmeasured
from tiltyard.verify.static.reading import TYPES, Failed, Result, SourceReader
from tiltyard.verify.static.sources import PYTHON, Sources, sources_of

PYTHON_TOOLS = ("syntax", "size", "dynamic_code", "complexity", "security", "style")
OTHER_TOOLS = ("syntax", "size", "complexity")
REFERENCES_MAX = 1_000
TRIES = 2
"""A gap costs the whole group a component, so a lost sandbox is tried once more in a new one."""

_TOOLS = ("bandit", "lizard", "mypy", "radon", "ruff")

_log = structlog.get_logger(__name__)


@cache
def tool_versions() -> str:
    """The tools that shares depend on, with their versions, for a verdict's provenance."""
    found = []
    for name in _TOOLS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


class StaticChecks(Room):
    """Measures what sources show. Use with `async with`; safe to call concurrently."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int = 2
    ) -> None:
        """`spec` is what the tools run under; `cells_max` bounds their sandboxes."""
        self._reader = SourceReader(
            provider, interpreter=interpreter, spec=spec, cells_max=cells_max
        )
        self._references: OrderedDict[str, dict[str, Result]] = OrderedDict()
        super().__init__(self._reader)

    async def measure(
        self, task: Task, submission: Submission, found: Found
    ) -> tuple[Component, ...]:
        """The components of a submission; none when the task asks for none.

        A fault of ours gives components with `Gap.INFRA`; only cancelling raises.
        """
        if not task.checks.static or found.problem:
            return ()
        both = sources_of(task, submission)
        if both is None:
            return ()
        own, reference = both
        tools = PYTHON_TOOLS if own.suffix == PYTHON else OTHER_TOOLS
        if task.checks.types and own.suffix == PYTHON:
            tools = (*tools, TYPES)
        lost = ""
        for _ in range(TRIES):
            try:
                allowed = await self._reference(reference, tools)
                return components_of(await self._reader.read(own, tools), allowed)
            except SandboxError as error:
                _log.info("static_checks_lost", task_id=task.id, error=str(error))
                lost = str(error)
        return unmeasured(tools, f"a sandbox was lost: {lost}")

    async def _reference(self, sources: Sources, tools: tuple[str, ...]) -> dict[str, Result]:
        """What the tools say of a reference: remembered, unless a tool gave no answer."""
        digest = hashlib.sha256(repr((tools, sources.suffix)).encode())
        for path, text in sorted(sources.files.items()):
            digest.update(repr((path, len(text))).encode() + text)
        key = digest.hexdigest()
        known = self._references.get(key)
        if known is not None:
            self._references.move_to_end(key)
            return known
        said = await self._reader.read(sources, tools)
        if not any(isinstance(each, Failed) for each in said.values()):
            self._references[key] = said
            while len(self._references) > REFERENCES_MAX:
                self._references.popitem(last=False)
        return said
