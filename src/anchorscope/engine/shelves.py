"""Where the keys and values of answers under way stand: rows of about the same length together, on a shelf.

A row knows how long it may become, so it never outgrows its shelf: no slot is ever copied for want of room, and a
single long conversation does not make all rows as wide as itself. Places that are given up are taken by the next who
come, or by the last of the shelf.
"""

from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch

from anchorscope.engine.keys_values import Growing, Prefix

_NARROWEST = 64  # slots of the shelf for the shortest rows; each next one has twice as many
_KEPT = 1024  # slots that a shelf which nobody needs any more keeps all the same
NO_PREFIX = Prefix(ids=(), keys=(), values=())


@runtime_checkable
class HasLength(Protocol):
    """A row that may stand on a shelf."""

    length: int
    """How many of its tokens have keys and values."""


R = TypeVar("R", bound=HasLength)


class Shelf(Generic[R]):
    """Places for rows of at most `n_slots` tokens; a place is a row of the cache."""

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.rows: list[R | None] = []
        """Who stands where; None for a place that was given up."""
        self.cache = self._empty()

    def _empty(self) -> Growing:
        return Growing(NO_PREFIX, max(1, _KEPT // self.n_slots), self.n_slots)

    def place_of(self, row: R) -> int:
        """Where a row stands."""
        return next(place for place, one in enumerate(self.rows) if one is row)

    def put(self, row: R) -> int:
        """A place for a row: one that was given up, or a new one; places double when there are too few."""
        if None in self.rows:
            place = self.rows.index(None)
            self.rows[place] = row
            return place
        if len(self.rows) == self.cache.rows:
            self.cache.grow(2 * self.cache.rows)
        self.rows.append(row)
        return len(self.rows) - 1

    def take_away(self, row: R, spoiled: bool = False) -> None:
        """Gives a row's place up; what is spoiled, no numbers, is wiped out."""
        place = self.place_of(row)
        self.rows[place] = None
        if spoiled:
            self.cache.clear(place)
        if not any(self.rows):
            self.rows = []
            if self.cache.rows * self.n_slots > _KEPT:
                self.cache = self._empty()

    def close_up(self, share: float) -> None:
        """Rows at the end move to places that were given up, where these are at least this share of all."""
        free = [place for place, row in enumerate(self.rows) if row is None]
        if not free or len(free) < share * len(self.rows):
            return
        n = len(self.rows) - len(free)
        moving = [place for place in range(n, len(self.rows)) if self.rows[place] is not None]
        targets = free[: len(moving)]
        if moving:
            rows = [self.rows[place] for place in moving]
            longest = max(row.length for row in rows if row is not None)
            self.cache.move(torch.tensor(moving), torch.tensor(targets), longest)
            for target, row in zip(targets, rows, strict=True):
                self.rows[target] = row
        del self.rows[n:]


def width_of(n_slots: int) -> int:
    """The slots that a row really takes: a power of two."""
    width = _NARROWEST
    while width < n_slots:
        width *= 2
    return width


class Shelves(Generic[R]):
    """All shelves, by how many slots their rows have."""

    def __init__(self) -> None:
        self._known: dict[int, Shelf[R]] = {}

    def wide_enough(self, n_slots: int) -> Shelf[R]:
        """The shelf for rows that become so long."""
        width = width_of(n_slots)
        return self._known.setdefault(width, Shelf(width))

    def in_use(self) -> list[Shelf[R]]:
        """Those with a row, the narrowest first."""
        return [self._known[width] for width in sorted(self._known) if self._known[width].rows]

    def close_up(self, share: float) -> None:
        """See `Shelf.close_up`."""
        for shelf in self.in_use():
            shelf.close_up(share)
