"""A safetensors file in memory, without copies: the pieces that make it up, and arrays that look into its bytes.

The library's own functions copy every tensor twice on the way out and once on the way in, which a GPU's states would
have to wait for. Arrays of bytes begin at multiples of 64, so that any kind of number may lie in them.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.execute.content_hash import Body, in_chunks
from anchorscope.side_by_side import side_by_side

ALIGNED = 64
"""Every array of bytes is filled up with zeros to a multiple of it."""
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 2**27
_KINDS: dict[str, np.dtype[Any]] = {
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in _KINDS.items()}


def pieces_of(arrays: Mapping[str, "np.ndarray[Any, Any]"]) -> list[Body]:
    """The file of these one-dimensional arrays, in pieces; those of bytes come first, each filled up to `ALIGNED`."""
    ordered = sorted(arrays, key=lambda name: arrays[name].dtype != np.uint8)
    told, pieces, at = {}, list[Body](), 0
    for name in ordered:
        array = np.ascontiguousarray(arrays[name])
        n_filled = -array.nbytes % ALIGNED if array.dtype == np.uint8 else 0
        told[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": [(array.nbytes + n_filled) // array.itemsize],
            "data_offsets": [at, at + array.nbytes + n_filled],
        }
        at += array.nbytes + n_filled
        pieces += [array.view(np.uint8).data, bytes(n_filled)]
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % ALIGNED)
    return [_LENGTH.pack(len(text)) + text, *(one for one in pieces if len(one))]


def in_one_piece(pieces: Sequence[Body]) -> NDArray[np.uint8]:
    """New memory that holds these pieces, one after the other, copied by several threads."""
    whole = np.empty(sum(map(len, pieces)), dtype=np.uint8)

    def write(chunk: tuple[int, list[memoryview]]) -> None:
        at, parts = chunk
        for one in parts:
            whole[at : at + len(one)] = np.frombuffer(one, np.uint8)
            at += len(one)

    chunks = list(in_chunks(pieces))
    starts = accumulate((sum(map(len, one)) for one in chunks), initial=0)
    side_by_side(write, list(zip(starts, chunks, strict=False)))
    return whole


def arrays_in(body: Body) -> dict[str, "np.ndarray[Any, Any]"]:
    """The arrays of such a file: they share its memory, or that of one copy where it must not be written to.

    ValueError, TypeError or LookupError where it is none; every offset is checked against the bytes that are there.
    """
    view = memoryview(body).cast("B")
    if view.readonly:
        view = memoryview(bytearray(view))
    if len(view) < _LENGTH.size:
        raise ValueError(f"{len(view)} bytes")
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    if length > min(_LONGEST_HEADER, len(view) - _LENGTH.size):
        raise ValueError(f"a header of {length} bytes in a file of {len(view)}")
    told = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
    data, found = np.frombuffer(view, np.uint8)[_LENGTH.size + length :], {}
    for name, one in told.items():
        start, end = one["data_offsets"]
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= len(data):
            raise ValueError(f"bytes {start!r} to {end!r} of {len(data)}")
        found[str(name)] = data[start:end].view(_KINDS[one["dtype"]])
    return found
