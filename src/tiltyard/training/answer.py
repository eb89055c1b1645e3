"""The built-in policy's answer format: `line number|new line`, one edit of one line.

Why not whole files: a model of a million parameters that must copy eight lines to change one
spends its capacity on copying, and each answer costs six times the tokens. The prompt shows the
code with the same numbers, so the number an answer starts with is one that it has just read.

Pure and free of PyTorch: the rollout's side needs it in the process that owns the sandboxes.
Answers are untrusted: a malformed one raises `AnswerMalformed`, which `read_answer` turns into the
record of what was wrong with it; no answer makes work that grows with its size.
"""

import re
from typing import Final

from tiltyard.core.errors import TiltyardError
from tiltyard.core.trajectory import Answer

ANSWER_CHARS_MAX: Final = 2_000
"""Longer answers are refused unread: a line of real code is a few hundred characters."""

_ANSWER = re.compile(r"\s{0,8}([0-9]{1,6})\|([^\n]*)\n?\s{0,8}")
_OPENING = re.compile(r"\ARepair `\w+`\.\s*")
_REFUSED = re.compile(r"[\x00\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


class AnswerMalformed(TiltyardError):
    """The policy's answer is not `line number|new line`. The answer's fault, never ours."""


def render_prompt(instruction: str, code: str) -> str:
    """What the model reads: the instruction on one line, then the numbered code.

    The instruction stays because some faults (a dropped statement, a wrong constant) cannot be
    repaired without it. Its opening "Repair `name`." goes, since the code shows the name, and so
    do later paragraphs (examples), which would double the prompt.
    """
    said = _OPENING.sub("", instruction.partition("\n\n")[0], count=1)
    return f"{' '.join(said.split())}\n{render_code(code)}"


def render_code(code: str) -> str:
    """The code with each line numbered from 1; every line ends in a newline."""
    lines = _lines(code)
    return "".join([f"{number}|{line}\n" for number, line in enumerate(lines, start=1)])


def render_answer(starter: str, fixed: str) -> str:
    """The answer that turns `starter` into `fixed`, with a closing newline.

    Raises AnswerMalformed unless the two differ in exactly one line.
    """
    before, after = _lines(starter), _lines(fixed)
    changed = [i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    if len(before) != len(after) or len(changed) != 1:
        raise AnswerMalformed(
            f"The codes have {len(before)} and {len(after)} lines and differ in {len(changed)}; "
            "one edit needs exactly one."
        )
    return f"{changed[0] + 1}|{after[changed[0]]}\n"


def apply_answer(code: str, text: str) -> str:
    """The code with the answer's line in place of the numbered one.

    Raises AnswerMalformed, with the reason in words, for anything that is not one such edit.
    """
    if len(text) > ANSWER_CHARS_MAX:
        raise AnswerMalformed(
            f"The answer has {len(text)} characters; the limit is {ANSWER_CHARS_MAX}."
        )
    match = _ANSWER.fullmatch(text)
    if match is None:
        raise AnswerMalformed(f"The answer is not `line number|new line`: {text[:40]!a}.")
    number, line = int(match[1]), match[2]
    if refused := _REFUSED.search(line):
        raise AnswerMalformed(f"The new line holds the character {refused.group()!a}.")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise AnswerMalformed("The new line cannot be written as UTF-8.") from error
    lines = _lines(code)
    if not 1 <= number <= len(lines):
        raise AnswerMalformed(f"The answer names line {number}; the code has {len(lines)} lines.")
    if lines[number - 1] == line:
        # Known to be wrong, since the code is; refused here, it needs no sandbox to show that.
        raise AnswerMalformed(f"The answer leaves line {number} as it is.")
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def read_answer(code: str, text: str) -> Answer:
    """`apply_answer` as a value: the new code, or why there is none. Never raises."""
    try:
        return Answer(code=apply_answer(code, text))
    except AnswerMalformed as error:
        return Answer(code=None, problem=error.message)


def _lines(code: str) -> list[str]:
    # Not splitlines(): that also cuts at form feeds and other characters that end no Python line.
    return code.removesuffix("\n").split("\n")
