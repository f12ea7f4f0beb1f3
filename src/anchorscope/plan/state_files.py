"""States in a file of the run folder: every worker writes the rows of its own shard, and nobody sends them.

The coordinator makes the file and maps it when all rows are there; a fit reads from it what it needs. A row has the
same place whichever worker writes it.
"""

import os
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.errors import UserError


@dataclass(frozen=True)
class StateRows:
    """The file of one variant's states, [place, layer, item, d_model], and the rows in it of a shard's items."""

    path: str
    dtype: str
    shape: tuple[int, int, int, int]
    rows: Int[ndarray, " item"]

    @property
    def nbytes(self) -> int:
        """Of these rows."""
        places, layers, _, width = self.shape
        return (
            places
            * layers
            * len(self.rows)
            * width
            * int(getattr(torch, self.dtype).itemsize)
        )

    def create(self) -> None:
        """Makes the file, as large as it will be, where these are all of its rows."""
        with open(self.path, "xb") as handle:
            handle.truncate(self.nbytes)

    def take(self, rows: Int[ndarray, " item"]) -> "StateRows":
        """The same file for other rows."""
        return replace(self, rows=rows)

    def map(self) -> Float[Tensor, "place layer all d_model"]:
        """All states of the file; they are read when they are used."""
        dtype = getattr(torch, self.dtype)
        size = os.path.getsize(self.path) // dtype.itemsize
        return torch.from_file(self.path, True, size, dtype=dtype).view(self.shape)

    def write(self, states: Float[Tensor, "place layer item d_model"]) -> None:
        """Puts a shard's states to their rows.

        Written, not mapped: on a network file system two machines may not change one page of a mapped file.
        """
        assert str(states.dtype) == f"torch.{self.dtype}", (
            f"{states.dtype} states for a file of {self.dtype}"
        )
        if len(self.rows):
            self._write(states.contiguous())

    def _write(self, states: Tensor) -> None:
        places, layers, n_rows, width = self.shape
        content, size = states.view(torch.uint8).numpy(), width * states.element_size()
        try:
            handle = os.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            raise UserError(
                f"A worker does not find {self.path!r}; put the run folder where every machine can write (--out)."
            ) from None
        try:
            for place in range(places):
                for layer in range(layers):
                    begin = (place * layers + layer) * n_rows
                    for row, values in zip(
                        self.rows.tolist(), content[place, layer], strict=True
                    ):
                        _write_all(handle, memoryview(values), (begin + row) * size)
        finally:
            os.close(handle)


def _write_all(handle: int, values: memoryview, offset: int) -> None:
    written = os.pwrite(handle, values, offset)
    while written < len(values):  # a disk that is nearly full takes a part
        written += os.pwrite(handle, values[written:], offset + written)
