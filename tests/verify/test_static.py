"""Static checks on real tools in real sandboxes: what they find, and what does not fool them."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tiltyard.core.checks import Checks
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.task import CallSuite, ProgramCase, ProgramSuite, Submission, Task
from tiltyard.core.verdict import Component, Gap, Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.verify.found import Found
from tiltyard.verify.reward import reward_of
from tiltyard.verify.static.checks import StaticChecks
from tiltyard.verify.verifier import Verifier
from tiltyard.verify.weights_file import weights_of
from verify.tasks import CALLS, REFERENCE, SPEC, answer, task

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

STATIC = Checks(static=True)
NAMES = {"syntax", "style", "complexity", "security", "size", "dynamic_code", "suppressions"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def static(provider: NativeProvider) -> AsyncIterator[StaticChecks]:
    async with StaticChecks(
        provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1
    ) as opened:
        yield opened


def checked(reference: str = REFERENCE, *, types: bool = False) -> Task:
    return replace(task(CALLS, reference=reference), checks=Checks(static=True, types=types))


async def measured(
    static: StaticChecks, source: str | bytes, *, of: Task | None = None, **files: str
) -> dict[str, Component]:
    found = await static.measure(of or checked(), answer(source, **files), Found())
    return {component.name: component for component in found}


def share(component: Component) -> float:
    assert component.normalised is not None, component
    return component.normalised


async def test_the_reference_is_worth_everything(static: StaticChecks) -> None:
    found = await measured(static, REFERENCE)
    assert set(found) == NAMES
    assert {name: share(each) for name, each in found.items()} == dict.fromkeys(NAMES, 1.0)
    assert all(each.raw == each.reference for each in found.values())


async def test_findings_lower_a_share_and_are_told_with_their_place(static: StaticChecks) -> None:
    source = f"import os\nimport subprocess\n{REFERENCE}\nsubprocess.call('ls', shell=True)\n"
    found = await measured(static, source)
    unused = [each for each in found["style"].evidence if each.code == "F401"]
    assert [(each.path, each.line) for each in unused] == [("solution.py", 1)]
    assert 0 <= share(found["style"]) < 1
    assert {"B404", "B602"} <= {each.code for each in found["security"].evidence}
    assert share(found["security"]) < 1


async def test_comments_that_ask_to_look_away_hide_nothing_and_cost(static: StaticChecks) -> None:
    bare = f"import os\nimport subprocess\n{REFERENCE}\nsubprocess.call('ls', shell=True)\n"
    quiet = bare.replace("import os\n", "import os  # noqa: F401\n")
    quiet = quiet.replace("shell=True)", "shell=True)  # nosec")
    quiet = f"# ruff: noqa\n# ruff: disable[F401]\n# type: ignore\n{quiet}"
    open_, hidden = await measured(static, bare), await measured(static, quiet)
    assert open_["suppressions"].raw == 0
    assert hidden["suppressions"].raw == 5
    assert open_["style"].raw is not None
    assert hidden["style"].raw == open_["style"].raw + 5
    assert share(hidden["style"]) <= share(open_["style"])
    assert hidden["security"].raw == open_["security"].raw
    assert share(hidden["suppressions"]) == 0


async def test_shipped_configuration_has_no_effect(static: StaticChecks) -> None:
    source = f"import os\n{REFERENCE}"
    alone = await measured(static, source)
    shipped = await measured(
        static,
        source,
        ruff__toml="lint.select = []\n",
        pyproject__toml="[tool.ruff]\nlint.select = []\n[tool.bandit]\nskips = ['B404']\n",
        __bandit="[bandit]\nskips: B404\n",
        mypy__ini="[mypy]\nignore_errors = True\n",
        other__py="import os, sys\n",
    )
    assert shipped == alone


async def test_an_empty_file_looks_perfect_and_is_paid_nothing(
    static: StaticChecks, provider: NativeProvider
) -> None:
    found = await measured(static, "# nothing\n")
    assert share(found["style"]) == 1
    styled = weights_of(
        {"tests": {"weight": 0.5}, "components": {"style": {"weight": 0.5}}}, where="here"
    )
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC) as verifier:
        for source, value in (("# nothing\n", 0.0), (REFERENCE, 1.0)):
            verdict = await verifier.verify(checked(), answer(source))
            assert verdict.outcome is Outcome.GRADED
            assert {each.name for each in verdict.components} == NAMES
            assert "ruff 0." in verdict.provenance["static_tools"]
            assert reward_of(verdict, styled).value == value


BRANCHES = "\n".join(f"    if x == {n}:\n        return {n}" for n in range(30))
ONE = f"def add(x, y):\n{BRANCHES}\n    return x + y\n"
SPLIT = "def add(x, y):\n    return f0(x) or x + y\n" + "\n".join(
    f"def f{n}(x):\n    if x == {n}:\n        return {n}\n    return f{n + 1}(x)\n"
    for n in range(30)
)
NESTED = "def add(x, y):\n    class In:\n        def f(self, x, y):\n" + "\n".join(
    f"            {line}" for line in (*BRANCHES.splitlines(), "    return x + y")
)


async def test_splitting_or_nesting_functions_hides_no_complexity(static: StaticChecks) -> None:
    nested = f"{NESTED}\n    return In().f(x, y)\n"
    module = "def add(x, y):\n    return x + y\n"
    module += "\n".join(f"if add({n}, 0):\n    print({n})" for n in range(30))
    one, *others = [
        (await measured(static, source))["complexity"] for source in (ONE, SPLIT, nested, module)
    ]
    assert one.raw == 31
    assert share(one) == 0
    for other in others:
        assert other.raw is not None
        assert other.raw >= 30
        assert share(other) == 0
    assert any("add has 31" in each.message and each.value == 31 for each in one.evidence)


@pytest.mark.parametrize(
    "hidden",
    [
        "import base64\nexec(base64.b64decode('cGFzcw=='))\n",
        "e = eval\n",
        "import builtins\nrun = getattr(builtins, 'ex' + 'ec')\n",
        "run = print.__self__.__dict__['ev' 'al']\nimport marshal\n",
        "f = (lambda: 0).__globals__\n",
        "import sys\nrun = sys.modules['builtins']\n",
        "import types\nmake = types.FunctionType\n",
        "import typing\n\n@typing.no_type_check\ndef f(x: int) -> str:\n    return x\n",
        "__import__('os')\n",
        "from importlib import import_module\n",
        "BLOB = '" + "QUJD" * 100 + "'\n",
        "TABLE = [" + ", ".join(map(str, range(300))) + "]\n",
        "PARTS = [" + ", ".join(repr("ab cd " * 20) for _ in range(50)) + "]\n",
    ],
)
async def test_code_that_hides_is_flagged(static: StaticChecks, hidden: str) -> None:
    component = (await measured(static, f"{hidden}{REFERENCE}"))["dynamic_code"]
    assert component.raw
    assert share(component) == 0
    assert component.evidence
    assert all(each.line or each.code == "literals" for each in component.evidence)


async def test_what_the_reference_needs_a_solution_may_use(static: StaticChecks) -> None:
    reference = f"import base64\n{REFERENCE}"
    found = await measured(static, f"import base64 as b\n{REFERENCE}", of=checked(reference))
    assert share(found["dynamic_code"]) == 1


async def test_a_long_way_round_costs_size(static: StaticChecks) -> None:
    found = await measured(static, REFERENCE + "\n".join(f"x{n} = {n} + 1" for n in range(300)))
    assert share(found["size"]) == 0
    padded = await measured(static, REFERENCE + "\n# a comment\n" * 300)
    assert share(padded["size"]) == 1


HOSTILE = {
    "no Python": "def f(:\n",
    "null bytes": b"\x00",
    "no such encoding": b"# coding: latin-9000\n",
    "no UTF-8": b"x = '\xff'\n",
    "nested": "x = " + "(" * 5_000 + ")" * 5_000,
    "deep": "x = " + "-" * 90_000 + "1\n",
    "chain": "x = 1" + " + 1" * 60_000 + "\n",
    "attributes": "x" + ".a" * 60_000 + "\n",
    "huge": b"x = 1\n" * 170_000,
    "too large": b"#" * (4 * 1024 * 1024),
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_source_blames_only_itself(
    static: StaticChecks, source: str | bytes
) -> None:
    found = await measured(static, source)
    assert set(found) == NAMES
    assert not [each for each in found.values() if each.gap in {Gap.INFRA, Gap.UNRESOLVED}]
    assert all(each.evidence for each in found.values() if each.gap)
    if found["syntax"].raw == 0:
        assert {each.gap for name, each in found.items() if name != "syntax"} == {Gap.NOT_POSSIBLE}
    # The same cells go on serving others.
    assert share((await measured(static, REFERENCE))["style"]) == 1


async def test_a_reference_that_no_tool_can_read_is_our_fault(static: StaticChecks) -> None:
    found = await measured(static, REFERENCE, of=checked("def f(:\n"))
    assert {each.gap for each in found.values()} == {Gap.INFRA}


async def test_nothing_is_run(static: StaticChecks) -> None:
    """If it were, no tool would ever answer."""
    found = await measured(static, f"{REFERENCE}\nwhile True:\n    pass\n")
    assert found["syntax"].raw == 1
    assert not [each for each in found.values() if each.gap]


async def test_types_are_checked_where_a_task_asks(static: StaticChecks) -> None:
    of = checked(types=True)
    right = "def twice(x: int) -> int:\n    return 2 * x\n"
    wrong = (
        "# mypy: ignore-errors\ndef twice(x: int) -> str:  # type: ignore\n"
        "    return 2 * x  # type: ignore[return-value]\n"
    )
    assert share((await measured(static, REFERENCE + right, of=of))["types"]) == 1
    found = (await measured(static, REFERENCE + wrong, of=of))["types"]
    assert found.raw == 1
    assert [each.code for each in found.evidence] == ["return-value"]
    assert share(found) < 1


def program(source: str, reference: str) -> Task:
    suite = ProgramSuite(source=source, run=("./main",), cases=(ProgramCase(id="one"),))
    return replace(task(reference=reference), hidden=suite, checks=STATIC)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
async def test_c_is_read_by_its_compiler(static: StaticChecks) -> None:
    reference = '#include <stdio.h>\nint main(void) { puts("a"); return 0; }\n'
    of = program("main.c", reference)

    async def found(source: str) -> dict[str, Component]:
        submission = Submission(files={"main.c": source.encode(), "main.h": b"#error\n"})
        return {each.name: each for each in await static.measure(of, submission, Found())}

    right = await found(reference)
    assert {name: share(each) for name, each in right.items()} == dict.fromkeys(
        ("syntax", "complexity", "size", "suppressions"), 1.0
    )
    wrong = await found("int main(void) {\n return 0\n}\n")
    assert wrong["syntax"].raw == 0
    assert wrong["syntax"].evidence[0].line == 2
    assert wrong["size"].gap is Gap.NOT_POSSIBLE
    branches = "".join(f"if (n == {n}) return {n}; " for n in range(20))
    busy = await found(
        f"int f(int n) {{ {branches} return 0; }}\nint main(void) {{ return f(1); }}\n"
    )
    assert share(busy["complexity"]) == 0


async def test_a_language_without_a_compiler_here_is_a_gap_of_ours(static: StaticChecks) -> None:
    text = "function f(x)\n  if x then return 1 end\n  return 2\nend\n"
    submission = Submission(files={"main.lua": text.encode()})
    found = await static.measure(program("main.lua", text), submission, Found())
    gaps = {each.name: each.gap for each in found}
    assert gaps == {"syntax": Gap.INFRA, "complexity": None, "size": None, "suppressions": None}


async def test_nothing_is_measured_unasked_or_without_a_source(static: StaticChecks) -> None:
    unasked = task(CallSuite(cases=()))
    assert await static.measure(unasked, answer(REFERENCE), Found()) == ()
    assert await static.measure(checked(), answer(REFERENCE), Found(problem="a link")) == ()


class Refusing:
    """A provider that cannot make the first `times` sandboxes."""

    def __init__(self, provider: NativeProvider, times: int) -> None:
        self.provider = provider
        self.left = times

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        if self.left:
            self.left -= 1
            raise SandboxRefused("no sandbox today")
        return await self.provider.create(spec, for_zygotes=for_zygotes)


async def refused(provider: NativeProvider, times: int) -> dict[str, Component]:
    async with StaticChecks(
        Refusing(provider, times),  # type: ignore[arg-type] - all of a provider that is used
        interpreter=provider.interpreter,
        spec=SPEC,
    ) as checks:
        found = await checks.measure(checked(), answer(REFERENCE), Found())
    return {component.name: component for component in found}


async def test_a_lost_sandbox_is_tried_again(provider: NativeProvider) -> None:
    found = await refused(provider, 1)
    assert {name: share(each) for name, each in found.items()} == dict.fromkeys(NAMES, 1.0)


async def test_sandboxes_lost_again_are_a_gap_and_no_lost_verdict(
    provider: NativeProvider,
) -> None:
    found = await refused(provider, 2)
    assert set(found) == NAMES
    assert {each.gap for each in found.values()} == {Gap.INFRA}
    assert all("no sandbox today" in each.evidence[0].message for each in found.values())
