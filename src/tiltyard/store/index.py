"""The index of a run: one row for each record, in SQLite, made from the segments and re-makeable.

The segments are the truth. The index answers which rollouts there are and where each lies, for
this process and for others while the run goes on (WAL: readers and the writer do not wait for each
other). On a clean close it is put back into one plain file that a read-only copy can be read from.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.store.refusals import refusing_files, refusing_index

INDEX_FILE = "index.sqlite"
PAGE_ROWS = 500
"""Rows fetched at once. A reader that walks a big index must not hold a transaction open for the
whole walk, because SQLite could not shorten the log meanwhile."""

_SCHEMA = 1
_CREATE = """
CREATE TABLE rollouts (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    group_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    family TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reward REAL,
    passed INTEGER NOT NULL,
    checks INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length_bytes INTEGER NOT NULL,
    started_unix_s REAL NOT NULL,
    wall_s REAL NOT NULL
);
CREATE INDEX rollouts_by_place ON rollouts (segment, offset);
CREATE INDEX rollouts_by_task ON rollouts (task_id);
CREATE INDEX rollouts_by_group ON rollouts (group_id);
"""
_COLUMNS = (
    "id, group_id, task_id, family, outcome, reward, passed, checks,"
    " segment, offset, length_bytes, started_unix_s, wall_s"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record lies: segment number, offset and length of its frame."""

    segment: int
    offset: int
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """What the index knows of one recorded rollout."""

    id: RolloutId
    group: GroupId
    task_id: TaskId
    family: str
    outcome: Outcome
    reward: float | None
    """None when the rollout carries no reward."""
    passed: int
    """Checks that passed, of `checks`."""
    checks: int
    place: Place
    started_unix_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which rows are wanted; a field that is None asks for nothing."""

    group: GroupId | None = None
    task_id: TaskId | None = None
    family: str | None = None
    outcome: Outcome | None = None


EVERY_ROW = RowFilter()


class Index:
    """One connection to a run's index. `open_index` and `create_index` make it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def insert(self, trajectory: Trajectory, place: Place) -> bool:
        """Add a row; False when the id is there already."""
        verdict = trajectory.verdict
        columns = (
            trajectory.id,
            _storable(trajectory.group),
            _storable(trajectory.task_id),
            _storable(trajectory.family),
            verdict.outcome.value,
            trajectory.reward.value,
            verdict.passed,
            len(verdict.checks),
            place.segment,
            place.offset,
            place.length_bytes,
            trajectory.started_unix_s,
            trajectory.wall_s,
        )
        statement = (
            f"INSERT INTO rollouts ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"  # noqa: S608
            " ON CONFLICT (id) DO NOTHING"
        )
        with refusing_index(self._path):
            return self._connection.execute(statement, columns).rowcount == 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is kept together, or not at all when it raises."""
        with refusing_index(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with refusing_index(self._path):
                self._connection.execute("COMMIT")
        except BaseException:
            # SQLite itself may have rolled back already, for example on a full disk.
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise

    def rows(self, wanted: RowFilter) -> Iterator[RolloutRow]:
        """The wanted rows in the order they were recorded, as of the time each page is read."""
        conditions, values = ["seq > ?"], []
        for field, column in (
            ("group", "group_id"),
            ("task_id", "task_id"),
            ("family", "family"),
            ("outcome", "outcome"),
        ):
            value = getattr(wanted, field)
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(_storable(value))
        statement = (
            f"SELECT seq, {_COLUMNS} FROM rollouts WHERE {' AND '.join(conditions)}"  # noqa: S608
            f" ORDER BY seq LIMIT {PAGE_ROWS}"
        )
        last = -1
        while page := self._query(statement, last, *values):
            yield from (_row(columns[1:]) for columns in page)
            last = page[-1][0]

    def row(self, rollout_id: RolloutId) -> RolloutRow | None:
        """The row of exactly this id; None when there is none."""
        found = self._query(f"SELECT {_COLUMNS} FROM rollouts WHERE id = ?", _storable(rollout_id))  # noqa: S608
        return _row(found[0]) if found else None

    def ids_starting_with(self, prefix: str, *, limit: int) -> list[RolloutId]:
        """At most `limit` ids that begin with `prefix`, in order."""
        statement = (
            "SELECT id FROM rollouts WHERE id >= ? AND substr(id, 1, ?) = ? ORDER BY id LIMIT ?"
        )
        sought = _storable(prefix)
        found = self._query(statement, sought, len(sought), sought, limit)
        return [RolloutId(columns[0]) for columns in found]

    def ends(self) -> dict[int, int]:
        """For each segment that rows point into, the offset after its last indexed record."""
        found = self._query("SELECT segment, max(offset + length_bytes) FROM rollouts GROUP BY 1")
        return dict(found)

    def forget_beyond(self, segment: int, size: int) -> int:
        """Drop the rows that point past a segment's end; the number of rows dropped."""
        statement = "DELETE FROM rollouts WHERE segment = ? AND offset + length_bytes > ?"
        with refusing_index(self._path):
            return self._connection.execute(statement, (segment, size)).rowcount

    def close(self) -> None:
        self._connection.close()

    def close_as_one_file(self) -> None:
        """Close the writer's connection, leaving no log file unless a reader is using it."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        self._connection.close()

    def _query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with refusing_index(self._path):
            return self._connection.execute(statement, values).fetchall()


def create_index(directory: Path) -> Index:
    """Make an empty index in `directory`."""
    path = directory / INDEX_FILE
    with refusing_index(path):
        connection = _connect(path, "rwc")
        _keep_a_log(connection)
        connection.executescript(f"BEGIN; {_CREATE} PRAGMA user_version = {_SCHEMA}; COMMIT;")
    return Index(connection, path)


def open_index(directory: Path, *, for_writing: bool) -> Index | None:
    """The index in `directory`; None when it is missing, damaged or of another schema.

    Only a writer looks for damage inside: it is the one that can make the index again.
    """
    path = directory / INDEX_FILE
    with refusing_files(path):
        if not path.exists():
            return None
    with refusing_index(path):
        connection = _connect(path, "rw" if for_writing else "ro")
        try:
            intact = connection.execute("PRAGMA user_version").fetchone() == (_SCHEMA,)
            if for_writing:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()
                intact = intact and found == ("ok",)
                _keep_a_log(connection)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                connection.close()
                raise
            intact = False
    if intact:
        return Index(connection, path)
    connection.close()
    return None


def remove_index(directory: Path) -> None:
    """Delete the index's files, so that it can be made again."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        (directory / f"{INDEX_FILE}{suffix}").unlink(missing_ok=True)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Whoever opens it may pass it to another thread, never use it from two at once.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=5.0,
    )


def _keep_a_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    # A power failure may cost the newest rows, which are made again from the segments, but must
    # not cost the file: NORMAL gives that with a write-ahead log.
    connection.execute("PRAGMA synchronous = NORMAL")


def _row(columns: Iterable[Any]) -> RolloutRow:
    *head, segment, offset, length, started, wall = columns
    rollout_id, group, task_id, family, outcome, reward, passed, checks = head
    return RolloutRow(
        id=RolloutId(rollout_id),
        group=GroupId(group),
        task_id=TaskId(task_id),
        family=family,
        outcome=Outcome(outcome),
        reward=reward,
        passed=passed,
        checks=checks,
        place=Place(segment=segment, offset=offset, length_bytes=length),
        started_unix_s=started,
        wall_s=wall,
    )


def _storable(text: str) -> str:
    """The text itself, or for one that is not valid Unicode a readable stand-in."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
