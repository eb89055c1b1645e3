"""An open yard for a module's tests, and tasks to attempt."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from sample_policies import whole_module
from tiltyard.core.task import Split, Task
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import SharedVerdicts
from tiltyard.tasks.repair import make_task
from tiltyard.wiring import Yard, open_yard

MakeSetting = Callable[..., Setting]


@pytest.fixture
def task() -> Task:
    return make_task(3, split=Split.TRAIN)


@pytest_asyncio.fixture
async def yard() -> AsyncIterator[Yard]:
    async with open_yard(sandboxes=16, warm=2) as opened:
        yield opened


@pytest.fixture
def make_setting(yard: Yard) -> MakeSetting:
    def make(policy: Any, *, turns_max: int = 3, **changes: Any) -> Setting:
        fields = {
            "policy": policy,
            "read_answer": whole_module,
            "pool": yard.pool,
            "spec": yard.spec,
            "verify": SharedVerdicts(yard.verifier.verify),
            "turns_max": turns_max,
        }
        return Setting(**{**fields, **changes})

    return make
