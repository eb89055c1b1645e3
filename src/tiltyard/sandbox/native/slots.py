"""The cgroups of sandboxes, used by one sandbox after the other.

Making and removing cgroups costs a fifth of a sandbox. So on cgroup v1 those that a sandbox left
empty are used again by a later one with the same limits. Nothing can be seen of them inside, no
process of the first is left when the second comes, and what they have counted until then is
subtracted (docs/decisions/0015). On v2, and where nobody counts processes, each sandbox has its
own.

The launcher makes them, finds out whether they are empty, and removes them; here it is decided
which sandbox gets which.
"""

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from tiltyard.core.execution import MIB, Limits
from tiltyard.sandbox.ending import NOTHING_USED, Usage
from tiltyard.sandbox.native.cgroups import (
    CPU_PERIOD_US,
    Hierarchy,
    Plan,
    Readings,
    plan,
    read_usage,
    readings,
    restart_peak,
)
from tiltyard.sandbox.native.counters import CounterFiles
from tiltyard.sandbox.native.launcher import End

KEPT_MAX = 64
"""So many slots are kept for others, in use and free ones together. A free one costs some 100 KB of
the kernel's memory."""
REST_S = 1.1 * CPU_PERIOD_US / 1e6
"""How long a slot stays free before it is used again: until then its CPU quota may be used up."""
RESIDUE_SHARE = 16
RESIDUE_BYTES_MAX = 2 * MIB
"""What may be charged to cgroups that are used again: that part of the memory, and no more."""

Key = tuple[int, int, float, bool]


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One sandbox's cgroups."""

    key: Key
    plan: Plan
    files: Readings
    residue_bytes: int
    """They are kept when no more than this is charged to them; 0: never."""
    there: bool = False
    """They are made, with their limits."""
    used: Usage = NOTHING_USED
    """What they had counted before."""
    used_first: Usage = NOTHING_USED
    """The same, of the first execution's own."""
    free_since_s: float = 0.0


class Slots:
    """Hands out cgroups, and takes them back."""

    def __init__(
        self,
        hierarchies: Sequence[Hierarchy],
        *,
        owner: str,
        swap: bool,
        counters: CounterFiles,
        rest_s: float = REST_S,
    ) -> None:
        self._hierarchies = hierarchies
        self._owner = owner
        self._swap = swap
        self._counters = counters
        self._rest_s = rest_s
        self._names = itertools.count(1)
        self._free: OrderedDict[Key, deque[Slot]] = OrderedDict()  # none of them is empty
        self._kept = 0
        self._unused: deque[tuple[str, ...]] = deque()
        """The directories of slots that were given up in requests that were never sent."""
        held = {name for tree in hierarchies for name in tree.controllers}
        self._keeps = {"memory", "pids"} <= held and all(tree.version == 1 for tree in hierarchies)

    @property
    def free(self) -> tuple[Slot, ...]:
        """Those that wait for a sandbox."""
        return tuple(slot for slots in self._free.values() for slot in slots)

    def take(self, limits: Limits, *, networked: bool) -> tuple[Slot, tuple[str, ...]]:
        """A slot with these limits, and directories that are now to be removed."""
        key = (limits.memory_bytes, limits.pids, limits.cpus, networked)
        free = self._free.get(key)
        now_s = asyncio.get_running_loop().time()
        unused = self._unused.popleft() if self._unused else ()
        if free and free[0].free_since_s + self._rest_s <= now_s:
            slot = self._longest_free(key)
            if self._count_from_here(slot):
                return slot, unused
            # Somebody has removed it, or at least a part; or we have no descriptors to look at it.
            self._kept -= 1
            self._close(slot)
            unused += slot.plan.directories
        elif self._keeps and self._kept >= KEPT_MAX:
            unused += self._oldest_of_others(key)
        keep = self._keeps and self._kept < KEPT_MAX
        self._kept += keep
        residue_bytes = min(limits.memory_bytes // RESIDUE_SHARE, RESIDUE_BYTES_MAX)
        name = f"c{next(self._names)}"
        slot = Slot(
            key=key,
            plan=plan(
                self._hierarchies,
                owner=self._owner,
                name=name,
                limits=limits,
                swap=self._swap,
                networked=networked,
                kept=keep,
            ),
            files=readings(self._hierarchies, owner=self._owner, name=name),
            residue_bytes=residue_bytes if keep else 0,
        )
        return slot, unused

    def give_back(self, slot: Slot, end: End) -> None:
        """Takes a slot whose sandbox is gone."""
        self._close(slot)
        if end.unused:
            self._unused.append(tuple(end.unused))
        if not slot.residue_bytes:
            return
        if not end.cgroups_kept:
            self._kept -= 1
            return
        slot.there = True
        slot.free_since_s = asyncio.get_running_loop().time()
        self._free.setdefault(slot.key, deque()).append(slot)
        self._free.move_to_end(slot.key)

    def _oldest_of_others(self, key: Key) -> tuple[str, ...]:
        for other in self._free:
            if other != key:
                self._kept -= 1
                return self._longest_free(other).plan.directories
        return ()

    def _longest_free(self, key: Key) -> Slot:
        """Takes it out. What is left has at least one slot of each key."""
        free = self._free[key]
        slot = free.popleft()
        if not free:
            del self._free[key]
        return slot

    def _close(self, slot: Slot) -> None:
        self._counters.close((*slot.files.paths, *slot.files.of_group(1).paths))

    def _count_from_here(self, slot: Slot) -> bool:
        """Notes what it has counted; False when it is no longer there."""
        slot.used = read_usage(slot.files, reset_peak=True, counters=self._counters)
        first = slot.files.of_group(1)
        still = restart_peak(first, counters=self._counters)
        used = read_usage(first, reset_peak=False, counters=self._counters)
        slot.used_first = Usage(cpu_s=used.cpu_s, memory_peak_bytes=still)
        return None not in (slot.used.cpu_s, slot.used.memory_peak_bytes, used.cpu_s, still)
