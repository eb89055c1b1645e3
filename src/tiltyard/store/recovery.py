"""What a writer does before it goes on with a run: make segments and index agree again.

After a kill the newest segment may end in a torn record, and records may lie in segments that the
index does not know. After a power failure the index may know records that never reached the disk.
Only a writer mends this; a reader never changes anything.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tiltyard.store.frames import SEGMENT_HEADER_BYTES, Damage, Frame, scan, unpack_segment_header
from tiltyard.store.index import Index, Place, create_index, open_index, remove_index
from tiltyard.store.records import unpack
from tiltyard.store.refusals import refusing_files
from tiltyard.store.segments import segment_numbers, segment_path

_log = structlog.get_logger("tiltyard.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found when a run was opened for writing. All zero after a clean close."""

    reindexed: int = 0
    """Intact records that the index did not know."""
    torn_bytes: int = 0
    """Bytes of unfinished records that were cut off; nobody was told that they were recorded."""
    lost: int = 0
    """Records that the index knew and that are gone: a power failure, or a deleted segment."""
    damaged: tuple[str, ...] = ()
    """Unreadable stretches, each as file, offset and reason. They are left as they are."""
    index_remade: bool = False


@dataclass(slots=True, kw_only=True)
class _Findings:
    reindexed: int = 0
    torn_bytes: int = 0
    lost: int = 0
    damaged: list[str] = field(default_factory=list)


def recover(directory: Path) -> tuple[Index, Recovery]:
    """Mend a run and open its index for writing. The caller holds the writer's lock."""
    index = open_index(directory, for_writing=True)
    remade = index is None
    if index is None:
        with refusing_files(directory):
            remove_index(directory)
        index = create_index(directory)
    try:
        findings = _Findings()
        with index.transaction():
            _agree(directory, index, findings)
    except BaseException:
        index.close()
        raise
    recovery = Recovery(
        reindexed=findings.reindexed,
        torn_bytes=findings.torn_bytes,
        lost=findings.lost,
        damaged=tuple(findings.damaged),
        # An index of a run without records was just not made yet.
        index_remade=remade and findings.reindexed > 0,
    )
    if recovery != Recovery():
        # No warning: whoever opened the run is told, in `RunStore.recovery`.
        _log.info(
            "run_recovered",
            directory=str(directory),
            reindexed=recovery.reindexed,
            torn_bytes=recovery.torn_bytes,
            lost=recovery.lost,
            damaged=recovery.damaged,
            index_remade=recovery.index_remade,
        )
    return index, recovery


def _agree(directory: Path, index: Index, findings: _Findings) -> None:
    numbers = segment_numbers(directory)
    ends = index.ends()
    for number in ends.keys() - set(numbers):
        findings.lost += index.forget_beyond(number, 0)
    for number in numbers:
        path = segment_path(directory, number)
        size = _size(path)
        indexed_end = ends.get(number, SEGMENT_HEADER_BYTES)
        if indexed_end > size:
            findings.lost += index.forget_beyond(number, size)
            indexed_end = index.ends().get(number, SEGMENT_HEADER_BYTES)
        if size != indexed_end:
            newest = number == numbers[-1]
            _read_rest(path, number, index, findings, start=indexed_end, newest=newest)


def _read_rest(
    path: Path, number: int, index: Index, findings: _Findings, *, start: int, newest: bool
) -> None:
    """Index what lies beyond `start`; of the newest segment cut off a torn tail."""
    with refusing_files(path):
        segment = path.read_bytes()
    try:
        marker = unpack_segment_header(segment)
    except ValueError as error:
        if len(segment) < SEGMENT_HEADER_BYTES:
            # Killed while beginning a segment: it never held a record.
            findings.torn_bytes += len(segment)
            with refusing_files(path):
                path.unlink()
        else:
            findings.damaged.append(f"{path} at offset 0: {error}")
        return
    for found in scan(segment, marker, start):
        match found:
            case Frame():
                _index_frame(path, number, index, findings, found)
            case Damage(torn=True) if newest:
                findings.torn_bytes += found.length_bytes
                with refusing_files(path, found.offset):
                    os.truncate(path, found.offset)
            case Damage():
                findings.damaged.append(f"{path} at offset {found.offset}: {found.why}")


def _index_frame(path: Path, number: int, index: Index, findings: _Findings, frame: Frame) -> None:
    place = Place(segment=number, offset=frame.offset, length_bytes=frame.length_bytes)
    try:
        trajectory = unpack(frame.payload)
    except ValueError as error:
        findings.damaged.append(f"{path} at offset {frame.offset}: {error}")
        return
    if index.insert(trajectory, place):
        findings.reindexed += 1
    else:
        findings.damaged.append(
            f"{path} at offset {frame.offset}: {trajectory.id} is recorded twice"
        )


def _size(path: Path) -> int:
    with refusing_files(path):
        return path.stat().st_size
