"""Shards and parts as bytes, between the coordinator and its workers: tensors and records of known types, no pickle.

The bytes are a safetensors file. Arrays and tensors lie in it as their bytes; the tensor `value` is one JSON text that
says how they, plain values and records make up the whole. Long tuples of numbers lie together in two more tensors.
Equal values give equal bytes, so that two results can be compared by their hash. What many shards share (probes)
travels apart, once per worker, under the hash of its bytes.
"""

import hashlib
import json
import marshal
import struct
import weakref
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from anchorscope.execute.content_hash import Body
from anchorscope.execute.packed_file import pieces_of
from anchorscope.execute.travelling import known as known
from anchorscope.execute.travelling import part_names, travels
from anchorscope.execute.unpacking import ALIKE, ARRAY_KINDS, DTYPES, FLOATS, INTS, PLAIN, TEXTS, VALUE
from anchorscope.execute.unpacking import unpack as unpack
from anchorscope.probes.crossfit import ProbeSet

SHARED: tuple[type, ...] = (ProbeSet,)
"""Types that many shards share: packed once, unpacked once."""
_PLAIN_KEYS = {int, str}
_LONG = 8  # numbers from which on a tuple lies among the tensors
_INT32 = np.iinfo(np.int32)
_MARSHAL = 2  # the version of marshal's format, which is the same in every Python 3
_MARSHALLED = np.dtype([("letter", "u1"), ("bits", "<i4")])


@dataclass(frozen=True)
class Packed:
    """A value as bytes."""

    body: bytes
    blobs: Mapping[str, bytes]
    """Parts that several values share, by their sha256; the body names them."""


def pack(value: Any, apart: bool = True) -> Packed:
    """A value as bytes; TypeError where something in it is of no type that travels.

    Without `apart`, as for results, the body holds all of it and there are no blobs.
    """
    packer = _Packer(apart)
    return Packed(b"".join(packer.pieces(value)), packer.blobs)


def pack_result(value: Any) -> list[Body]:
    """The bytes of `pack(value, apart=False)` in pieces, large ones without a copy: the value has to stay as it is."""
    return _Packer(apart=False).pieces(value)


