"""The twins have every method of the asynchronous classes, and do what those do."""

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tiltyard import sync
from tiltyard.core.errors import SandboxClosed, SandboxFileError, SandboxRefused
from tiltyard.core.execution import (
    MIB,
    Limit,
    Limits,
    Network,
    NetworkMode,
    Reason,
    SandboxSpec,
    Stdin,
)
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.setups import SetUp, SetUps
from tiltyard.sandbox.snapshots import Snapshot
from tiltyard.sandbox.supervised import Sandbox

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=128 * MIB, pids=32, disk_bytes=8 * MIB, inodes=1024),
    allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
)
NOT_TWINNED = {
    "Chunks": {"begin_with", "feed", "close"},
    "Files": {"still"},
    "NativeProvider": {"aclose", "interpreter"},
}
"""What only Tiltyard itself needs, and what `with` does; as LEFT_OUT of the program has it."""
TWINS: dict[type, type] = {
    get_args(twin.__orig_bases__[0])[0]: twin
    for twin in (getattr(sync, name) for name in sync.__all__)
    if issubclass(twin, sync.Twin) and twin not in {sync.Twin, sync.OpenTwin}
}
"""The asynchronous classes, with their twins."""


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tiltyard-sync"]


def public(class_: type) -> set[str]:
    return {name for name in dir(class_) if not name.startswith("_")}


def parameters(function: object) -> list[tuple[str, object]]:
    assert callable(function)
    return [
        (each.name, each.default)
        for each in inspect.signature(inspect.unwrap(function)).parameters.values()
    ]


def lacking(real: type, twin: type) -> set[str]:
    return public(real) - public(twin) - NOT_TWINNED.get(real.__name__, set())


def test_every_class_of_the_room_has_its_twin() -> None:
    assert {NativeProvider, Pool, Sandbox, SetUps, Snapshot} <= TWINS.keys()


@pytest.mark.parametrize("real", TWINS, ids=lambda each: each.__name__)
def test_no_method_is_missing(real: type) -> None:
    twin = TWINS[real]
    left_out = NOT_TWINNED.get(real.__name__, set())

    assert not lacking(real, twin)
    assert left_out <= public(real), "a method that is left out is no more"
    for name in public(real) - left_out:
        member = inspect.getattr_static(real, name)
        if not isinstance(member, property):
            assert parameters(member) == parameters(inspect.getattr_static(twin, name)), name


def test_a_new_method_would_be_missed() -> None:
    class Grown(Pool):
        async def new(self) -> None:
            """A method that came later."""

    assert lacking(Grown, sync.Pool) == {"new"}


