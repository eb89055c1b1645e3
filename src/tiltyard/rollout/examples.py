"""A task's visible examples as a program that an agent can run in its own sandbox. Pure.

What it prints is feedback for the policy and nothing more: the solution runs in the same process
and could forge it, which is why no reward is ever made of it.
"""

import math

from tiltyard.core.task import CallCase, CallSuite, Task
from tiltyard.core.values import Value

EXAMPLES_FILE = "check_examples.py"

_PROGRAM = """\
import sys
import traceback

inf, nan = float("inf"), float("nan")
CASES = [
{cases}
]


def alike(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= {tolerance} * max(1.0, abs(one)) or one == other or one != one
    return type(one) is type(other) and one == other


try:
    import {module}
except BaseException:
    traceback.print_exc(limit=-3, file=sys.stdout)
    sys.exit(1)
failed = 0
for text, target, args, steps, expected, raises in CASES:
    try:
        got = getattr({module}, target)(*args)
        if steps:
            got = [getattr(got, name)(*values) for name, values in steps]
    except Exception as error:
        if type(error).__name__ == raises:
            continue
        print(f"{{text}} raised {{type(error).__name__}}: {{error}}")
        failed += 1
        continue
    if raises:
        print(f"{{text}} returned {{got!r}}, expected {{raises}}")
        failed += 1
    elif not alike(expected, got):
        print(f"{{text}} gave {{got!r}}, expected {{expected!r}}")
        failed += 1
if CASES:
    print(f"{{len(CASES) - failed}} of {{len(CASES)}} examples pass")
else:
    print("the module loads; the task has no examples")
sys.exit(failed > 0)
"""


def examples_program(task: Task) -> str:
    """The program that checks the visible examples; exits 0 when all of them pass."""
    return _PROGRAM.format(
        module=task.module,
        tolerance=task.visible.float_tolerance,
        cases="\n".join(f"    {_row(case)}," for case in task.visible.cases),
    )


def examples_text(suite: CallSuite) -> str:
    """The examples as a policy reads them, one a line."""
    return "\n".join(_line(case) for case in suite.cases)


def _row(case: CallCase) -> str:
    steps = [(step.name, step.args) for step in case.then]
    fields = (case.target, case.args, steps, case.expected, case.raises)
    return f"({_call(case)!r}, {', '.join(map(_literal, fields))})"


def _line(case: CallCase) -> str:
    if case.raises:
        return f"{_call(case)} raises {case.raises}"
    return f"{_call(case)} == {_literal(case.expected)}"


def _call(case: CallCase) -> str:
    made = f"{case.target}({', '.join(map(_literal, case.args))})"
    if not case.then:
        return made
    steps = ", ".join(f"{step.name}({', '.join(map(_literal, step.args))})" for step in case.then)
    return f"{made} then {steps}"


def _literal(value: Value | list[tuple[str, tuple[Value, ...]]]) -> str:
    """Python source of a value; `inf` and `nan` are names that the program defines."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return repr(value)