class _Packer:
    """Collects the tensors of one value while its JSON is made."""

    def __init__(self, apart: bool) -> None:
        self.apart = apart  # whether shared values go into blobs of their own
        self.blobs: dict[str, bytes] = {}
        self.tensors: dict[str, np.ndarray[Any, Any]] = {}
        self.ints, self.floats = array("q"), array("d")

    def pieces(self, value: Any) -> list[Body]:
        text = json.dumps(self.form(value), separators=(",", ":"))
        if self.ints:
            wide = np.array(self.ints, dtype=np.int64)
            narrow = wide.min() >= _INT32.min and wide.max() <= _INT32.max
            self.tensors[INTS] = wide.astype(np.int32) if narrow else wide
        if self.floats:
            self.tensors[FLOATS] = np.array(self.floats, dtype=np.float64)
        return pieces_of({**self.tensors, VALUE: np.frombuffer(text.encode(), dtype=np.uint8)})

    def form(self, value: Any) -> Any:
        """A value as JSON: plain values are themselves, all else is a list that begins with its kind."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is tuple or kind is list:
            return self._sequence("t" if kind is tuple else "l", value)
        if isinstance(value, Mapping):
            keys = list(value) if set(map(type, value)) <= _PLAIN_KEYS else [self._key(key) for key in value]
            return ["d", self.form(keys), self.form(list(value.values()))]
        if kind is range:
            return ["r", value.start, value.stop, value.step]
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if self.apart and isinstance(value, SHARED):
            digest, packed = _packed_once(value)
            self.blobs[digest] = packed
            return ["b", digest]
        if travels(kind):
            return ["o", kind.__name__, *(self.form(getattr(value, name)) for name in part_names(kind))]
        if (kind.__module__.partition(".")[0], kind.__name__) == ("polars", "DataFrame"):
            return self._frame(value)
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} does not travel; name it to `wire.known`")

    def _sequence(self, kind: str, values: tuple[Any, ...] | list[Any]) -> Any:
        if len(values) >= _LONG:
            kinds = set(map(type, values))
            if kinds <= TEXTS:  # as they are, without a look at each
                return [kind, *values]
            if kinds == {int} and (found := self._pooled(self.ints, values)):
                return [f"{kind}i", *found]
            if kinds == {float} and (found := self._pooled(self.floats, values)):
                return [f"{kind}f", *found]
            if kinds == {tuple} and (rows := self._rows(values)):
                return [f"{kind}r", *rows]
            one = kinds.pop()
            if not kinds and travels(one) and not (self.apart and issubclass(one, SHARED)):
                columns = [tuple(map(attrgetter(name), values)) for name in part_names(one)]
                return [f"{kind}o", one.__name__, *self._columns(columns)]
        return [kind, *map(self.form, values)]

    def _columns(self, columns: list[tuple[Any, ...]]) -> Iterator[Any]:
        """Records part by part; where a part is the same in all of them it stands there once, but not in every part:
        one has to say how many records there are."""
        alike = [_is_one_value(column) for column in columns]
        if all(alike) and alike:
            alike[0] = False
        for column, is_one in zip(columns, alike, strict=True):
            yield [ALIKE, column[0]] if is_one else self.form(column)

    def _rows(self, values: Any) -> list[Any] | None:
        """Tuples of whole numbers, or of real ones, one after the other; None where they are neither."""
        if found := _whole_numbers(values):
            start = len(self.ints)
            for one in found:
                self.ints.frombytes(one.astype(np.int64).tobytes())
            stop = len(self.ints)
            return [True, stop - len(values), stop, start, stop - len(values)]
        flat = tuple(chain.from_iterable(values))
        kinds = set(map(type, flat))
        if kinds not in ({int}, {float}):
            return None
        is_int = kinds == {int}
        numbers = self._pooled(self.ints if is_int else self.floats, flat)
        lengths = self._pooled(self.ints, tuple(map(len, values)))
        return [is_int, *lengths, *numbers] if numbers and lengths else None

    @staticmethod
    def _pooled(pool: "array[Any]", values: Any) -> tuple[int, int] | None:
        """Where the numbers lie now; None where one is too large."""
        start = len(pool)
        try:
            pool.frombytes(struct.pack(f"{len(values)}{pool.typecode}", *values))  # twice as fast as `extend`
        except struct.error:
            return None
        return start, len(pool)

    @staticmethod
    def _key(key: Any) -> Any:
        if not all(type(one) in (int, str) for one in (key if type(key) is tuple else (key,))):
            raise TypeError(f"a mapping with the key {key!r} does not travel; only numbers, texts, tuples of them do")
        return key

    def _frame(self, value: Any) -> Any:
        """A table, as Arrow writes it."""
        body = value.rechunk().write_ipc(None, compression="uncompressed").getvalue()
        return ["F", self._added(np.frombuffer(body, np.uint8)), len(body)]

    def _array(self, value: "np.ndarray[Any, Any] | np.generic") -> Any:
        if value.dtype.kind not in ARRAY_KINDS or not value.dtype.isnative:
            raise TypeError(f"an array of {value.dtype} does not travel; only plain numbers do")
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        kind = "s" if isinstance(value, np.generic) else "n"
        return [kind, self._added(flat), value.dtype.name, list(value.shape)]

    def _tensor(self, value: torch.Tensor) -> Any:
        name = str(value.dtype).removeprefix("torch.")
        if name not in DTYPES or value.layout != torch.strided:
            raise TypeError(f"a tensor of {value.dtype}, {value.layout} does not travel; only dense plain numbers do")
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        flat = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
        return ["T", self._added(flat), name, list(value.shape)]

    def _added(self, flat: "np.ndarray[Any, Any]") -> int:
        self.tensors[str(len(self.tensors))] = flat
        return len(self.tensors) - 1


def _is_one_value(values: tuple[Any, ...]) -> bool:
    """Whether all are the same plain value, down to their bits: 0 has two signs."""
    first = values[0]
    if type(first) not in PLAIN or set(map(type, values)) != {type(first)} or values.count(first) < len(values):
        return False  # types first: other objects compare in ways of their own
    return type(first) is not float or (first == first and first != 0)


def _whole_numbers(values: Any) -> tuple[Any, Any] | None:
    """The numbers and the lengths of tuples of whole numbers of 32 bits; None where they hold anything else.

    marshal writes a tuple and such a number as a letter and four bytes each: one call finds all types and numbers.
    Anything else begins with another letter, which stands where one is looked for.
    """
    if not set(map(type, values[0])) <= {int}:
        return None
    try:
        written = marshal.dumps(values, _MARSHAL)
    except ValueError:  # a type of its own
        return None
    if len(written) % _MARSHALLED.itemsize:
        return None
    found = np.frombuffer(written, _MARSHALLED)[1:]  # without the outermost
    numbers, lengths = (found["bits"][found["letter"] == ord(letter)] for letter in "i(")
    return (numbers, lengths) if len(lengths) == len(values) and len(lengths) + len(numbers) == len(found) else None


_packed: dict[int, tuple[weakref.ref[Any], str, bytes]] = {}  # shared values, while they live


def _packed_once(value: Any) -> tuple[str, bytes]:
    number = id(value)
    found = _packed.get(number)
    if found is None or found[0]() is not value:
        body = b"".join(pack_result(value))
        ref = weakref.ref(value, lambda _: _packed.pop(number, None))
        found = _packed[number] = ref, hashlib.sha256(body).hexdigest(), body
    return found[1], found[2]
