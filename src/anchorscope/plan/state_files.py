"""States in a file of the run folder: every worker writes the rows of its own shard, and nobody sends them.

A tensor that lies in such a file is mapped, not read: it travels between machines as the file's name, its shape and its
offset, and a fit reads from the file what it needs. A row has the same place whichever worker writes it.
"""

import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.errors import UserError


class FileTensor(NamedTuple):
    """Where a tensor lies."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Of its first number, in numbers."""

    def map(self) -> Tensor:
        """The tensor; its numbers are read when they are used."""
        dtype = getattr(torch, self.dtype)
        whole = torch.from_file(
            self.path, True, os.path.getsize(self.path) // dtype.itemsize, dtype=dtype
        )
        return whole.as_strided(self.shape, self.stride, self.offset)


def file_of(tensor: Tensor) -> FileTensor | None:
    """Where a tensor lies; None where it is in memory."""
    path = tensor.untyped_storage().filename if tensor.device.type == "cpu" else None
    if path is None:
        return None
    return FileTensor(
        path,
        _name(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def to_file(tensor: Tensor, folder: Path) -> FileTensor:
    """Writes a tensor to a new file."""
    whole, path = tensor.detach().cpu().contiguous(), folder / uuid.uuid4().hex
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole.view(-1).view(torch.uint8).numpy().data)
    return FileTensor(
        str(path), _name(whole.dtype), tuple(whole.shape), whole.stride(), 0
    )


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

    def write(
        self, states: Float[Tensor, "place layer item d_model"]
    ) -> Float[Tensor, "place layer all d_model"]:
        """Puts a shard's states to their rows; all states of the file, of which others may still be missing.

        Written, not mapped: on a network file system two machines may not change one page of a mapped file.
        """
        assert _name(states.dtype) == self.dtype, (
            f"{states.dtype} states for a file of {self.dtype}"
        )
        if len(self.rows):
            self._write(states.contiguous())
        return FileTensor(
            self.path,
            self.dtype,
            self.shape,
            torch.empty(self.shape, device="meta").stride(),
            0,
        ).map()

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
