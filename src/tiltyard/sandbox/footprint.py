"""What processes hold at one moment, as seen from outside their sandbox. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Summed over a run's processes, those of its children and of its daemons included."""

    processes: int
    threads: int
    descriptors: int
    private_bytes: int
    """Memory that is theirs alone (USS), whoever allocated it: Python, C or a mapping."""
    io_bytes: int
    """What passed through read and write calls, pipes and sockets included; of a child that has
    ended, only when it was waited for."""
