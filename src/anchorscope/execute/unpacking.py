"""Packed shards and parts as values again: every index and every size is checked against the bytes that are there."""

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import accumulate, repeat
from typing import Any

import numpy as np
import torch

from anchorscope.execute.content_hash import Body
from anchorscope.execute.packed_file import ALIGNED, arrays_in
from anchorscope.execute.travelling import known_type, part_names

VALUE, INTS, FLOATS = "value", "ints", "floats"
"""Names of the tensors with the JSON text, and with long rows of numbers."""
ARRAY_KINDS = "biufc"
"""Arrays of numbers, as numpy calls their kinds."""
DTYPES = {
    name: getattr(torch, name)
    for name in (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
    )
}
"""Tensors of these types travel."""
ALIKE = "="
"""Kind of a part that is the same plain value in all of many records."""
PLAIN = {type(None), bool, int, float, str}
"""Types of values that are themselves in JSON."""
TEXTS = {str, type(None)}
"""Types of values that are themselves in JSON, in long rows of them."""
_NOT_PACKED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
_MEMO = 64  # shared values that are held after unpacking


def unpack(body: Body, blobs: Mapping[str, Body]) -> Any:
    """The value again; ValueError where the bytes are not what `pack` makes. Equal blobs give the same object."""
    try:
        return _Unpacker(body, blobs).value()
    except _NOT_PACKED as error:
        raise ValueError(f"these bytes are no packed value ({type(error).__name__}: {str(error)[:200]})") from error


_unpacked: "OrderedDict[str, Any]" = OrderedDict()  # shared values, the last ones


def _unpacked_once(digest: str, blobs: Mapping[str, Body]) -> Any:
    if digest not in _unpacked:
        body = blobs[digest]
        if hashlib.sha256(body).hexdigest() != digest:
            raise ValueError(f"a blob is not what its name {digest[:12]} says")
        _unpacked[digest] = _Unpacker(body, {}).value()
    _unpacked.move_to_end(digest)
    while len(_unpacked) > _MEMO:
        _unpacked.popitem(last=False)
    return _unpacked[digest]