@pytest.mark.slow
def test_the_twins_are_those_that_the_program_makes(repository: Path) -> None:
    program = repository / "scripts" / "make_twins.py"
    done = subprocess.run(
        [sys.executable, str(program), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.sandbox
def test_programs_files_and_properties() -> None:
    with sync.NativeProvider() as provider, sync.Pool(provider, warm=0) as pool:
        with pool.sandbox(SPEC) as sandbox:
            sandbox.write("greeting", "hello")
            done = sandbox.run(["cat", "greeting"], timeout_s=10)
            missing = sandbox.run(["false"])
            counts = pool.counts

            assert (done.reason, done.stdout.text) == (Reason.EXIT, "hello")
            assert missing.exit_code == 1
            assert [entry.name for entry in sandbox.list()] == ["greeting"]
            assert sandbox.alive
            assert sandbox.enforced == provider.enforced
            assert counts.in_use == 1
        assert not sandbox.alive
        with pytest.raises(SandboxClosed):
            sandbox.run(["true"])
        kept = pool.acquire(SPEC)
        pool.release(kept)
        pool.release(kept)

    assert own_threads() == []
    assert not kept.alive
    assert kept.time_left_s > 0
    with pytest.raises(SandboxClosed):
        kept.run(["true"])


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_way_out_is_looked_at_without_await() -> None:
    network = Network(mode=NetworkMode.OPEN, bandwidth_up_bytes_s=1_000_000)
    with sync.NativeProvider() as provider, sync.Pool(provider, warm=0) as pool:
        with pool.sandbox(replace(SPEC, network=network)) as sandbox:
            egress = sandbox.egress
            assert egress is not None
            assert egress.bandwidth().up_bytes_s == 1_000_000
            assert (egress.decisions, egress.counts.denied) == ((), 0)
        with pool.sandbox(SPEC) as sandbox:
            assert sandbox.egress is None


@pytest.mark.slow
@pytest.mark.sandbox
def test_errors_are_those_of_the_asynchronous_classes() -> None:
    absurd = SandboxSpec(limits=Limits(memory_bytes=1))
    with sync.NativeProvider() as provider, sync.Pool(provider, warm=0) as pool:
        with pytest.raises(SandboxRefused, match="memory_bytes"), pool.sandbox(absurd):
            pass
        with pool.sandbox(SPEC) as sandbox:
            with pytest.raises(SandboxFileError, match="nowhere"):
                sandbox.read("nowhere")
            with pytest.raises(ValueError, match="argv"):
                sandbox.run([])
        with pytest.raises(ZeroDivisionError), pool.sandbox(SPEC) as sandbox:
            _ = 1 / 0

        assert not sandbox.alive
        assert pool.counts.in_use == 0
    with pytest.raises(ValueError, match="in_use_max"):
        sync.Pool(provider, in_use_max=0)


@pytest.mark.slow
@pytest.mark.sandbox
def test_many_threads_may_share_a_pool() -> None:
    with sync.NativeProvider() as provider, sync.Pool(provider, in_use_max=3, warm=0) as pool:

        def attempt(number: int) -> str:
            with pool.sandbox(SPEC) as sandbox:
                return sandbox.run(["echo", str(number)]).stdout.text.strip()

        with ThreadPoolExecutor(8) as threads:
            said = list(threads.map(attempt, range(8)))

    assert said == [str(number) for number in range(8)]


@pytest.mark.slow
@pytest.mark.sandbox
async def test_it_works_inside_a_running_event_loop() -> None:
    assert asyncio.get_running_loop().is_running()
    with (
        sync.NativeProvider() as provider,
        sync.Pool(provider, warm=0) as pool,
        pool.sandbox(SPEC) as sandbox,
    ):
        assert sandbox.run(["true"]).ok


@pytest.mark.slow
@pytest.mark.sandbox
def test_two_providers_share_a_thread_and_each_ends_alone() -> None:
    with sync.NativeProvider() as first:
        with sync.NativeProvider() as second:
            one, two = first.create(SPEC), second.create(SPEC)
            assert len(own_threads()) == 1
        assert not two.alive
        assert one.run(["true"]).ok
        one.close()


@pytest.mark.slow
@pytest.mark.sandbox
def test_snapshots_forks_and_set_ups() -> None:
    with (
        sync.NativeProvider() as provider,
        sync.Pool(provider, warm=0) as pool,
        sync.SetUps(pool) as set_ups,
    ):
        with pool.sandbox(SPEC) as sandbox:
            sandbox.write("kept", "frozen")
            with sandbox.snapshot() as snapshot:
                forks = pool.fork(snapshot, count=2)
                assert [each.read("kept") for each in forks] == [b"frozen"] * 2
                for each in forks:
                    pool.release(each)
            assert [change.path for change in sandbox.diff()] == ["/workspace/kept"]
        done = SetUp(commands=(("touch", "done"),))
        with set_ups.prepared(SPEC, done) as prepared, pool.sandbox(prepared) as sandbox:
            assert [entry.name for entry in sandbox.list()] == ["done"]


@pytest.mark.slow
@pytest.mark.sandbox
def test_programs_that_run_beside_the_caller() -> None:
    with (
        sync.NativeProvider() as provider,
        sync.Pool(provider, warm=0) as pool,
        pool.sandbox(SPEC) as sandbox,
    ):
        with sandbox.stream(["sh", "-c", "echo one; echo two; exit 3"]) as process:
            said = b"".join(chunk.data for chunk in process.chunks())
            assert (said, process.wait().exit_code) == (b"one\ntwo\n", 3)
        adder = sandbox.spawn(["cat"], stdin=Stdin.STREAMED)
        assert sandbox.processes() == (adder,)
        assert sandbox.process(adder.id) == adder
        assert adder.write(b"typed")
        adder.close_stdin()
        assert adder.wait().stdout.text == "typed"
