"""Ranges of user ids: never two living sandboxes with the same, whichever process made them."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.native.id_ranges import (
    FIRST_HOST_ID,
    IDS_PER_SANDBOX,
    RANGES_PER_BLOCK,
    IdRanges,
)
from tiltyard.sandbox.native.provider import NativeProvider

pytestmark = pytest.mark.sandbox


@pytest.fixture
def ranges() -> Iterator[IdRanges]:
    made = IdRanges()
    yield made
    made.close()


def test_more_than_a_block_holds(ranges: IdRanges) -> None:
    taken = {ranges.take() for _ in range(2 * RANGES_PER_BLOCK + 1)}
    assert len(taken) == 2 * RANGES_PER_BLOCK + 1
    assert all((first - FIRST_HOST_ID) % IDS_PER_SANDBOX == 0 for first in taken)
    assert max(taken) + IDS_PER_SANDBOX < 2**32 - 1, "the last number is nobody's id"


def test_what_is_given_back_is_used_again_last(ranges: IdRanges) -> None:
    first = ranges.take()
    ranges.give_back(first)
    others = [ranges.take() for _ in range(RANGES_PER_BLOCK - 1)]
    assert first not in others
    assert ranges.take() == first


def test_two_owners_share_nothing(ranges: IdRanges) -> None:
    second = IdRanges()
    ours = {ranges.take() for _ in range(RANGES_PER_BLOCK)}
    theirs = {second.take() for _ in range(RANGES_PER_BLOCK)}
    second.close()
    assert not ours & theirs


def test_when_all_are_claimed() -> None:
    ranges = IdRanges(blocks=2)
    with pytest.raises(SandboxRefused, match="blocks of user ids"):
        [ranges.claim() for _ in range(3)]  # another process may have one of the two
    ranges.close()


IDS = """
import asyncio, sys
from tiltyard.core.execution import Limit, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider

async def main():
    async with NativeProvider() as provider:
        made = [await provider.create(SandboxSpec(allow_unenforced=set(Limit))) for _ in range(3)]
        for each in made:
            done = await each.run(["cat", "/proc/self/uid_map"])
            print(done.stdout.text.split()[1], flush=True)
        sys.stdin.read()
        for each in made:
            await each.close()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id only")
def test_two_processes_at_once_share_nothing() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", IDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    seen = []
    for each in running:
        assert each.stdout is not None
        seen += [each.stdout.readline().strip() for _ in range(3)]
    for each in running:
        each.communicate(timeout=60)
        assert each.returncode == 0
    assert all(seen)
    assert len(set(seen)) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id only")
async def test_a_range_is_free_again_when_its_sandbox_is_gone(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    before = len(provider._ranges._free)
    made = [await provider.create(spec) for _ in range(2)]
    assert len(provider._ranges._free) == before - 2
    for each in made:
        await each.close()
    assert len(provider._ranges._free) == before
