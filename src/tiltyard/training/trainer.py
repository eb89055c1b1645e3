"""Reinforcement learning of the built-in policy on the repair pack, with verified rewards.

Theory of operation. Two batches are under way at any time: while the sandboxes verify one, the
learner samples the next or learns from the one before. The learner's calls are made in a fixed
order, and each batch starts when a certain call has returned, never when a clock says so; so the
same plan gives the same run, however fast the machine is. The price is that a batch is learned from
by weights one update younger than those that sampled it, which the clipped objective is made for.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import GroupId
from tiltyard.core.task import Split, Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import Judge, Record, SharedVerdicts, attempts, run_attempts
from tiltyard.sandbox.pool import Pool
from tiltyard.tasks.repair import TRAINED_FAMILIES, UNSEEN_FAMILIES, make_task
from tiltyard.training.answer import read_answer
from tiltyard.training.batched_policy import batched_policy
from tiltyard.training.evaluation import Evaluation, evaluation_of
from tiltyard.training.exchange import LearnedRollout, Question, Reply
from tiltyard.training.learner_client import LearnerClient

FIRST_SEED = 100_000_000
"""Training seeds from here on are for reinforcement learning; the warm start uses lower ones."""
DRAWS_PER_TASK_MAX = 20
VALIDATION_FIRST_SEED, TEST_FIRST_SEED, UNSEEN_FIRST_SEED = 1_000_000, 2_000_000, 3_000_000
"""Held-out seeds. Which weights are kept is chosen on the first; the others are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """One run of reinforcement learning. Equal plans give equal runs."""

    seed: int = 0
    families: tuple[str, ...] = TRAINED_FAMILIES
    unseen_families: tuple[str, ...] = UNSEEN_FAMILIES
    updates: int = 120
    groups: int = 64
    """Tasks per update."""
    samples: int = 8
    """Rollouts per task: one group."""
    evaluate_every: int = 10
    """Updates between two looks at the validation tasks."""
    validation_tasks: int = 150
    test_tasks: int = 400
    unseen_tasks: int = 150
    evaluation_samples: int = 4
    budget_s: float = 540.0
    """Wall time of a run after which no further batch is started, so that a slow machine ends in
    time too. A run that it cuts short does not repeat exactly; the report says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How a run stands, after each batch and each evaluation."""

    phase: str
    update: int
    updates: int
    reward_mean: float | None
    """Of the latest batch; None before the first."""
    validation: Evaluation | None
    """The latest; None before the first."""
    rollouts: int
    outcomes: dict[Outcome, int]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """What a run came to. `before` and `after` are on the same test tasks."""

    before: Evaluation
    after: Evaluation
    unseen_before: Evaluation
    unseen_after: Evaluation
    curve: tuple[tuple[int, float], ...]
    """Mean reward of each batch, by update."""
    validation: tuple[tuple[int, float], ...]
    """Pass@1 on the validation tasks, by update."""
    updates: int
    cut_short: bool
    rollouts: int
    learning_rollouts: int
    """Of them, those that were learned from."""
    learning_s: float
    """Wall time of learning, with the validations in between."""
    outcomes: dict[Outcome, int]


OnMoment = Callable[[Moment], None]


@dataclass(slots=True)
class _Tally:
    """What has been counted so far."""

    phase: str = "starting"
    update: int = 0
    rollouts: int = 0
    learned: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    curve: list[tuple[int, float]] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    latest: Evaluation | None = None


