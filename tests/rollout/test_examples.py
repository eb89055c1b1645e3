"""The visible examples as text and as a program for the agent's own sandbox."""

import math

import pytest

from tiltyard.core.task import CallCase, CallSuite, MethodCall, Split
from tiltyard.rollout.examples import EXAMPLES_FILE, examples_program, examples_text
from tiltyard.tasks.repair import TRAINED_FAMILIES, UNSEEN_FAMILIES, make_task
from tiltyard.wiring import Yard


def test_examples_read_as_python() -> None:
    suite = CallSuite(
        cases=(
            CallCase(id="a", target="f", args=([1, (2,)], {"k": {3}}), expected=-math.inf),
            CallCase(id="b", target="g", args=("x",), raises="ValueError"),
            CallCase(
                id="c", target="Box", then=(MethodCall(name="put", args=(1,)),), expected=[None]
            ),
        )
    )

    assert examples_text(suite).splitlines() == [
        "f([1, (2,)], {'k': {3}}) == -inf",
        "g('x') raises ValueError",
        "Box() then put(1) == [None]",
    ]


@pytest.mark.sandbox
@pytest.mark.slow
async def test_every_reference_passes_its_own_examples(yard: Yard) -> None:
    failed = []
    async with yard.pool.sandbox(yard.spec) as sandbox:
        for place, family in enumerate((*TRAINED_FAMILIES, *UNSEEN_FAMILIES)):
            task = make_task(place, split=Split.HELDOUT, families=(family,))
            await sandbox.write(f"{task.module}.py", task.reference)
            await sandbox.write(EXAMPLES_FILE, examples_program(task))
            done = await sandbox.run(["python", "-B", EXAMPLES_FILE], timeout_s=30)
            if not done.ok:
                failed.append((task.id, done.stdout.text, done.stderr.text))

    assert not failed
