"""What a name may be in a task file or a `task.toml`, for pydantic."""

import keyword
import re
from typing import Annotated

from pydantic import AfterValidator


def _safe_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}", text):
        raise ValueError(
            "must be 1 to 200 letters, digits or ._:+- and start with a letter or digit"
        )
    return text


def _identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text) or len(text) > 100:
        raise ValueError("must be a Python name")
    return text


PlainId = Annotated[str, AfterValidator(_safe_id)]
PythonName = Annotated[str, AfterValidator(_identifier)]
