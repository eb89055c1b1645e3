"""All families of the pack, and which of them training may use."""

from collections.abc import Mapping
from types import MappingProxyType

from tiltyard.tasks.repair.families.lists import LISTS_TRAINED, LISTS_UNSEEN
from tiltyard.tasks.repair.families.numbers import NUMBERS, NUMBERS_UNSEEN
from tiltyard.tasks.repair.template import Template

_TRAINED = (*NUMBERS, *LISTS_TRAINED)
_UNSEEN = (*NUMBERS_UNSEEN, *LISTS_UNSEEN)

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {template.family: template for template in (*_TRAINED, *_UNSEEN)}
)

TRAINED_FAMILIES: tuple[str, ...] = tuple(template.family for template in _TRAINED)
"""Families of the train split. Other faults of them make the default held-out split."""

UNSEEN_FAMILIES: tuple[str, ...] = tuple(template.family for template in _UNSEEN)
"""Families that exist in the held-out split only, to report how far learning carries over."""
