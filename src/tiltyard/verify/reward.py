"""The reward, as a pure function of the verdict."""

from tiltyard.core.verdict import Outcome, Reward, Verdict


def reward_of(verdict: Verdict) -> Reward:
    """1 for a right answer, 0 for a wrong or cheating one, none for whatever was not its fault.

    Partial credit is not paid: a wrong program passes a third of ordinary tests by chance.
    """
    match verdict.outcome:
        case Outcome.INFRA_FAULT | Outcome.GRADER_FAULT | Outcome.CANCELLED:
            return Reward(value=None, why=verdict.detail or verdict.outcome)
        case Outcome.AGENT_FAULT:
            return Reward(value=0.0, why=verdict.detail)
        case Outcome.GRADED:
            pass
    if verdict.tamper:
        return Reward(value=0.0, why=f"tampering: {'; '.join(verdict.tamper)}")
    if verdict.all_passed:
        return Reward(value=1.0, why=f"all {len(verdict.checks)} checks passed")
    return Reward(value=0.0, why=f"{verdict.passed} of {len(verdict.checks)} checks passed")
