"""Digests of suites: what a verdict depended on, and what a reference was checked with. Pure."""

from tiltyard.core.task import CallSuite, ProgramSuite, PytestSuite, Task
from tiltyard.verify.expected import digest_of
from tiltyard.verify.split.inside import codec


def of_calls(suite: CallSuite, requests: tuple[bytes, ...]) -> str:
    """Of all that a suite of calls asks for. Raises `codec.BadValueError`."""
    expected = (
        codec.encode((case.id, case.expected, case.raises, case.arguments_kept, case.compare.value))
        for case in suite.cases
    )
    return digest_of(*(repr(suite.float_tolerance).encode(), *requests, *expected))


def of_tests(suite: PytestSuite) -> str:
    """Of all test files. Raises UnicodeError."""
    texts = (text for item in sorted(suite.files.items()) for text in item)
    return digest_of(*(str(suite.inplace).encode(), *(text.encode() for text in texts)))


def of_programs(suite: ProgramSuite) -> str:
    """Of the commands and all cases. Raises UnicodeError."""
    said = (*suite.build, "", *suite.run, "", suite.source, suite.compare, suite.checker or "")
    cases = (
        part
        for case in suite.cases
        for part in (
            *(case.stdin, case.expected, str(case.exit_code).encode(), case.id.encode()),
            *(each.encode() for each in case.arguments),
        )
    )
    texts = (*said, repr(suite.float_tolerance))
    return digest_of(*(*(text.encode() for text in texts), *cases))


def with_reference(task: Task, suite: str) -> str:
    """Of a suite's digest and all else that decides how the task's reference does."""
    texts = (task.module, task.reference, repr(task.time_limit_s), suite)
    return digest_of(*(text.encode() for text in texts))
