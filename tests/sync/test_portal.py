"""The thread behind the twins: interruptions, forks, exits, and what is left of it."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiltyard.core.errors import SandboxClosed, SandboxRefused
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sync import Pool, Twin, WrongThread

SPEC = SandboxSpec()


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with Ctrl-C ignored, and that is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class StubbornProvider:
    """Never finishes a sandbox; tells how it was stopped."""

    def __init__(self, act: object = None) -> None:
        self.act = act
        self.begun = 0
        self.stopped = 0

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        self.begun += 1
        if callable(self.act):
            self.act()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1
        raise AssertionError


def interrupt_caller() -> None:
    """What a person's Ctrl-C does, at the moment in which the main thread waits."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tiltyard-sync"]


def test_an_interruption_cancels_the_coroutine_and_waits_for_its_end() -> None:
    provider = StubbornProvider(interrupt_caller)
    with Pool(Twin(provider), warm=0) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.acquire(SPEC)

        assert (provider.begun, provider.stopped) == (1, 1)
        assert pool.counts.in_use == 0
    assert own_threads() == []


def test_an_interruption_while_a_block_is_entered_leaves_nothing_open() -> None:
    provider = StubbornProvider(interrupt_caller)
    with Pool(Twin(provider), warm=0) as pool:
        with pytest.raises(KeyboardInterrupt), pool.sandbox(SPEC):
            pytest.fail("it was entered")

        assert (provider.begun, provider.stopped) == (1, 1)


def test_an_interruption_of_the_block_closes_everything() -> None:
    with pytest.raises(KeyboardInterrupt), Pool(Twin(StubbornProvider())) as pool:
        raise KeyboardInterrupt

    with pytest.raises(SandboxClosed):
        pool.acquire(SPEC)
    assert own_threads() == []


def test_who_waits_while_another_thread_closes_everything_is_told_so() -> None:
    begun = threading.Event()
    provider = StubbornProvider(begun.set)
    with ThreadPoolExecutor(1) as other:
        with Pool(Twin(provider), warm=0) as pool:
            waiting = other.submit(pool.acquire, SPEC)
            assert begun.wait(30)
        with pytest.raises(SandboxClosed):
            waiting.result(30)

    assert provider.stopped == 1


def test_a_pool_that_is_not_open_says_so() -> None:
    pool = Pool(Twin(StubbornProvider()))

    with pytest.raises(SandboxClosed, match="with"):
        pool.acquire(SPEC)
    assert pool.counts.created == 0


def test_it_can_be_opened_again_and_again() -> None:
    for _ in range(5):
        with Pool(Twin(StubbornProvider())) as pool:
            assert pool.counts.waiting == 0
        assert own_threads() == []


def test_a_call_from_the_loops_own_thread_is_refused() -> None:
    seen: list[BaseException] = []

    class Reentrant(StubbornProvider):
        async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
            try:
                pool.acquire(spec)
            except WrongThread as error:
                seen.append(error)
            raise SandboxRefused("no more of this")

    with Pool(Twin(Reentrant()), warm=0) as pool, pytest.raises(SandboxRefused):
        pool.acquire(SPEC)

    assert len(seen) == 1


FORKED = """
import os, sys
from tiltyard.core.execution import SandboxSpec
from tiltyard.sync import NativeProvider, Pool, WrongProcess
SPEC = SandboxSpec(allow_unenforced=frozenset({"cpu", "memory"}))

with NativeProvider() as provider, Pool(provider, warm=0) as pool, pool.sandbox(SPEC) as sandbox:
    child = os.fork()
    if child == 0:
        for use in (lambda: sandbox.run(["true"]), lambda: sandbox.alive):
            try:
                use()
            except WrongProcess as error:
                print("refused:", "fork" in str(error), flush=True)
        with NativeProvider() as own:
            fresh = own.create(SPEC)
            print("own:", fresh.run(["true"]).ok, flush=True)
            fresh.close()
        sys.exit(7)  # through all the blocks of the parent
    print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("parent:", sandbox.run(["true"]).ok, flush=True)
"""


def ran(source: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.sandbox
def test_a_fork_is_refused_and_closes_nothing_of_its_parent() -> None:
    done = ran(FORKED)

    said = ["refused: True", "refused: True", "own: True", "child: 7", "parent: True"]
    assert (done.stderr, done.stdout.splitlines(), done.returncode) == ("", said, 0)


FORGOTTEN = """
import sys
from tiltyard.core.execution import SandboxSpec
from tiltyard.sync import NativeProvider, Pool
SPEC = SandboxSpec(allow_unenforced=frozenset({"cpu", "memory"}))

provider = NativeProvider().__enter__()
pool = Pool(provider, warm=1).__enter__()
sandbox = pool.acquire(SPEC)
print(sandbox.run(["echo", "left open"]).stdout.text, end="")
"""


@pytest.mark.slow
@pytest.mark.sandbox
def test_what_nobody_closes_ends_with_the_interpreter() -> None:
    done = ran(FORGOTTEN + "sys.exit(3)")

    assert (done.stderr, done.stdout, done.returncode) == ("", "left open\n", 3)


INTERRUPTED = """
import os, signal, sys, threading
from tiltyard.core.execution import SandboxSpec
from tiltyard.sync import NativeProvider, Pool
SPEC = SandboxSpec(allow_unenforced=frozenset({"cpu", "memory"}))

with NativeProvider() as provider, Pool(provider, warm=0) as pool, pool.sandbox(SPEC) as sandbox:
    def watch():
        beside = pool.acquire(SPEC)
        while not any(entry.name == "begun" for entry in sandbox.list()):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        pool.release(beside)
    threading.Thread(target=watch).start()
    try:
        sandbox.run(["sh", "-c", "touch begun; sleep 600"], timeout_s=600)
    except KeyboardInterrupt:
        seen = sandbox.run(["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout.text.split()
        print("sleeping:", "sleep" in seen)
"""


@pytest.mark.slow
@pytest.mark.sandbox
def test_ctrl_c_kills_the_program_and_the_sandbox_goes_on() -> None:
    done = ran(INTERRUPTED)

    assert (done.stderr, done.stdout, done.returncode) == ("", "sleeping: False\n", 0)
