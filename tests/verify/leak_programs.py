"""Twenty programs that leak or only look like it. Each defines `f(xs)`, called many times."""

from dataclasses import dataclass
from textwrap import dedent

from tiltyard.core.checks import Checks, Inputs, Leaks
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, Split, Task

NUMBERS = "def generate(rng, size):\n    return ([rng.randrange(10**9) for _ in range(size)],)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`leaks`: what grows without end, as the evidence names it; empty when nothing does."""

    name: str
    leaks: str
    source: str


def _program(name: str, leaks: str, source: str) -> Program:
    return Program(name=name, leaks=leaks, source=dedent(source))


_C = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
"""

PROGRAMS = (
    _program("plain", "", "def f(xs):\n    return sum(xs)\n"),
    _program(
        "list kept",
        "private memory",
        """
        kept = []
        def f(xs):
            kept.append(list(xs))
            return sum(xs)
        """,
    ),
    _program(
        "cache without bound",
        "private memory",
        """
        cache = {}
        def f(xs):
            return cache.setdefault(tuple(xs), sum(xs))
        """,
    ),
    _program(
        "cache of 256",
        "",
        """
        import functools
        @functools.lru_cache(maxsize=256)
        def total(xs):
            return sum(xs)
        def f(xs):
            return total(tuple(xs))
        """,
    ),
    _program(
        "cache of 700",
        "",
        """
        from collections import OrderedDict
        cache = OrderedDict()
        def f(xs):
            cache[tuple(xs)] = list(xs)
            if len(cache) > 700:
                cache.popitem(last=False)
            return sum(xs)
        """,
    ),
    _program(
        "warm-up of 300 calls",
        "",
        """
        tables = []
        def f(xs):
            if len(tables) < 300:
                tables.append([x + 1 for x in xs] * 8)
            return sum(xs)
        """,
    ),
    _program(
        "one in fifty",
        "private memory",
        """
        calls, kept = 0, []
        def f(xs):
            global calls
            calls += 1
            if calls % 50 == 0:
                kept.append(bytearray(20_000))
            return sum(xs)
        """,
    ),
    _program(
        "only after 200 calls",
        "private memory",
        """
        calls, kept = 0, []
        def f(xs):
            global calls
            calls += 1
            if calls > 200:
                kept.append(bytearray(2_000))
            return sum(xs)
        """,
    ),
    _program(
        "cycles, collected",
        "",
        """
        def f(xs):
            knot = [list(xs)]
            knot.append(knot)
            return sum(xs)
        """,
    ),
    _program(
        "cycles, never collected",
        "private memory",
        """
        import gc
        gc.disable()
        def f(xs):
            knot = [list(xs)]
            knot.append(knot)
            return sum(xs)
        """,
    ),
    _program(
        "large and given back",
        "",
        """
        def f(xs):
            block = bytearray(len(xs) * 50_000)
            return sum(xs) + block[0]
        """,
    ),
    _program(
        "C: malloc",
        "private memory",
        dedent(_C)
        + dedent(
            """
            def f(xs):
                libc.memset(libc.malloc(512), 1, 512)
                return sum(xs)
            """
        ),
    ),
    _program(
        "C: malloc and free",
        "",
        dedent(_C)
        + dedent(
            """
            def f(xs):
                block = libc.malloc(100_000)
                libc.memset(block, 1, 100_000)
                libc.free(block)
                return sum(xs)
            """
        ),
    ),
    _program(
        "mapping",
        "private memory",
        """
        import mmap
        kept = []
        def f(xs):
            kept.append(mmap.mmap(-1, 4096))
            kept[-1][0] = 1
            return sum(xs)
        """,
    ),
    _program(
        "files of its own",
        "memory held in all",
        """
        import os
        calls = 0
        def f(xs):
            global calls
            calls += 1
            with open(f"/tmp/{calls}", "wb") as file:
                file.write(bytes(5_000))
            return sum(xs)
        """,
    ),
    _program(
        "descriptors",
        "descriptors",
        """
        import os
        def f(xs):
            os.dup(1)
            return sum(xs)
        """,
    ),
    _program(
        "descriptors, one in fifty",
        "descriptors",
        """
        import os
        calls = 0
        def f(xs):
            global calls
            calls += 1
            if calls % 50 == 49:
                os.open("/dev/null", os.O_RDONLY)
            return sum(xs)
        """,
    ),
    _program(
        "descriptors, closed",
        "",
        """
        import os
        def f(xs):
            for one in [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]:
                os.close(one)
            return sum(xs)
        """,
    ),
    _program(
        "threads",
        "threads",
        """
        import threading
        def f(xs):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            return sum(xs)
        """,
    ),
    _program(
        "pool of threads",
        "",
        """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(max_workers=6)
        def f(xs):
            return sum(pool.map(int, xs))
        """,
    ),
)


def leak_task(program: Program) -> Task:
    """A task that has nothing hidden: only what grows is looked at."""
    return Task(
        id=TaskId(program.name),
        family="leaks",
        split=Split.TRAIN,
        revision="1",
        instruction="",
        starter="",
        reference=PROGRAMS[0].source,
        visible=CallSuite(cases=()),
        hidden=CallSuite(cases=()),
        checks=Checks(inputs=Inputs(source=NUMBERS, target="f"), leaks=Leaks()),
    )