class Trainer:
    """Drives one learner. Use once."""

    def __init__(
        self,
        plan: TrainPlan,
        *,
        learner: LearnerClient,
        pool: Pool,
        spec: SandboxSpec,
        verify: Judge,
        record: Record,
        on_moment: OnMoment,
    ) -> None:
        """`record` makes a rollout durable; `on_moment` is told how the run stands."""
        self._plan = plan
        self._learner = learner
        self._pool = pool
        self._spec = spec
        self._verify = verify
        self._record = record
        self._on_moment = on_moment
        self._tally = _Tally()
        self._started = time.monotonic()

    async def run(self) -> TrainReport:
        """Evaluates, learns, and evaluates the best weights. Raises what its parts raise."""
        plan, tally = self._plan, self._tally
        validation, test, unseen = await asyncio.to_thread(_heldout_sets, plan)
        before = await self._evaluate("test before", test)
        unseen_before = await self._evaluate("unseen before", unseen)
        learning_started = time.monotonic()
        await self._learn(validation)
        learning_s = time.monotonic() - learning_started
        await self._learner.use_best()
        after = await self._evaluate("test after", test)
        unseen_after = await self._evaluate("unseen after", unseen)
        tally.phase = "done"
        self._tell()
        return TrainReport(
            before=before,
            after=after,
            unseen_before=unseen_before,
            unseen_after=unseen_after,
            curve=tuple(tally.curve),
            validation=tuple(tally.validation),
            updates=tally.update,
            cut_short=tally.update < plan.updates,
            rollouts=tally.rollouts,
            learning_rollouts=tally.learned,
            learning_s=learning_s,
            outcomes=dict(tally.outcomes),
        )

    async def _learn(self, validation: Sequence[Task]) -> None:
        """Batches in a chain of two; see the theory of operation for the order of the calls."""
        plan, tally = self._plan, self._tally
        await self._validate(validation)
        deadline = self._started + plan.budget_s
        async with asyncio.TaskGroup() as group:
            under_way = [await self._start(group, 0)]
            if plan.updates > 1:
                under_way.append(await self._start(group, 1))
            started = len(under_way)
            while under_way:
                trajectories = await under_way.pop(0)
                await self._learner.update(_groups(trajectories))
                tally.update += 1
                tally.learned += len(trajectories)
                self._note_batch(trajectories)
                if tally.update % plan.evaluate_every == 0 or tally.update == plan.updates:
                    await self._validate(validation)
                if started < plan.updates and time.monotonic() < deadline:
                    under_way.append(await self._start(group, started))
                    started += 1
        if tally.validation[-1][0] != tally.update:
            await self._validate(validation)

    async def _start(
        self, group: asyncio.TaskGroup, number: int
    ) -> "asyncio.Task[list[Trajectory]]":
        """Starts a batch and waits until its answers are sampled; verification then goes on."""
        plan = self._plan
        first = FIRST_SEED + (plan.seed * plan.updates + number) * plan.groups
        # In a thread: making a batch of them takes a tenth of a second.
        tasks = await asyncio.to_thread(_train_tasks, plan, first)
        sampled = asyncio.Event()
        rollouts = group.create_task(
            self._rollouts(tasks, f"update{number}/", samples=plan.samples, sampled=sampled)
        )
        waiting = group.create_task(sampled.wait())
        await asyncio.wait((waiting, rollouts), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return rollouts

    async def _rollouts(
        self, tasks: Sequence[Task], label: str, *, samples: int, sampled: asyncio.Event
    ) -> list[Trajectory]:
        planned = list(attempts(tasks, samples=samples, seed=self._plan.seed, label=label))

        async def act(questions: Sequence[Question]) -> list[Reply]:
            replies = await self._learner.act(questions)
            sampled.set()
            return replies

        async with batched_policy(act, label=label) as policy:
            policy.expect(len(planned))

            async def record(trajectory: Trajectory) -> None:
                policy.leave()
                await self._record(trajectory)
                self._tally.rollouts += 1
                self._tally.outcomes[trajectory.verdict.outcome] += 1

            setting = Setting(
                policy=policy,
                read_answer=read_answer,
                pool=self._pool,
                spec=self._spec,
                verify=SharedVerdicts(self._verify),
                turns_max=1,
            )
            done = await run_attempts(planned, setting, concurrency=len(planned), record=record)
        _refuse_without_reward(label, done)
        return done

    async def _evaluate(self, phase: str, tasks: Sequence[Task]) -> Evaluation:
        self._tally.phase = phase
        self._tell()
        trajectories = await self._rollouts(
            tasks,
            f"{phase.replace(' ', '-')}/{self._tally.update}/",
            samples=self._plan.evaluation_samples,
            sampled=asyncio.Event(),
        )
        return evaluation_of(trajectories)

    async def _validate(self, tasks: Sequence[Task]) -> None:
        tally = self._tally
        tally.latest = await self._evaluate("validation", tasks)
        tally.validation.append((tally.update, tally.latest.pass_at_1))
        await self._learner.note_score(tally.latest.pass_at_1)
        tally.phase = "learning"
        self._tell()

    def _note_batch(self, trajectories: Sequence[Trajectory]) -> None:
        rewards = [each.reward.value for each in trajectories if each.reward.value is not None]
        self._tally.curve.append((self._tally.update, sum(rewards) / len(rewards)))
        self._tell()

    def _tell(self) -> None:
        tally = self._tally
        self._on_moment(
            Moment(
                phase=tally.phase,
                update=tally.update,
                updates=self._plan.updates,
                reward_mean=tally.curve[-1][1] if tally.curve else None,
                validation=tally.latest,
                rollouts=tally.rollouts,
                outcomes=dict(tally.outcomes),
                elapsed_s=time.monotonic() - self._started,
            )
        )


def _train_tasks(plan: TrainPlan, first_seed: int) -> list[Task]:
    return [
        make_task(first_seed + place, split=Split.TRAIN, families=plan.families)
        for place in range(plan.groups)
    ]


def _heldout_sets(plan: TrainPlan) -> tuple[list[Task], list[Task], list[Task]]:
    """Validation, test and unseen tasks. No text is in two of them, nor twice in one: equal ones
    would be no independent evidence, and would let the choice of weights leak into the report."""
    seen: set[tuple[str, str]] = set()
    return (
        _distinct(plan.families, VALIDATION_FIRST_SEED, plan.validation_tasks, seen),
        _distinct(plan.families, TEST_FIRST_SEED, plan.test_tasks, seen),
        _distinct(plan.unseen_families, UNSEEN_FIRST_SEED, plan.unseen_tasks, seen),
    )


def _distinct(
    families: tuple[str, ...], first_seed: int, count: int, seen: set[tuple[str, str]]
) -> list[Task]:
    """Up to `count` tasks with new texts; fewer when the families run out of them."""
    found: list[Task] = []
    for seed in range(first_seed, first_seed + count * DRAWS_PER_TASK_MAX):
        task = make_task(seed, split=Split.HELDOUT, families=families)
        if (task.family, task.starter) not in seen:
            seen.add((task.family, task.starter))
            found.append(task)
        if len(found) == count:
            break
    return found


def _refuse_without_reward(label: str, trajectories: Sequence[Trajectory]) -> None:
    """A batch of faults teaches nothing and scores nothing: go no further than that."""
    if trajectories and all(each.reward.value is None for each in trajectories):
        raise SandboxError(
            f"{label}: all {len(trajectories)} rollouts were lost to faults of ours; "
            f"the first: {trajectories[0].verdict.detail}",
            fix="run `tiltyard doctor`, and look at the rollouts with `tiltyard show`.",
        )


def _groups(trajectories: Sequence[Trajectory]) -> list[list[LearnedRollout]]:
    """Rollouts by group, in order; a rollout without tokens or reward stays in, masked."""
    groups: dict[GroupId, list[LearnedRollout]] = defaultdict(list)
    for each in trajectories:
        turns = tuple(step.reply.tokens for step in each.steps if step.reply.tokens is not None)
        groups[each.group].append(LearnedRollout(turns=turns, reward=each.reward.value))
    return list(groups.values())
