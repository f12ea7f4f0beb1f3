"""The engine's own keys and values: what a layer's attention sees before the tokens of the current call.

transformers' caches truncate sliding layers to their window and cannot share a prefix among the rows of a batch. These
two speak the one word that attention modules use, `update`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the tokens that all items share, one pair per layer, [1, head, pos, d_head]."""

    ids: tuple[int, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """Number of shared tokens."""
        return len(self.ids)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object) -> tuple[Tensor, Tensor]:
        """The shared keys and values in front of every row's own."""
        if not self.ids:
            return key, value
        rows = key.shape[0]
        return (
            torch.cat((self.keys[layer].expand(rows, -1, -1, -1), key), dim=2),
            torch.cat((self.values[layer].expand(rows, -1, -1, -1), value), dim=2),
        )


class Recorder:
    """Keeps what it is given: used once, to compute the prefix."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object) -> tuple[Tensor, Tensor]:
        """Remembers a layer's keys and values and hands them on."""
        self.keys.append(key)
        self.values.append(value)
        return key, value


class Growing:
    """Keys and values of a batch that is being generated: room for all steps from the start, finished rows leave."""

    def __init__(self, prefix: Prefix, rows: int, room: int) -> None:
        self.prefix = prefix
        self.rows = rows
        self.room = prefix.length + room
        self.filled = prefix.length
        self.stores: list[tuple[Tensor, Tensor]] = []

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object) -> tuple[Tensor, Tensor]:
        """Appends the new tokens of a layer; all layers of one call append at the same place."""
        if layer == len(self.stores):
            self.stores.append((self._store(key, layer), self._store(value, layer, values=True)))
        keys, values = self.stores[layer]
        end = self.filled + key.shape[2]
        keys[:, :, self.filled : end] = key
        values[:, :, self.filled : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def advance(self, tokens: int) -> None:
        """All layers have appended their tokens."""
        self.filled += tokens

    def keep(self, rows: Tensor) -> None:
        """Only these rows go on."""
        self.stores = [(keys[rows.to(keys.device)], values[rows.to(keys.device)]) for keys, values in self.stores]

    def _store(self, like: Tensor, layer: int, values: bool = False) -> Tensor:
        store = like.new_empty(self.rows, like.shape[1], self.room, like.shape[3])
        if self.prefix.length:
            store[:, :, : self.prefix.length] = (self.prefix.values if values else self.prefix.keys)[layer]
        return store
