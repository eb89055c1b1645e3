"""What a solution costs is billed from outside: every way to hide it, beside its honest twin."""

from textwrap import dedent

import pytest

from tiltyard.core.checks import Checks
from tiltyard.core.verdict import Component, Gap
from tiltyard.verify.verifier import Verifier
from verify.measured import components, measured_task, verdict_on

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

QUICK = "def f(n):\n    return n\n"
WORK = """
def work(n):
    for _ in range(3_000_000):
        pass
    return n
"""
HONEST = WORK + "def f(n):\n    return work(n)\n"
CASES = (((7,), 7), ((8,), 8))
CPU_TASK = measured_task(QUICK, Checks(cost=True), cases=CASES)

HIDDEN_CPU = {
    "patched clock": """
        import time
        for name in ("time", "perf_counter", "process_time", "thread_time", "monotonic"):
            setattr(time, name, lambda: 0.0)
        def f(n):
            return work(n)
        """,
    "a cache": """
        import functools
        f = functools.cache(work)
        """,
    "precomputed at import": """
        TABLE = {n: work(n) for n in (7, 8)}
        def f(n):
            return TABLE[n]
        """,
    "a thread": """
        import threading
        def f(n):
            thread = threading.Thread(target=work, args=(n,))
            thread.start()
            thread.join()
            return n
        """,
    "a child": """
        import os
        def f(n):
            pid = os.fork()
            if pid == 0:
                work(n)
                os._exit(0)
            os.waitpid(pid, 0)
            return n
        """,
    "a daemon": """
        import os
        def f(n):
            done, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                if os.fork() == 0:
                    os.setsid()
                    work(n)
                    os.write(tell, b"x")
                os._exit(0)
            os.waitpid(pid, 0)
            os.read(done, 1)
            return n
        """,
}

HELD = """
def f(n):
    block = bytearray(SIZE)
    for at in range(0, SIZE, 4096):
        block[at] = 1
    return n
"""
HIDDEN_MEMORY = {
    "a mapping": """
        import mmap
        def f(n):
            block = mmap.mmap(-1, SIZE)
            for at in range(0, SIZE, 4096):
                block[at] = 1
            block.close()
            return n
        """,
    "a file in memory": """
        import os
        def f(n):
            with os.fdopen(os.memfd_create("x"), "wb") as file:
                for _ in range(SIZE >> 20):
                    file.write(bytes(1 << 20))
            return n
        """,
    "shared memory": """
        import os
        def f(n):
            with open("/dev/shm/x", "wb") as file:
                for _ in range(SIZE >> 20):
                    file.write(bytes(1 << 20))
                file.flush()
            os.unlink("/dev/shm/x")
            return n
        """,
    "a child": """
        import os
        def f(n):
            pid = os.fork()
            if pid == 0:
                block = bytearray(SIZE)
                for at in range(0, SIZE, 4096):
                    block[at] = 1
                os._exit(0)
            os.waitpid(pid, 0)
            return n
        """,
}


async def cost(verifier: Verifier, source: str, kind: str) -> Component:
    got = components(await verdict_on(verifier, CPU_TASK, source))[kind]
    assert got.raw is not None, got.evidence
    return got


@pytest.mark.usefixtures("billed")
async def test_hidden_cpu_time_is_billed(verifier: Verifier) -> None:
    honest = await cost(verifier, HONEST, "cost_cpu")
    ratios: dict[str, float] = {}
    for way, source in HIDDEN_CPU.items():
        cheat = await cost(verifier, WORK + dedent(source), "cost_cpu")
        ratios[way] = (cheat.raw or 0.0) / (honest.raw or 1.0)
        assert cheat.normalised == 0.0  # the reference does nothing
    assert {way for way, ratio in ratios.items() if not 0.5 < ratio < 2.0} == set(), ratios


@pytest.mark.usefixtures("billed")
async def test_hidden_memory_is_billed(verifier: Verifier) -> None:
    size = f"SIZE = {24 << 20}\n"
    honest = await cost(verifier, size + HELD, "cost_memory")
    ratios: dict[str, float] = {}
    for way, source in HIDDEN_MEMORY.items():
        cheat = await cost(verifier, size + dedent(source), "cost_memory")
        ratios[way] = (cheat.raw or 0.0) / (honest.raw or 1.0)
        assert cheat.normalised == 0.0
    assert {way for way, ratio in ratios.items() if not 0.7 < ratio < 1.4} == set(), ratios


@pytest.mark.usefixtures("billed")
async def test_what_goes_through_files_is_billed(verifier: Verifier) -> None:
    source = """
    def f(n):
        with open("/tmp/x", "wb") as file:
            for _ in range(8):
                file.write(bytes(1 << 20))
        with open("/tmp/x", "rb") as file:
            while file.read(1 << 20):
                pass
        return n
    """
    got = await cost(verifier, dedent(source), "cost_io")
    assert got.raw is not None
    assert 0.9 < got.raw / (2 * len(CASES) * (8 << 20)) < 1.3


@pytest.mark.usefixtures("billed")
async def test_as_good_as_its_reference(verifier: Verifier) -> None:
    task = measured_task(HONEST, Checks(cost=True), cases=CASES)
    got = components(await verdict_on(verifier, task, HONEST + "\n# another text\n"))
    assert {name: got[name].normalised for name in ("cost_memory", "cost_io")} == {
        "cost_memory": 1.0,
        "cost_io": 1.0,
    }
    assert (got["cost_cpu"].normalised or 0.0) > 0.5
    # What weights that are `relative` need, and `show` tells.
    assert all(each.reference is not None for each in got.values())


async def test_nothing_is_measured_of_a_wrong_answer(verifier: Verifier) -> None:
    verdict = await verdict_on(verifier, CPU_TASK, "def f(n):\n    return 7\n")
    assert [each.gap for each in verdict.components] == [Gap.NOT_POSSIBLE] * 4


async def test_where_nothing_counts_it_says_so(verifier: Verifier, by_cgroup: bool) -> None:
    if by_cgroup:
        pytest.skip("cgroups count here")
    verdict = await verdict_on(verifier, CPU_TASK, QUICK)
    assert [each.gap for each in verdict.components] == [Gap.UNRESOLVED] * 4
    assert all("no cgroup counts" in each.evidence[0].message for each in verdict.components)


async def test_nothing_is_measured_unasked(verifier: Verifier) -> None:
    task = measured_task(QUICK, Checks(), cases=CASES)
    assert (await verdict_on(verifier, task, QUICK)).components == ()
