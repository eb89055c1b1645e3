"""Reading a run, from any process and while it grows. A reader never changes anything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.ids import RolloutId
from tiltyard.core.trajectory import Trajectory
from tiltyard.store.frames import unpack_record
from tiltyard.store.index import EVERY_ROW, RolloutRow, RowFilter, open_index
from tiltyard.store.records import unpack
from tiltyard.store.segments import read_frame, require_run, segment_path

_IDS_SHOWN = 5


class RunReader:
    """The recorded rollouts of one run directory.

    Everything acknowledged to the writer is seen at once. Use from one thread at a time.
    """

    def __init__(self, directory: Path) -> None:
        """Raises `UsageError` when the directory holds no run, and `StoreError` when its index
        cannot be read."""
        require_run(directory)
        index = open_index(directory, for_writing=False)
        if index is None:
            raise StoreError(
                f"The index of {directory} is missing or damaged.",
                fix=f"Make it again from the records: `tiltyard show --mend --run {directory}`.",
            )
        self._directory = directory
        self._index = index

    def iter_rows(self, wanted: RowFilter = EVERY_ROW) -> Iterator[RolloutRow]:
        """The wanted rollouts in the order they were recorded, including any recorded meanwhile."""
        return self._index.rows(wanted)

    def read(self, rollout_id: RolloutId) -> Trajectory:
        """The whole record of a rollout.

        Raises `UsageError` for an id that is not recorded, and `StoreError`, naming file and
        offset, for a record that is damaged; the others can still be read.
        """
        row = self._index.row(rollout_id)
        if row is None:
            raise self._unknown(rollout_id)
        return self.read_row(row)

    def read_row(self, row: RolloutRow) -> Trajectory:
        """The record that a row of this run points to; raises as `read` does."""
        place = row.place
        frame = read_frame(self._directory, place.segment, place.offset, place.length_bytes)
        try:
            trajectory = unpack(unpack_record(frame))
            if trajectory.id != row.id:
                raise ValueError(f"the record is that of {trajectory.id!r}")  # noqa: TRY301
        except ValueError as error:
            path = segment_path(self._directory, place.segment)
            raise StoreError(
                f"Rollout {row.id!r} in {path} at offset {place.offset} cannot be read: {error}.",
                fix="Restore that file from a copy; the other rollouts can be read.",
            ) from error
        return trajectory

    def iter_trajectories(
        self,
        wanted: RowFilter = EVERY_ROW,
        *,
        on_damage: Callable[[StoreError], None] | None = None,
    ) -> Iterator[Trajectory]:
        """The wanted records in the order they were recorded.

        A damaged one is passed over when `on_damage` takes its error, and raised when it is None.
        """
        for row in self.iter_rows(wanted):
            try:
                trajectory = self.read_row(row)
            except StoreError as error:
                if on_damage is None:
                    raise
                on_damage(error)
                continue
            yield trajectory

    def resolve(self, prefix: str) -> RolloutId:
        """The id that is `prefix`, or the only one that begins with it.

        Raises `UsageError` when there is none, or more than one.
        """
        found = self._index.ids_starting_with(prefix, limit=_IDS_SHOWN + 1)
        # The shortest comes first, so an id that others begin with can still be named.
        if not found:
            raise self._unknown(prefix)
        if len(found) > 1 and found[0] != prefix:
            shown = ", ".join(found[:_IDS_SHOWN]) + (" and more" if len(found) > _IDS_SHOWN else "")
            raise UsageError(
                f"More than one rollout of {self._directory} begins with {prefix!r}: {shown}.",
                fix="Give more of its id.",
            )
        return found[0]

    def close(self) -> None:
        """Close the index. Closing twice is fine."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _unknown(self, sought: str) -> UsageError:
        return UsageError(
            f"No rollout {sought!r} is recorded in {self._directory}.",
            fix=f"`tiltyard show --run {self._directory}` lists them; one that has not finished is "
            "not there yet.",
        )
