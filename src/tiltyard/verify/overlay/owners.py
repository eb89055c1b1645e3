"""Which function a test's id stands for. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tiltyard.verify.overlay.plan import parts_of
from tiltyard.verify.overlay.source import SourceFile, TestFunction


def owners_of(
    files: Mapping[str, SourceFile], ids: Iterable[str]
) -> dict[str, TestFunction | None]:
    """By id, its function: that of its class, or an inherited one where only one has its name.

    None where it may be any of several; then none of these is another id's either.
    """
    by_name: dict[str, list[TestFunction]] = defaultdict(list)
    for file in files.values():
        for each in file.functions:
            by_name[each.name].append(each)
    places = Counter(each.place for some in by_name.values() for each in some)
    owners: dict[str, TestFunction | None] = {}
    unsure: set[TestFunction] = set()
    for test_id in ids:
        place, name, _ = parts_of(test_id)
        path = test_id.partition("::")[0]
        whole = by_name[name]
        own = [each for each in whole if each.place == f"{place}{name}"]
        near = own or [each for each in whole if each.file == path] or whole
        owners[test_id] = near[0] if len(near) == 1 and places[near[0].place] == 1 else None
        if owners[test_id] is None:
            unsure |= set(near)
    return {test_id: None if owner in unsure else owner for test_id, owner in owners.items()}
