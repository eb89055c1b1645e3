"""Trajectories for tests: every field set, each one different, made from a number alone."""

from tiltyard.core.execution import Enforcement, ExecResult, Limit, Reason, StreamCapture
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.trajectory import (
    Observation,
    PolicyReply,
    PolicyTokens,
    Prompt,
    Step,
    Trajectory,
)
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Reward, Verdict


def sample_trajectory(number: int, *, padding: str = "") -> Trajectory:
    """The trajectory of this number; equal numbers give equal ones. `padding` makes it longer."""
    tokens = PolicyTokens(prompt_ids=(1, 2, number), output_ids=(3, 4), logprobs=(-0.1, -2.5e-300))
    execution = ExecResult(
        reason=Reason.SIGNAL,
        exit_code=None,
        signal=9,
        stdout=StreamCapture(head=b"\x00\xffhead", tail=b"tail\n", total_bytes=1000),
        stderr=StreamCapture(),
        wall_s=0.1,
        cpu_s=number / 7,
        memory_peak_bytes=4096 * number,
        isolation="root",
        enforced={Limit.MEMORY: Enforcement.CGROUP, Limit.DISK: Enforcement.TMPFS},
    )
    steps = (
        Step(
            reply=PolicyReply(text=f"try {number} é{padding}", policy_version="7", tokens=tokens),
            code=f"def f():\n    return {number}\n",
            execution=execution,
            observation=Observation(text="no", solved=False),
        ),
        Step(
            reply=PolicyReply(text="", policy_version="7", truncated=True),
            code=None,
            problem="no code block",
        ),
    )
    passed = number % 2 == 0
    status = CheckStatus.PASSED if passed else CheckStatus.WRONG_ANSWER
    return Trajectory(
        id=RolloutId(f"r{number:06d}"),
        group=GroupId(f"g{number // 4}"),
        task_id=TaskId(f"task-{number % 3}"),
        family="sums" if passed else "lists",
        steps=steps,
        verdict=Verdict(
            outcome=Outcome.GRADED if number % 5 else Outcome.INFRA_FAULT,
            checks=(Check(id="a", status=status, evidence="3 != 4"),),
            verifier="split 1",
            wall_s=0.25,
            cpu_s=0.125,
        ),
        reward=Reward(value=float(passed) if number % 5 else None, why="all checks passed"),
        started_unix_s=1_700_000_000.125 + number,
        wall_s=1.5,
        seed=number,
        versions={"policy": "7", "task": "1"},
        shared_verdict_of=RolloutId("r000001") if number % 4 == 3 else None,
        prompt=Prompt(
            task_id=TaskId(f"task-{number % 3}"),
            instruction=f"Return {number}.",
            examples=f"f() == {number}",
            code="def f():\n    return 0\n",
        ),
    )
