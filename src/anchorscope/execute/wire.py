"""Shards and parts as bytes, between the coordinator and its workers: tensors and records of known types, no pickle.

The bytes are a safetensors file. Arrays and tensors lie in it as their bytes; the tensor `value` is one JSON text that
says how they, plain values and records make up the whole. Long tuples of numbers lie together in two more tensors.
Equal values give equal bytes, so that two results can be compared by their hash. What many shards share (probes)
travels apart, once per worker, under the hash of its bytes.
"""

import hashlib
import json
import math
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch

from anchorscope.execute.content_hash import Body
from anchorscope.execute.packed_file import ALIGNED, arrays_in, pieces_of
from anchorscope.execute.travelling import known as known
from anchorscope.execute.travelling import known_type, part_names
from anchorscope.probes.crossfit import ProbeSet

SHARED: tuple[type, ...] = (ProbeSet,)
"""Types that many shards share: packed once, unpacked once."""
_MEMO = 64  # shared values that are held after unpacking
_LONG = 8  # numbers from which on a tuple lies among the tensors
_VALUE, _INTS, _FLOATS, _ARRAY_KINDS = "value", "ints", "floats", "biufc"
_INT32 = np.iinfo(np.int32)
_DTYPES = {
    name: getattr(torch, name)
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    )
}  # fmt: skip
_NOT_PACKED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


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


