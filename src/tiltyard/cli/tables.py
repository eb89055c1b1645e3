"""Tables whose first columns are ids: to be copied, so never in two parts, however narrow it is.

Where a terminal leaves too little room beside the ids, each row becomes a few lines: the ids on one
of their own, which the terminal itself wraps, and what belongs to them below.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WORDS_WIDTH_MIN = 24
"""A column of words may be folded down to this many cells; what is shorter is never folded."""
FRAME_WIDTH = 3
"""What each column has around it; the table has one cell more."""
INDENT = 4


def print_table(
    console: Console,
    names: Sequence[str],
    rows: Iterable[Sequence[Text | str]],
    *,
    ids: int = 1,
    title: str | Text = "",
) -> None:
    """Prints rows of cells under `names`, of which the first `ids` are never broken."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [_width([row[at] for row in cells], name) for at, name in enumerate(names)]
    least = sum(widths[:ids]) + sum(min(width, WORDS_WIDTH_MIN) for width in widths[ids:])
    if least + FRAME_WIDTH * len(names) + 1 <= console.width:
        console.print(_table(names, cells, widths, ids=ids, title=title))
        return
    if title:
        console.print(title, soft_wrap=True)
    for row in cells:
        console.print(Text("  ").join(row[:ids]), soft_wrap=True)
        for line in _lines(names[ids:], row[ids:]):
            console.print(Padding(line, (0, 0, 0, INDENT)))


def _table(
    names: Sequence[str],
    cells: Iterable[Sequence[Text]],
    widths: Sequence[int],
    *,
    ids: int,
    title: str | Text,
) -> Table:
    table = Table(title=title or None, title_justify="left")
    for at, name in enumerate(names):
        whole = at < ids or widths[at] <= WORDS_WIDTH_MIN
        table.add_column(name, overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*row)
    return table


def _lines(names: Sequence[str], row: Sequence[Text]) -> Iterable[Text]:
    """Short cells together in one line, each long one in lines of its own."""
    named = [
        Text.assemble(f"{name}: ", cell) if name else cell
        for name, cell in zip(names, row, strict=True)
        if cell
    ]
    short = [each for each in named if _is_short(each)]
    if short:
        yield Text("  ").join(short)
    yield from (each for each in named if not _is_short(each))


def _is_short(cell: Text) -> bool:
    return "\n" not in cell.plain and cell_len(cell.plain) <= WORDS_WIDTH_MIN


def _width(cells: Iterable[Text], name: str) -> int:
    """Of the longest line, in cells of a terminal."""
    lines = (line for cell in cells for line in cell.plain.split("\n"))
    return max(cell_len(name), *map(cell_len, lines), 0)
