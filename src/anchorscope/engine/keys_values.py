"""The engine's own keys and values: those of the tokens that all items share, and those of answers that grow.

transformers' caches truncate sliding layers to their window and cannot share a prefix among the rows of a batch.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the tokens that all items share, one pair per layer, [pos, head, d_head]."""

    ids: tuple[int, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """Number of shared tokens."""
        return len(self.ids)

    def first(self, n: int) -> "Prefix":
        """The first so many of these tokens: they do not know what follows them."""
        return Prefix(self.ids[:n], tuple(one[:n] for one in self.keys), tuple(one[:n] for one in self.values))


class Recorder:
    """Keeps a layer's keys and values as they come: used once, to compute the prefix."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def keep(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Remembers a layer's keys and values, [token, head, d_head]."""
        self.keys.append(key.clone())
        self.values.append(value.clone())


class Growing:
    """Keys and values of answers under way, a row each: slot = position, room for all steps, finished rows leave."""

    def __init__(self, prefix: Prefix, rows: int, room: int) -> None:
        self.prefix = prefix
        self.rows = rows
        self.room = room
        self.stores: list[tuple[Tensor, Tensor]] = []

    def write(self, layer: int, rows: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts tokens [token, head, d_head] into their rows and slots; all of the layer's keys and values."""
        if layer == len(self.stores):
            self.stores.append((self._store(key, layer), self._store(value, layer, values=True)))
        keys, values = self.stores[layer]
        rows, slots = rows.to(key.device), slots.to(key.device)
        keys[rows, slots], values[rows, slots] = key, value
        return keys, values

    def keep(self, rows: Tensor) -> None:
        """Only these rows go on."""
        self.stores = [(keys[rows.to(keys.device)], values[rows.to(keys.device)]) for keys, values in self.stores]

    def _store(self, like: Tensor, layer: int, values: bool = False) -> Tensor:
        # Zeros, because slots that are masked must still hold numbers.
        store = like.new_zeros(self.rows, self.room, *like.shape[1:])
        if self.prefix.length:
            store[:, : self.prefix.length] = (self.prefix.values if values else self.prefix.keys)[layer]
        return store
