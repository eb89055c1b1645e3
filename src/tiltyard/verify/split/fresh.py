"""New inputs for each verification: what the task's generator makes of a seed, with the reference's
answers as what is expected. A solution cannot have seen them, so remembering answers is no use."""

from itertools import cycle, islice

from tiltyard.core.checks import Inputs
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import CallCase, CallSuite, Compare, Task
from tiltyard.core.values import Value
from tiltyard.verify.crossing import framed
from tiltyard.verify.split.candidate import Candidate, Gone, Reply, words_of_reply

FRESH_CASES_MAX = 1_000
FRESH = "fresh-"
"""What the ids of the new cases begin with."""
SIZES = (1, 3, 8, 20, 50)
"""Of the inputs, in turn."""
GENERATOR = "task_inputs"
DRIVER = """

def _tiltyard_inputs(seed, sizes):
    import random
    rng = random.Random(seed)
    return [tuple(generate(rng, size)) for size in sizes]
"""


async def generated(
    candidate: Candidate, task: Task, inputs: Inputs, *, seed: int
) -> tuple[tuple[Value, ...], ...]:
    """The arguments of each new case. Raises `UnsoundTask` when the generator gives none."""
    sizes = list[Value](islice(cycle(SIZES), inputs.fresh_cases))
    candidate.ask(
        framed(("load", GENERATOR, (inputs.source + DRIVER).encode())),
        framed(("call", 0, "_tiltyard_inputs", (seed, sizes), {}, 0, False)),
    )
    problem = f"task {task.id}: its generator of inputs, with seed {seed}, "
    loaded = await candidate.receive()
    if isinstance(loaded, Gone) or loaded.kind != "loaded":
        raise UnsoundTask(f"{problem}cannot be loaded: {words_of_reply(loaded)}")
    made = await candidate.receive()
    if isinstance(made, Gone) or made.kind != "value":
        raise UnsoundTask(f"{problem}failed: {words_of_reply(made)}")
    several = made.rest[0]
    if not isinstance(several, list) or len(several) != inputs.fresh_cases:
        raise UnsoundTask(f"{problem}gave something else than inputs")
    return tuple(each for each in several if isinstance(each, tuple))


async def expected_by(
    candidate: Candidate,
    task: Task,
    inputs: Inputs,
    arguments: tuple[tuple[Value, ...], ...],
    *,
    seed: int,
) -> CallSuite:
    """The new cases with the reference's answers. Raises `GraderError` where it has none."""
    candidate.ask(
        framed(("load", task.module, task.reference.encode())),
        *(framed(("call", 0, inputs.target, args, {}, 0, False)) for args in arguments),
    )
    problem = f"task {task.id}: its reference, on inputs of seed {seed}, "
    loaded = await candidate.receive()
    if isinstance(loaded, Gone) or loaded.kind != "loaded":
        raise UnsoundTask(f"{problem}cannot be loaded: {words_of_reply(loaded)}")
    cases: list[CallCase] = []
    compare, kept = _as_hidden(task, inputs.target)
    for number, args in enumerate(arguments):
        reply = await candidate.receive()
        if isinstance(reply, Gone) or reply.kind not in {"value", "raised"}:
            raise UnsoundTask(
                f"{problem}gives no answer to input {number}: {words_of_reply(reply)}"
            )
        raises = None if reply.kind == "value" else _first_name(reply)
        cases.append(
            CallCase(
                id=f"{FRESH}{number}",
                target=inputs.target,
                args=args,
                expected=None if raises else reply.rest[0],
                raises=raises,
                compare=compare,
                arguments_kept=kept,
            )
        )
    if all(case.raises for case in cases):
        raise UnsoundTask(f"{problem}only raises exceptions: {cases[0].raises}")
    tolerance = task.hidden.float_tolerance if isinstance(task.hidden, CallSuite) else 1e-9
    return CallSuite(cases=tuple(cases), float_tolerance=tolerance)


def _as_hidden(task: Task, target: str) -> tuple[Compare, bool]:
    """How the hidden cases of the same function all compare."""
    cases = task.hidden.cases if isinstance(task.hidden, CallSuite) else ()
    same = [case for case in cases if case.target == target and not case.then]
    unordered = bool(same) and all(case.compare is Compare.UNORDERED for case in same)
    kept = bool(same) and all(case.arguments_kept for case in same)
    return Compare.UNORDERED if unordered else Compare.EXACT, kept


def _first_name(reply: Reply) -> str:
    names = reply.rest[0] if reply.rest else None
    return str(names[0]) if isinstance(names, list) and names else "BaseException"
