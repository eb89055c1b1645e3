"""The repair pack under the real verifier."""

import pytest

from tiltyard.core.task import Split
from tiltyard.tasks.check import Soundness, check_tasks
from tiltyard.tasks.repair import TEMPLATES, TRAINED_FAMILIES, make_task
from tiltyard.verify.verifier import Verifier

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.slow
async def test_a_task_of_every_family_is_sound(verifier: Verifier) -> None:
    tasks = [
        make_task(
            7,
            split=Split.TRAIN if family in TRAINED_FAMILIES else Split.HELDOUT,
            families=[family],
        )
        for family in TEMPLATES
    ]
    reports = await check_tasks(tasks, verifier.verify, concurrency=2)
    unsound = [report for report in reports if report.soundness is not Soundness.SOUND]
    assert len(reports) == len(TEMPLATES)
    assert unsound == []
