"""What the daemon leaves in `yard.json`, for who comes when it was killed."""

import os
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from tiltyard.cli.yard.place import DAEMON_LOCK, LOG, RECORD, SOCKET, Place
from tiltyard.cli.yard.wire import Row, State
from tiltyard.core.errors import SandboxDied, SandboxError, UsageError


class Record(BaseModel):
    """The daemon and its sandboxes."""

    model_config = ConfigDict(frozen=True)

    pid: int
    rows: list[Row]


def write_record(place: Place, pid: int, rows: list[Row]) -> None:
    """Written before a sandbox is made and after one is gone, so none is ever missing.

    Raises `SandboxError` when the directory cannot be written to.
    """
    try:
        place.write(RECORD, Record(pid=pid, rows=rows).model_dump_json().encode())
    except OSError as error:
        raise SandboxError(
            f"the record of sandboxes in {place.path} cannot be written: {error.strerror}.",
            fix="free space there, or set TILTYARD_RUNTIME_DIR to another directory.",
        ) from None


def recorded_rows(place: Place) -> list[Row]:
    """The sandboxes of a daemon that is no more; none when it took leave."""
    raw = place.read(RECORD)
    if raw is None:
        return []
    try:
        record = Record.model_validate_json(raw)
    except ValidationError:
        return []  # an older version's; what it names is dead in any case
    return [row.model_copy(update={"state": State.LOST}) for row in record.rows]


def lost_rows(place: Place) -> list[Row]:
    """The sandboxes that a killed daemon had. A living one answers for itself."""
    return [] if place.is_locked(DAEMON_LOCK) else recorded_rows(place)


def forget_lost(place: Place, ids: Iterable[str] | None) -> list[Row]:
    """Takes lost sandboxes out of the record, all of them for None, and tells which those were.

    Nothing when a daemon lives: that one has the record.
    """
    lock = place.try_lock(DAEMON_LOCK)
    if lock is None:
        return []
    try:
        rows = recorded_rows(place)
        wanted = {row.id for row in rows} if ids is None else set(ids)
        left = [row for row in rows if row.id not in wanted]
        if left:
            write_record(place, os.getpid(), left)
        else:
            place.remove(RECORD, SOCKET, LOG)
        return [row for row in rows if row.id in wanted]
    finally:
        place.remove(DAEMON_LOCK)
        os.close(lock)


def lost_error(id_: str) -> SandboxDied:
    """For a sandbox of a daemon that was killed."""
    return SandboxDied(
        f"sandbox {id_} is lost: its yard daemon was killed, and it ended with it.",
        fix="create another; `tiltyard sandbox sweep` forgets it.",
    )


def unknown_error(id_: str) -> UsageError:
    """For an id that nobody knows."""
    return UsageError(f"there is no sandbox {id_!r}.", fix="`tiltyard sandbox ls` lists them.")