class _Unpacker:
    """Reads one value; every index and every size is checked against the bytes that are there."""

    def __init__(self, body: Body, blobs: Mapping[str, Body]) -> None:
        self.tensors, self.blobs = arrays_in(body), blobs
        self.ints, self.floats = (
            self.tensors[name].tolist() if name in self.tensors else [] for name in (INTS, FLOATS)
        )

    def value(self) -> Any:
        return self.read(json.loads(self.tensors[VALUE].tobytes().rstrip(b"\0")))

    def read(self, form: Any) -> Any:
        if type(form) in PLAIN:
            return form
        kind, rest = form[0], form[1:]
        reader = _READERS.get(kind)
        if type(form) is not list or type(kind) is not str or reader is None:
            raise ValueError(f"{str(kind)[:40]!r} is no kind of value")
        return reader(self, *rest)

    def each(self, forms: Sequence[Any]) -> list[Any]:
        """Values one by one; texts are read without a look at each."""
        return list(forms) if set(map(type, forms)) <= TEXTS else list(map(self.read, forms))

    def mapping(self, keys: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(self._row(keys), self._row(values), strict=True))

    def record(self, name: str, *forms: Any) -> Any:
        cls, names = self._type(name)
        return cls(**{one: self.read(form) for one, form in zip(names, forms, strict=True)})

    def records(self, name: str, *columns: Any) -> list[Any]:
        """Of one type, which lie part by part, in the order in which it takes them."""
        cls, names = self._type(name)
        rows = [repeat(self._plain(*form[1:])) if form[:1] == [ALIKE] else self._row(form) for form in columns]
        lengths = {len(row) for row in rows if not isinstance(row, repeat)}
        if len(rows) != len(names) or len(lengths) != 1:
            raise ValueError(f"rows of {sorted(lengths)[:20]} values in place of {len(names)} of one length")
        return list(map(cls, *rows))

    @staticmethod
    def _plain(value: Any) -> Any:
        if type(value) not in PLAIN:
            raise ValueError(f"{type(value).__name__} in place of a plain value")
        return value

    def _row(self, form: Any) -> list[Any] | tuple[Any, ...]:
        """Values one by one, as many as there are bytes for: no range."""
        found = self.read(form)
        if not isinstance(found, list | tuple):
            raise ValueError(f"{type(found).__name__} in place of a row")
        return found

    @staticmethod
    def _type(name: str) -> tuple[type, list[str]]:
        cls = known_type(name)
        if cls is None:
            raise ValueError(f"{name[:60]!r} is no known type")
        return cls, part_names(cls)

    def integers(self, start: int, stop: int) -> list[int]:
        return self._of_pool(self.ints, start, stop)

    def reals(self, start: int, stop: int) -> list[float]:
        return self._of_pool(self.floats, start, stop)

    def rows(self, is_int: bool, *found: int) -> list[tuple[Any, ...]]:
        lengths = self.integers(*found[:2])
        flat = tuple((self.integers if is_int else self.reals)(*found[2:]))
        ends = list(accumulate(lengths))
        if min(lengths, default=0) < 0 or ends[-1:] != [len(flat)]:
            raise ValueError(f"{len(flat)} numbers in rows of {sum(lengths)}")
        return [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    @staticmethod
    def _of_pool(pool: list[Any], start: int, stop: int) -> list[Any]:
        if not 0 <= start <= stop <= len(pool):
            raise ValueError(f"numbers {start} to {stop} of {len(pool)}")
        return pool[start:stop]

    def numbers(self, index: int, name: str, shape: list[int]) -> Any:
        dtype = np.dtype(str(name))
        if dtype.kind not in ARRAY_KINDS or min(shape, default=0) < 0:
            raise ValueError(f"an array of {name} with the shape {shape}")
        return self._bytes(index, shape, dtype.itemsize).view(dtype).reshape(shape)

    def frame(self, index: int, size: int) -> Any:
        import polars as pl  # only here: few values are tables

        try:
            return pl.read_ipc(BytesIO(self._bytes(index, [size], 1).tobytes()))
        except pl.exceptions.PolarsError as error:
            raise ValueError(f"a table that cannot be read: {error}") from error

    def _bytes(self, index: int, shape: list[int], size: int) -> Any:
        found, n_bytes = self.tensors[str(index)], size * math.prod(map(int, shape))
        if not n_bytes <= len(found) < n_bytes + ALIGNED:
            raise ValueError(f"{len(found)} bytes for the shape {shape}")
        return found[:n_bytes]

    def tensor(self, index: int, name: str, shape: list[int]) -> torch.Tensor:
        if min(shape, default=0) < 0:
            raise ValueError(f"a tensor with the shape {shape}")
        try:
            flat = self._bytes(index, shape, DTYPES[name].itemsize)
            return torch.from_numpy(flat).view(DTYPES[name]).reshape(shape)
        except RuntimeError as error:
            raise ValueError(f"a tensor of {name} with the shape {shape}: {error}") from error


_READERS: dict[str, Any] = {
    "t": lambda self, *forms: tuple(self.each(forms)),
    "l": lambda self, *forms: self.each(forms),
    "ti": lambda self, *found: tuple(self.integers(*found)),
    "li": _Unpacker.integers,
    "tf": lambda self, *found: tuple(self.reals(*found)),
    "lf": _Unpacker.reals,
    "tr": lambda self, *found: tuple(self.rows(*found)),
    "lr": _Unpacker.rows,
    "to": lambda self, *found: tuple(self.records(*found)),
    "lo": _Unpacker.records,
    "d": _Unpacker.mapping,
    "r": lambda self, start, stop, step: range(start, stop, step),
    "n": _Unpacker.numbers,
    "s": lambda self, *found: self.numbers(*found)[()],
    "T": _Unpacker.tensor,
    "F": _Unpacker.frame,
    "o": _Unpacker.record,
    "b": lambda self, digest: _unpacked_once(str(digest), self.blobs),
}
