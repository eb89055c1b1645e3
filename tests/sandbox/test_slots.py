"""What one sandbox leaves behind and another gets: cgroups and network namespaces, and no trace."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.successors import python, successor
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import MIB, Limits, Network, NetworkMode, Reason, SandboxSpec
from tiltyard.core.ids import SnapshotId
from tiltyard.sandbox.native.cgroups import Hierarchy
from tiltyard.sandbox.native.counters import CounterFiles
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.launcher import End
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.native.slots import KEPT_MAX, REST_S, Slot, Slots
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

KEPT = End(cgroups_kept=True)
LIMITS = Limits(memory_bytes=64 * MIB, pids=8)
OTHER = Limits(memory_bytes=64 * MIB, pids=9)

first_version = pytest.mark.skipif(
    not usable_hierarchies() or any(tree.version == 2 for tree in usable_hierarchies()),
    reason="only cgroups of v1 are used again, and there is none to write to",
)


@pytest.fixture
def counters() -> Iterator[CounterFiles]:
    opened = CounterFiles()
    yield opened
    opened.close_all()


def slots_below(base: Path, *, counters: CounterFiles, rest_s: float = 0.0) -> Slots:
    names = frozenset({"memory", "pids", "cpu", "cpuacct"})
    tree = Hierarchy(version=1, controllers=names, base=base)
    return Slots([tree], owner="owner", swap=False, counters=counters, rest_s=rest_s)


@pytest.fixture
def made(tmp_path: Path, counters: CounterFiles) -> Slots:
    return slots_below(tmp_path, counters=counters)


def new(slots: Slots, limits: Limits = LIMITS) -> Slot:
    slot, unused = slots.take(limits, networked=False)
    assert unused == ()
    return slot


def put_back(slots: Slots, slot: Slot) -> None:
    """As the launcher leaves it: its files are there."""
    for files in (slot.files, slot.files.of_group(1)):
        for path in filter(None, files.paths):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text("0\n")
    slots.give_back(slot, KEPT)


async def test_a_slot_is_used_again_by_the_same_limits_only(made: Slots) -> None:
    first = new(made)
    assert not first.there
    put_back(made, first)
    other, _ = made.take(OTHER, networked=False)
    networked, _ = made.take(LIMITS, networked=True)
    assert first not in (other, networked)
    assert new(made) is first
    assert first.there
    assert new(made) is not first, "nobody else has it meanwhile"


async def test_one_that_is_not_kept_is_not_used_again(made: Slots) -> None:
    first = new(made)
    made.give_back(first, End(oom_kills=1))
    second = new(made)
    assert second is not first
    assert second.plan.directories != first.plan.directories


async def test_a_slot_rests_before_it_is_used_again(tmp_path: Path, counters: CounterFiles) -> None:
    """Until the kernel's period is over its CPU quota may be used up."""
    slots = slots_below(tmp_path, counters=counters, rest_s=3600.0)
    first = new(slots)
    put_back(slots, first)
    assert new(slots) is not first


async def test_one_that_cannot_be_read_is_removed(tmp_path: Path, counters: CounterFiles) -> None:
    slots = slots_below(tmp_path, counters=counters)
    first = new(slots)
    put_back(slots, first)
    Path(first.files.of_group(1).cpu).unlink()
    second, unused = slots.take(LIMITS, networked=False)
    assert second is not first
    assert unused == first.plan.directories
    assert len(counters) == 0


async def test_only_so_many_are_kept(made: Slots) -> None:
    slots = [new(made) for _ in range(KEPT_MAX)]
    assert all(slot.residue_bytes for slot in slots)
    beyond = new(made)
    assert beyond.residue_bytes == 0, "its cgroups are removed at its end"
    made.give_back(beyond, End())
    for slot in slots:
        put_back(made, slot)
    assert new(made) in slots


async def test_other_limits_make_room_for_those_that_are_asked_for(made: Slots) -> None:
    slots = [new(made) for _ in range(KEPT_MAX)]
    for slot in slots:
        put_back(made, slot)
    other, unused = made.take(OTHER, networked=False)
    assert unused == slots[0].plan.directories
    assert other.residue_bytes
    again = {new(made) for _ in range(KEPT_MAX)}
    assert slots[0] not in again
    assert again > set(slots[1:])


async def test_what_a_request_that_was_not_sent_would_have_removed_goes_with_the_next(
    made: Slots,
) -> None:
    slots = [new(made) for _ in range(KEPT_MAX)]
    for slot in slots:
        put_back(made, slot)
    other, unused = made.take(OTHER, networked=False)
    made.give_back(other, End(unused=unused))
    _, again = made.take(LIMITS, networked=False)
    assert again == unused
    assert made.take(LIMITS, networked=False)[1] == ()


