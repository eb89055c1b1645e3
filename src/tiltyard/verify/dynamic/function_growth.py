"""Functions beside each other for `growth`: each call in a run of its own that loads the module.

The floor is a function that does nothing and is called with the same input: it takes off what
reading that costs.
"""

from tiltyard.core.checks import Growth
from tiltyard.core.errors import UnsoundTask
from tiltyard.core.task import CallSuite, Compare, Task
from tiltyard.core.values import Value
from tiltyard.core.verdict import Component
from tiltyard.verify.compare import same
from tiltyard.verify.crossing import beside_the_loop
from tiltyard.verify.dynamic import growth
from tiltyard.verify.dynamic.bench import Bench, Called, Generator
from tiltyard.verify.split.candidate import Gone, Reply, words_of_reply


async def measure(bench: Bench, task: Task, *, source: bytes, seed: int) -> tuple[Component, ...]:
    """How a function grows. Raises `SandboxError` or `GraderError` when the fault is ours."""
    limits, inputs = growth.asked(task)
    if not inputs.target:
        raise UnsoundTask(f"task {task.id}: its inputs are for no function.", fix="name `target`.")
    async with bench.generator(inputs, seed=seed) as generator:
        contest = FunctionContest(bench, task, source, generator=generator, limits=limits)
        return (await growth.GrowthMeter(contest, limits, seed=seed).measure(),)


class FunctionContest:
    """A solution's function and its reference's."""

    veil = ""

    def __init__(
        self, bench: Bench, task: Task, source: bytes, *, generator: Generator, limits: Growth
    ) -> None:
        """`generator` is the task's, which makes calls of one function."""
        self.bench = bench
        self.task = task
        self.limits = limits
        self.target = generator.inputs.target
        self.sources = {
            "floor": f"globals()[{self.target!r}] = lambda *_: None\n".encode(),
            "reference": task.reference.encode(),
            "solution": source,
        }
        self._generator = generator

    async def turn(self, size: int) -> "FunctionTurn | None":
        """As `Contest.turn`."""
        request = await self._generator.request(size)
        return None if request is None else FunctionTurn(self, request)


class FunctionTurn:
    """One new input of a function."""

    def __init__(self, contest: FunctionContest, request: bytes) -> None:
        self._contest = contest
        self._request = request
        self._called: dict[str, Called] = {}

    async def floor_s(self) -> float:
        """As `Turn.floor_s`."""
        return (await self._call("floor")).cpu_s

    async def call(self, side: str) -> growth.Took:
        """As `Turn.call`."""
        called = self._called[side] = await self._call(side)
        finished = isinstance(called.reply, Reply) and not called.over
        return growth.Took(cpu_s=called.cpu_s, finished=finished, over=called.over)

    async def wrong(self) -> str:
        """As `Turn.wrong`."""
        solution = self._called["solution"]
        reference = self._called.get("reference")
        if isinstance(solution.reply, Gone):
            return words_of_reply(solution.reply)
        if reference is None or isinstance(reference.reply, Gone):
            return ""
        replies = (reference.reply, solution.reply)
        ways = ways_to_compare(self._contest.task, self._contest.target)
        right = await beside_the_loop(
            sum(each.size_bytes for each in replies), lambda both: agree(*both, ways), replies
        )
        return "" if right else words_of_reply(solution.reply)

    async def _call(self, side: str) -> Called:
        contest = self._contest
        return await contest.bench.call_cold(
            module=contest.task.module,
            source=contest.sources[side],
            request=self._request,
            cpu_s_max=growth.cut_s(contest.limits),
            wall_s=growth.wall_s(contest.limits),
        )


def ways_to_compare(task: Task, target: str) -> frozenset[Compare]:
    """How the hidden suite compares what a function returns; exactly, where it does not say."""
    cases = task.hidden.cases if isinstance(task.hidden, CallSuite) else ()
    ways = frozenset(case.compare for case in cases if case.target == target)
    return ways or frozenset({Compare.EXACT})


def agree(reference: Reply, solution: Reply, ways: frozenset[Compare]) -> bool:
    """Whether two replies are the same answer. Where any of several are right, all values are."""
    if reference.kind != solution.kind:
        return False
    if reference.kind == "raised":
        return reference.rest[:1] == solution.rest[:1]
    if reference.kind != "value" or Compare.ANY_OF in ways:
        return True
    one, other = reference.rest[0], solution.rest[0]
    if Compare.UNORDERED in ways:
        one, other = _in_some_order(one), _in_some_order(other)
    return same(one, other, tolerance=1e-9)


def _in_some_order(value: Value) -> Value:
    return sorted(value, key=repr) if isinstance(value, (list, tuple)) else value
