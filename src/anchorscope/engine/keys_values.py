"""The engine's own keys and values: those of the tokens that all items share, and those of answers that grow.

transformers' caches truncate sliding layers to their window and cannot share a prefix among the rows of a batch.
"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.models.attention import Keys


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the tokens that all items share, one pair per layer."""

    ids: tuple[int, ...]
    keys: tuple[Float[Tensor, "pos key_head d_head"], ...]
    values: tuple[Float[Tensor, "pos key_head d_value"], ...]

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

    def keep(self, layer: int, key: Keys, value: Keys) -> None:
        """Remembers a layer's keys and values."""
        self.keys.append(key.clone())
        self.values.append(value.clone())


class Growing:
    """Keys and values of answers under way, a row each: slot = position, slots for all steps, finished rows leave."""

    def __init__(self, prefix: Prefix, rows: int, n_slots: int) -> None:
        self.prefix = prefix
        self.rows = rows
        self.n_slots = n_slots
        self.stores: list[tuple[Tensor, Tensor]] = []

    def write(
        self, layer: int, rows: Int[Tensor, " token"], slots: Int[Tensor, " token"], key: Keys, value: Keys
    ) -> tuple[Float[Tensor, "row slot key_head d_head"], Float[Tensor, "row slot key_head d_value"]]:
        """Puts tokens into their rows and slots; all of the layer's keys and values."""
        if layer == len(self.stores):
            self.stores.append((self._store(key, layer), self._store(value, layer, values=True)))
        keys, values = self.stores[layer]
        rows, slots = rows.to(key.device), slots.to(key.device)
        keys[rows, slots], values[rows, slots] = key, value
        return keys, values

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Only these rows go on."""
        self.stores = [(keys[rows.to(keys.device)], values[rows.to(keys.device)]) for keys, values in self.stores]

    def grow(self, rows: int) -> None:
        """Room for so many rows; those that are there stay."""
        self.stores = [(_longer(keys, rows), _longer(values, rows)) for keys, values in self.stores]
        self.rows = rows  # only now: memory may have run out

    def begin(self, rows: Int[Tensor, " row"], prefix: Prefix) -> None:
        """Rows that have come later begin with these tokens; all layers are there already."""
        for layer, (keys, values) in enumerate(self.stores) if prefix.length else ():
            keys[rows.to(keys.device), : prefix.length] = prefix.keys[layer]
            values[rows.to(keys.device), : prefix.length] = prefix.values[layer]

    def row(self, row: int, ids: tuple[int, ...]) -> Prefix:
        """A row's keys and values of its first tokens, which are these: for whoever goes on from there."""
        keys, values = (tuple(store[part][row, : len(ids)] for store in self.stores) for part in (0, 1))
        return Prefix(ids, keys, values)

    def move(self, rows: Int[Tensor, " row"], to: Int[Tensor, " row"], n_slots: int) -> None:
        """The first slots of some rows take the place of others."""
        for pair in self.stores:
            for store in pair:
                there = to.to(store.device)
                store[there, :n_slots] = store[rows.to(store.device), :n_slots]

    def clear(self, row: int) -> None:
        """What a row held is no number: the next one would read it through its mask."""
        for keys, values in self.stores:
            keys[row], values[row] = 0, 0

    def _store(self, like: Tensor, layer: int, values: bool = False) -> Tensor:
        # Zeros, because slots that are masked must still hold numbers.
        store = like.new_zeros(self.rows, self.n_slots, *like.shape[1:])
        if self.prefix.length:
            store[:, : self.prefix.length] = (self.prefix.values if values else self.prefix.keys)[layer]
        return store


def _longer(store: Tensor, rows: int) -> Tensor:
    longer = store.new_zeros(rows, *store.shape[1:])
    longer[: len(store)] = store
    return longer
