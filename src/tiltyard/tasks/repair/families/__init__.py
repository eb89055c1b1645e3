"""All families of the pack, and which of them training may use."""

from collections.abc import Mapping
from types import MappingProxyType

from tiltyard.tasks.repair.families.classes import CLASSES_TRAINED, CLASSES_UNSEEN
from tiltyard.tasks.repair.families.dicts import DICTS_TRAINED, DICTS_UNSEEN
from tiltyard.tasks.repair.families.lists import LISTS_TRAINED, LISTS_UNSEEN
from tiltyard.tasks.repair.families.numbers import NUMBERS_TRAINED, NUMBERS_UNSEEN
from tiltyard.tasks.repair.families.recursion import RECURSION_TRAINED, RECURSION_UNSEEN
from tiltyard.tasks.repair.families.strings import STRINGS_TRAINED, STRINGS_UNSEEN
from tiltyard.tasks.repair.template import Template

_TRAINED = (
    *NUMBERS_TRAINED,
    *STRINGS_TRAINED,
    *LISTS_TRAINED,
    *DICTS_TRAINED,
    *RECURSION_TRAINED,
    *CLASSES_TRAINED,
)
_UNSEEN = (
    *NUMBERS_UNSEEN,
    *STRINGS_UNSEEN,
    *LISTS_UNSEEN,
    *DICTS_UNSEEN,
    *RECURSION_UNSEEN,
    *CLASSES_UNSEEN,
)

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {template.family: template for template in (*_TRAINED, *_UNSEEN)}
)

TRAINED_FAMILIES: tuple[str, ...] = tuple(template.family for template in _TRAINED)
"""Families of the train split. Other faults of them make the default held-out split."""

UNSEEN_FAMILIES: tuple[str, ...] = tuple(template.family for template in _UNSEEN)
"""Families that exist in the held-out split only, to report how far learning carries over."""
