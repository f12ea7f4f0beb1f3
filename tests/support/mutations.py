"""What anybody may have written in the place of a list of ours: every entry in turn is missing or something else."""

import copy
from collections.abc import Iterator
from typing import Any

Entry = tuple[str | int, ...]
OTHERS: tuple[Any, ...] = (
    None,
    "x",
    "",
    "../x\n\x1b",
    7,
    -1,
    0,
    3.5,
    10**30,
    True,
    [],
    [3.5],
    [[1]],
    {},
    {"x": None},
)
"""Values in the place of an entry."""


def entries(record: Any, most: int = 3, path: Entry = ()) -> Iterator[Entry]:
    """The paths of entries: of a list the first, of a mapping with many the first ones of each kind."""
    members: list[tuple[str | int, Any]] = []
    if isinstance(record, dict):
        members = list(record.items())
        if len({type(member) for _, member in members}) == 1 and len(members) > most:
            members = members[:most]
    if isinstance(record, list):
        members = list(enumerate(record[:1]))
    for name, member in members:
        yield (*path, name)
        yield from entries(member, most, (*path, name))


def changed(record: Any, path: Entry, value: Any) -> Any:
    """A copy with another value in one place."""
    other = copy.deepcopy(record)
    holder = other
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    return other


def without(record: Any, path: Entry) -> Any:
    """A copy without one entry."""
    other = copy.deepcopy(record)
    holder = other
    for name in path[:-1]:
        holder = holder[name]
    del holder[path[-1]]
    return other


def mutations(
    record: Any, each: int, first: int = 0, most: int = 3
) -> Iterator[tuple[str, Any]]:
    """Every entry missing, and with some of the other values, in turn; each with its name."""
    turn = first
    for path in entries(record, most):
        shown = ".".join(map(str, path))
        yield f"{shown} missing", without(record, path)
        for _ in range(each):
            value = OTHERS[turn % len(OTHERS)]
            turn += 1
            yield f"{shown} = {value!r}", changed(record, path, value)
