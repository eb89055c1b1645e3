"""Each dynamic measure once, in real sandboxes, for `make check`: that it tells the plainest of
differences. How well it tells is in the files of each."""

import pytest

from tiltyard.core.checks import Checks, Growth, Inputs, Leaks
from tiltyard.core.verdict import Component
from tiltyard.verify.verifier import Verifier
from verify.measured import components, measured_task, verdict_on

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("billed"),
]

INPUTS = Inputs(source="def generate(rng, size):\n    return (size,)\n", target="f")
SAME = "def f(n):\n    return n\n"
WORKS = "def f(n):\n    sum(range(1_000_000))\n    block = bytearray(16 << 20)\n    return n\n"
LINEAR = "def f(n):\n    for _ in range(300 * n):\n        pass\n    return n\n"
CUBIC = "def f(n):\n    for _ in range(n**3):\n        pass\n    return n\n"
OPENS = (
    "held = []\n\n\ndef f(n):\n    held.extend(open('/dev/null') for _ in range(4))\n    return n\n"
)


async def measured(
    verifier: Verifier, source: str, checks: Checks, *, reference: str = SAME
) -> dict[str, Component]:
    task = measured_task(reference, checks, cases=(((7,), 7),))
    return components(await verdict_on(verifier, task, source))


async def test_what_works_more_costs_more(verifier: Verifier) -> None:
    found = await measured(verifier, WORKS, Checks(cost=True))
    for name in ("cost_cpu", "cost_memory"):
        each = found[name]
        assert (each.raw or 0.0) > 2 * (each.reference or 0.0), (name, each.evidence)
        assert each.normalised is not None
        assert each.normalised < 0.5, (name, each.evidence)


async def test_what_is_steeper_is_told(verifier: Verifier) -> None:
    growth = Growth(size_min=8, size_max=512, seconds_max=0.3)
    checks = Checks(inputs=INPUTS, growth=growth)
    found = await measured(verifier, CUBIC, checks, reference=LINEAR)
    assert found["growth"].normalised is not None, found["growth"].evidence
    assert found["growth"].normalised < 1.0, found["growth"].evidence


@pytest.mark.parametrize(("source", "share"), [(SAME, 1.0), (OPENS, 0.0)])
async def test_what_is_held_is_told(verifier: Verifier, source: str, share: float) -> None:
    found = await measured(verifier, source, Checks(inputs=INPUTS, leaks=Leaks()))
    assert found["leaks"].normalised == share, found["leaks"].evidence
    assert found["leaks"].curves