async def test_limits_whose_slots_are_all_in_use_make_no_room(made: Slots) -> None:
    slots = [new(made) for _ in range(KEPT_MAX)]
    put_back(made, slots[0])
    assert new(made) is slots[0]
    other, unused = made.take(OTHER, networked=False)
    assert (other.residue_bytes, unused) == (0, ())


async def test_on_v2_nothing_is_used_again(tmp_path: Path) -> None:
    names = frozenset({"memory", "pids", "cpu"})
    tree = Hierarchy(version=2, controllers=names, base=tmp_path)
    slots = Slots([tree], owner="owner", swap=False, counters=CounterFiles())
    assert new(slots).residue_bytes == 0


def places(sandbox: Sandbox) -> tuple[str, ...]:
    slot = sandbox._hold._slot  # type: ignore[attr-defined] # nobody else tells which they are
    return tuple(slot.plan.directories)


async def next_in(provider: NativeProvider, spec: SandboxSpec, wanted: tuple[str, ...]) -> Sandbox:
    """A sandbox with the cgroups of one that has ended; they rest for a moment first."""

    async def has_them(sandbox: Sandbox) -> bool:
        return places(sandbox) == wanted

    return await successor(provider, spec, has_them)


BUSY = """
import time
held = bytearray(48 << 20)
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
"""


@first_version
async def test_nothing_that_was_used_before_is_counted_again(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    first = await provider.create(replace(spec, limits=replace(spec.limits, pids=4)))
    await first.run(["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done"])
    assert first.usage().pids_refused > 0
    await python(first, BUSY)
    await first.close()
    second = await next_in(provider, first.spec, places(first))
    assert second.usage().pids_refused == 0
    assert (second.usage().cpu_s or 0) < 0.15
    assert (second.usage().memory_peak_bytes or 0) < 16 * MIB
    done = await second.run(["false"])
    assert (done.reason, done.exit_code) == (Reason.EXIT, 1)
    assert done.cpu_s < 0.15
    assert done.memory_peak_bytes < 16 * MIB
    assert second.pids() == 0
    await second.close()


@first_version
async def test_the_peak_of_the_one_before_is_not_shown(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    first = await provider.create(spec)
    await python(first, BUSY)
    assert (first.usage().memory_peak_bytes or 0) > 48 * MIB
    await first.close()
    second = await next_in(provider, spec, places(first))
    assert (second.usage().memory_peak_bytes or 0) < 16 * MIB
    await second.close()


@first_version
async def test_the_limits_hold_for_the_second_as_for_the_first(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    first = await provider.create(spec)
    await first.close()
    second = await next_in(provider, spec, places(first))
    greedy = await second.run(["python3", "-c", f"bytearray({2 * spec.limits.memory_bytes})"])
    assert greedy.reason is Reason.OOM
    await second.close()
    third = await provider.create(spec)
    # A count of kills that is not 0 is nobody else's.
    assert not any(Path(place).exists() for place in places(first))
    done = await third.run(["false"])
    assert done.reason is Reason.EXIT
    await third.close()


@first_version
async def test_groups_beyond_the_first_go_with_their_sandbox(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    first = await provider.create(spec)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(first.run(["sleep", "0.2"]))
    assert [each for place in places(first) for each in Path(place).glob("e3")]
    await first.close()
    left = [each.name for place in places(first) for each in Path(place).glob("e*/")]
    assert set(left) == {"e1"}


@first_version
async def test_what_is_kept_goes_with_the_provider(image: Image, spec: SandboxSpec) -> None:
    async with NativeProvider(image=image) as provider:
        for _ in range(3):
            await (await provider.create(spec)).close()
        assert provider._slots is not None
        kept = [place for slot in provider._slots.free for place in slot.plan.directories]
        assert kept
        assert all(Path(place).exists() for place in kept)
    assert not any(Path(place).exists() for place in kept)


async def test_what_is_refused_takes_nothing(provider: NativeProvider, spec: SandboxSpec) -> None:
    def held() -> tuple[int, int]:
        assert provider._slots is not None
        return len(provider._ranges._free), provider._slots._kept

    await (await provider.create(spec)).close()
    before = held()
    for refused in (
        replace(spec, snapshot=SnapshotId("nobody's")),
        replace(spec, network=Network(mode=NetworkMode.ALLOW, allow=("a/b",))),
        replace(spec, image="none"),
    ):
        with pytest.raises(SandboxRefused):
            await provider.create(refused)
    assert held() == before


@first_version
async def test_one_that_somebody_removed_is_not_used_again(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    first = await provider.create(spec)
    await first.close()
    (where,) = {place for place in places(first) if "memory" in place}
    Path(where, "e1").rmdir()
    Path(where).rmdir()
    await asyncio.sleep(REST_S)  # now it would be used
    second = await provider.create(spec)
    assert places(second) != places(first)
    await second.close()
