"""New inputs for each verification: what the task's generator makes of a seed, with the reference's
answers as what is expected. A solution cannot have seen them, so remembering answers is no use."""

from itertools import cycle, islice

from tiltyard.core.checks import Inputs
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.execution import MIB
from tiltyard.core.task import CallCase, CallSuite, Compare, ProgramCase, Task
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
    return [{taken}(generate(rng, size)) for size in sizes]
"""
STDIN_BYTES_MAX = MIB
ARGUMENTS_MAX, ARGUMENTS_BYTES_MAX = 1_000, 100_000


class InputTooLargeError(ValueError):
    """A program's input is more than it may have."""


async def generated(
    candidate: Candidate, task: Task, inputs: Inputs, *, seed: int
) -> tuple[tuple[Value, ...], ...]:
    """The arguments of each new call. Raises `UnsoundTask` when the generator gives none."""
    several = await _made(candidate, task, inputs, seed=seed, taken="tuple")
    return tuple(each for each in several if isinstance(each, tuple))


async def generated_cases(
    candidate: Candidate, task: Task, inputs: Inputs, *, seed: int
) -> tuple[ProgramCase, ...]:
    """New cases of a program, with nothing expected yet. Raises `UnsoundTask` as `generated`."""
    several = await _made(candidate, task, inputs, seed=seed, taken="")
    try:
        return tuple(
            program_case(each, id_=f"fresh-{number}") for number, each in enumerate(several)
        )
    except ValueError as error:
        raise UnsoundTask(
            f"task {task.id}: its generator of inputs, with seed {seed}, gave something else than "
            f"inputs: {error}"
        ) from None


def program_case(made: Value, *, id_: str, stdin_bytes_max: int = STDIN_BYTES_MAX) -> ProgramCase:
    """What a generator gave, as a run of a program. Raises ValueError for what is none."""
    stdin, arguments = made if isinstance(made, tuple) and len(made) == 2 else (made, [])
    if isinstance(stdin, str):
        stdin = stdin.encode()
    if not isinstance(stdin, bytes):
        raise ValueError("standard input is no text and no bytes")  # noqa: TRY004
    if len(stdin) > stdin_bytes_max:
        raise InputTooLargeError(f"standard input of more than {stdin_bytes_max} bytes")
    if not isinstance(arguments, (list, tuple)) or len(arguments) > ARGUMENTS_MAX:
        raise ValueError(f"its arguments are no list of at most {ARGUMENTS_MAX}")
    words = tuple(each for each in arguments if isinstance(each, str) and "\0" not in each)
    if len(words) < len(arguments) or sum(map(len, words)) > ARGUMENTS_BYTES_MAX:
        raise ValueError("an argument is no text that a command line can hold")
    "".join(words).encode()  # a half of a surrogate pair is no text
    return ProgramCase(id=id_, stdin=stdin, arguments=words)


async def _made(
    candidate: Candidate, task: Task, inputs: Inputs, *, seed: int, taken: str
) -> list[Value]:
    """All new inputs, each as `taken` makes it of what the generator gives."""
    sizes = list[Value](islice(cycle(SIZES), inputs.fresh_cases))
    candidate.ask(
        framed(("load", GENERATOR, (inputs.source + DRIVER.format(taken=taken)).encode())),
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
    return several


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
