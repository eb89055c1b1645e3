"""The rows of bench/results.json, and the one function that writes them.

Every benchmark adds rows to the same file, now and later. A row replaces the one of its name, and
the file is replaced in one step, so that whoever reads it sees a whole file at any time.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiltyard.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured of one system in one run."""

    name: str
    """`benchmark/system`, with `/cN` behind it when N operations ran at once."""
    unit: str
    """Of the percentiles."""
    n: int
    p50: float
    p95: float
    p99: float
    per_s: float | None
    """Operations a second, with all that the system had to do for them; None where that is no
    question."""
    peer: bool
    """True for a system that is not ours."""
    run: str
    """When the run began. Only rows of one run can be compared."""
    load_average: float
    """The machine's, over the minute before the row was made."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed.

    Nearest rank: always a value that was measured. Raises ValueError when there is none.
    """
    if not values or not 0.0 <= share <= 1.0:
        raise ValueError(f"no percentile {share} of {len(values)} values")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that a file holds; none when there is no file. Raises UsageError for any other."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", fix="Delete it.") from None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    ):
        raise UsageError(f"{path} is no list of rows with names.", fix="Delete it.")
    return rows


def merge_rows(path: Path, rows: Iterable[Row]) -> None:
    """Puts rows into a file in place of those of the same names; the others stay as they are.

    Raises UsageError when the file that is there holds something else.
    """
    merged = {row["name"]: row for row in read_rows(path)}
    for row in rows:
        fields = asdict(row)
        if row.per_s is None:
            del fields["per_s"]
        merged[row.name] = fields
    text = json.dumps(list(merged.values()), indent=1) + "\n"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
