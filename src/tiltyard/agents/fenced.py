"""Chat models: what they are asked, and the one code block that their answer must hold. Pure.

The rule is strict: exactly one fenced block, which is the whole module. To guess among several, or
to take prose for code, would reward what the model did not say; a model is told what was wrong and
learns to answer plainly.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from tiltyard.core.trajectory import Answer, Prompt, Step

ANSWER_CHARACTERS_MAX = 1_000_000
"""A longer answer is not read. No module that a task asks for comes near it."""

EARLIER_CHARACTERS_MAX = 8_000
"""Of each earlier answer and observation when it is shown again: enough to see one's mistake, and
an answer that ran away does not fill the context of every later turn."""

_SYSTEM = """\
You are given a task about one Python module. Answer with the whole module, complete and ready to \
run, in exactly one fenced code block, like this:

```python
# the whole module
```

You may explain outside of the block, but use no second block."""

_OPENING = re.compile(r" {0,3}(`{3,})([^`]*)")


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


def render(prompt: Prompt) -> list[Message]:
    """The chat that asks for this turn; it ends with the module as it stands."""
    messages = [Message(role=Role.SYSTEM, content=_SYSTEM)]
    now = f"The module as it stands:\n\n{_block(prompt.code)}"
    examples = f"\n\nExamples:\n{prompt.examples}" if prompt.examples else ""
    asked = f"{prompt.instruction}{examples}"
    if not prompt.earlier:
        return [*messages, Message(role=Role.USER, content=f"{asked}\n\n{now}")]
    messages.append(Message(role=Role.USER, content=asked))
    for step in prompt.earlier:
        messages.append(Message(role=Role.ASSISTANT, content=_shortened(step.reply.text)))
        messages.append(Message(role=Role.USER, content=_feedback(step)))
    last = messages.pop()
    return [*messages, Message(role=Role.USER, content=f"{last.content}\n\n{now}")]


def read_fenced(_code: str, text: str) -> Answer:
    """The module in an answer's only code block, or what is wrong with the answer. Never raises.

    The module as it stood is not needed: a block replaces it.
    """
    if len(text) > ANSWER_CHARACTERS_MAX:
        return _problem(
            f"The answer is longer than {ANSWER_CHARACTERS_MAX} characters and was not read."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        return _problem("The answer is not valid Unicode text.")
    blocks, open_at_end = _blocks(text)
    if open_at_end:
        return _problem("The answer ends within a code block. Close it with ``` on a line.")
    if not blocks:
        return _problem("The answer has no fenced code block. Put the whole module into one.")
    if len(blocks) > 1:
        return _problem(
            f"The answer has {len(blocks)} fenced code blocks. Put the whole module into one."
        )
    if not blocks[0].strip():
        return _problem("The code block is empty. Put the whole module into it.")
    return Answer(code=blocks[0])


def clipped(text: str) -> tuple[str, bool]:
    """The text as far as it need be kept to be seen to be too long, and whether it was cut."""
    return text[: ANSWER_CHARACTERS_MAX + 1], len(text) > ANSWER_CHARACTERS_MAX


def _blocks(text: str) -> tuple[list[str], bool]:
    """The contents of the fenced blocks, and whether the last one is never closed."""
    blocks: list[str] = []
    inside: list[str] | None = None
    fence = ""
    # Not splitlines, which also splits at characters that are part of a line of code.
    for line in text.split("\n"):
        bare = line.removesuffix("\r")
        if inside is None:
            if opening := _OPENING.fullmatch(bare):
                inside, fence = [], opening[1]
        elif _closes(bare, fence):
            blocks.append("".join(inside))
            inside = None
        else:
            inside.append(f"{bare}\n")
    return blocks, inside is not None


def _closes(line: str, fence: str) -> bool:
    content = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(content) >= len(fence) and not content.strip("`")


def _block(code: str) -> str:
    """The code in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code}{'' if code.endswith(chr(10)) else chr(10)}{fence}"


def _feedback(step: Step) -> str:
    if step.observation is None or not step.observation.text:
        return step.problem or "The examples have not been run."
    said = _shortened(step.observation.text)
    if step.code is None:
        return said
    return f"The examples were run with this module:\n\n{said}"


def _shortened(text: str) -> str:
    if len(text) <= EARLIER_CHARACTERS_MAX:
        return text
    cut = len(text) - EARLIER_CHARACTERS_MAX
    return f"{text[:EARLIER_CHARACTERS_MAX]}\n[... {cut} characters left out ...]"


def _problem(text: str) -> Answer:
    return Answer(code=None, problem=text)
