"""The `repair` pack: short Python sources with one faulty line, in unlimited number.

Everything here is a pure function of its seed; what is executed is this pack's own template code
and its mutants, never an answer of a policy.
"""

from tiltyard.tasks.repair.edits import FaultKind
from tiltyard.tasks.repair.families import TEMPLATES, TRAINED_FAMILIES, UNSEEN_FAMILIES
from tiltyard.tasks.repair.generator import (
    REVISION,
    LineRepair,
    make_task,
    refuse_unknown_families,
    repair_of,
    split_of,
)

__all__ = [
    "REVISION",
    "TEMPLATES",
    "TRAINED_FAMILIES",
    "UNSEEN_FAMILIES",
    "FaultKind",
    "LineRepair",
    "make_task",
    "refuse_unknown_families",
    "repair_of",
    "split_of",
]
