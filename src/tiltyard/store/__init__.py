"""The store room: every finished rollout, kept over any kill and readable meanwhile.

`RunStore` writes a run directory, one process at a time; `RunReader` reads one, from any process.
A run's records are append-only segments, and its SQLite index can always be made again from them.
This room never judges, repairs or interprets a record, and never executes what one holds.
"""

from tiltyard.store.index import EVERY_ROW, Place, RolloutRow, RowFilter
from tiltyard.store.reader import RunReader
from tiltyard.store.recovery import Recovery
from tiltyard.store.run_store import RunStore

__all__ = [
    "EVERY_ROW",
    "Place",
    "Recovery",
    "RolloutRow",
    "RowFilter",
    "RunReader",
    "RunStore",
]