def unpack(body: Body, blobs: Mapping[str, Body]) -> Any:
    """The value again; ValueError where the bytes are not what `pack` makes. Equal blobs give the same object."""
    try:
        return _Unpacker(body, blobs).value()
    except _NOT_PACKED as error:
        raise ValueError(f"these bytes are no packed value ({type(error).__name__}: {str(error)[:200]})") from error


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
            self.tensors[_INTS] = wide.astype(np.int32) if narrow else wide
        if self.floats:
            self.tensors[_FLOATS] = np.array(self.floats, dtype=np.float64)
        return pieces_of({**self.tensors, _VALUE: np.frombuffer(text.encode(), dtype=np.uint8)})

    def form(self, value: Any) -> Any:
        """A value as JSON: plain values are themselves, all else is a list that begins with its kind."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is tuple or kind is list:
            return self._sequence("t" if kind is tuple else "l", value)
        if isinstance(value, Mapping):
            keys = [self._key(key) for key in value]
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
        if known_type(kind.__name__) is kind:
            return ["o", kind.__name__, *(self.form(getattr(value, name)) for name in part_names(kind))]
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} does not travel; name it to `wire.known`")

    def _sequence(self, kind: str, values: tuple[Any, ...] | list[Any]) -> Any:
        if len(values) >= _LONG:
            kinds = set(map(type, values))
            if kinds == {int} and (found := self._pooled(self.ints, values)):
                return [f"{kind}i", *found]
            if kinds == {float} and (found := self._pooled(self.floats, values)):
                return [f"{kind}f", *found]
            if kinds == {tuple} and set(map(type, flat := tuple(chain.from_iterable(values)))) == {int}:
                found = self._pooled(self.ints, flat)
                if found and (lengths := self._pooled(self.ints, tuple(map(len, values)))):
                    return [f"{kind}r", *lengths, *found]
            one = kinds.pop()
            if not kinds and known_type(one.__name__) is one and not (self.apart and issubclass(one, SHARED)):
                columns = [tuple(getattr(value, name) for value in values) for name in part_names(one)]
                return [f"{kind}o", one.__name__, *map(self.form, columns)]
        return [kind, *map(self.form, values)]

    @staticmethod
    def _pooled(pool: "array[Any]", values: Any) -> tuple[int, int] | None:
        """Where the numbers lie now; None where one is too large."""
        start = len(pool)
        try:
            pool.extend(array(pool.typecode, values))
        except OverflowError:
            return None
        return start, len(pool)

    @staticmethod
    def _key(key: Any) -> Any:
        if type(key) not in (int, str):
            raise TypeError(f"a mapping with the key {key!r} does not travel; only numbers and texts are keys")
        return key

    def _array(self, value: "np.ndarray[Any, Any] | np.generic") -> Any:
        if value.dtype.kind not in _ARRAY_KINDS or not value.dtype.isnative:
            raise TypeError(f"an array of {value.dtype} does not travel; only plain numbers do")
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        kind = "s" if isinstance(value, np.generic) else "n"
        return [kind, self._added(flat), value.dtype.name, list(value.shape)]

    def _tensor(self, value: torch.Tensor) -> Any:
        name = str(value.dtype).removeprefix("torch.")
        if name not in _DTYPES or value.layout != torch.strided:
            raise TypeError(f"a tensor of {value.dtype}, {value.layout} does not travel; only dense plain numbers do")
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        flat = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
        return ["T", self._added(flat), name, list(value.shape)]

    def _added(self, flat: "np.ndarray[Any, Any]") -> int:
        self.tensors[str(len(self.tensors))] = flat
        return len(self.tensors) - 1


_packed: dict[int, tuple[weakref.ref[Any], str, bytes]] = {}  # shared values, while they live


def _packed_once(value: Any) -> tuple[str, bytes]:
    number = id(value)
    found = _packed.get(number)
    if found is None or found[0]() is not value:
        body = b"".join(pack_result(value))
        ref = weakref.ref(value, lambda _: _packed.pop(number, None))
        found = _packed[number] = ref, hashlib.sha256(body).hexdigest(), body
    return found[1], found[2]


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
            self.tensors[name].tolist() if name in self.tensors else [] for name in (_INTS, _FLOATS)
        )

    def value(self) -> Any:
        return self.read(json.loads(self.tensors[_VALUE].tobytes().rstrip(b"\0")))

    def read(self, form: Any) -> Any:
        if form is None or type(form) in (bool, int, float, str):
            return form
        kind, rest = form[0], form[1:]
        reader = _READERS.get(kind)
        if type(form) is not list or type(kind) is not str or reader is None:
            raise ValueError(f"{str(kind)[:40]!r} is no kind of value")
        return reader(self, *rest)

    def mapping(self, keys: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(self.read(keys), self.read(values), strict=True))

    def record(self, name: str, *forms: Any) -> Any:
        cls, names = self._type(name)
        return cls(**{one: self.read(form) for one, form in zip(names, forms, strict=True)})

    def records(self, name: str, *columns: Any) -> list[Any]:
        """Of one type, which lie part by part."""
        cls, names = self._type(name)
        rows = zip(*map(self.read, columns), strict=True)
        return [cls(**dict(zip(names, row, strict=True))) for row in rows]

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

    def rows(self, *found: int) -> list[tuple[int, ...]]:
        lengths, flat = self.integers(*found[:2]), self.integers(*found[2:])
        ends = list(accumulate(lengths))
        if min(lengths, default=0) < 0 or ends[-1:] != [len(flat)]:
            raise ValueError(f"{len(flat)} numbers in rows of {sum(lengths)}")
        return [tuple(flat[end - length : end]) for end, length in zip(ends, lengths, strict=True)]

    @staticmethod
    def _of_pool(pool: list[Any], start: int, stop: int) -> list[Any]:
        if not 0 <= start <= stop <= len(pool):
            raise ValueError(f"numbers {start} to {stop} of {len(pool)}")
        return pool[start:stop]

    def numbers(self, index: int, name: str, shape: list[int]) -> Any:
        dtype = np.dtype(str(name))
        if dtype.kind not in _ARRAY_KINDS or min(shape, default=0) < 0:
            raise ValueError(f"an array of {name} with the shape {shape}")
        return self._bytes(index, shape, dtype.itemsize).view(dtype).reshape(shape)

    def _bytes(self, index: int, shape: list[int], size: int) -> Any:
        found, n_bytes = self.tensors[str(index)], size * math.prod(map(int, shape))
        if not n_bytes <= len(found) < n_bytes + ALIGNED:
            raise ValueError(f"{len(found)} bytes for the shape {shape}")
        return found[:n_bytes]

    def tensor(self, index: int, name: str, shape: list[int]) -> torch.Tensor:
        if min(shape, default=0) < 0:
            raise ValueError(f"a tensor with the shape {shape}")
        try:
            flat = self._bytes(index, shape, _DTYPES[name].itemsize)
            return torch.from_numpy(flat).view(_DTYPES[name]).reshape(shape)
        except RuntimeError as error:
            raise ValueError(f"a tensor of {name} with the shape {shape}: {error}") from error


_READERS: dict[str, Any] = {
    "t": lambda self, *forms: tuple(map(self.read, forms)),
    "l": lambda self, *forms: list(map(self.read, forms)),
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
    "o": _Unpacker.record,
    "b": lambda self, digest: _unpacked_once(str(digest), self.blobs),
}
