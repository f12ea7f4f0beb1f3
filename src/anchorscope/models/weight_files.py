"""Safetensors files, looked at before they are read: which tensors a folder's weights hold, by their headers alone.

Of the formats that weights come in, pickles can run code, so a folder's weights are `model.safetensors`, or the parts
that `model.safetensors.index.json` lists: plain names in the same folder. Every header must describe its file exactly,
each byte in one tensor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorscope.models.limits import INDEX_BYTES
from anchorscope.models.plain_files import Unfit, open_regular, parse_object, read_object, size_within

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}
_PLAIN = ("F16", "BF16", "F32", "F64")


@dataclass(frozen=True)
class StoredWeights:
    """What a model's weight files hold."""

    values: Mapping[str, int]
    """How many numbers each tensor has."""
    is_plain: bool
    """Whether every number is a value of its own, not packed with others as quantised weights are."""

    @property
    def total(self) -> int:
        """Numbers in all tensors."""
        return sum(self.values.values())


def weight_names(folder: Path) -> list[str]:
    """The files that a folder's weights are in: one, or those that the index lists."""
    if not (folder / INDEX).exists() or (folder / SINGLE).exists():
        return [SINGLE]
    listed = read_object(folder / INDEX, INDEX_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise Unfit(f"{INDEX} lists no weights")
    names = set()
    for name in listed.values():
        if not (
            isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name and "\0" not in name
        ):
            raise Unfit(f"{INDEX} names {str(name)[:100]!r}; allowed: safetensors files in the same folder")
        names.add(name)
    return sorted(names)


def stored_weights(folder: Path) -> StoredWeights:
    """What the headers of a folder's weight files say."""
    values: dict[str, int] = {}
    is_plain = True
    for name in weight_names(folder):
        header = read_header(folder / name)
        is_plain = is_plain and all(tensor["dtype"] in _PLAIN for tensor in header.values())
        values |= {tensor: math.prod(about["shape"]) for tensor, about in header.items()}
    return StoredWeights(values, is_plain)


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """The tensors of one file by name: dtype, shape and place."""
    size = size_within(file, 1 << 62)
    try:
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(INDEX_BYTES, size - 8):
                raise Unfit(f"{file.name} is cut off, or is no safetensors file")
            header = parse_object(stream.read(length), f"the header of {file.name}")
    except OSError as error:
        raise Unfit(f"{file.name} cannot be read ({error.strerror})") from error
    header.pop("__metadata__", None)
    end = 0
    for name, begin, until in sorted(
        ((name, *_place(name, about, file.name)) for name, about in header.items()), key=lambda one: one[1:]
    ):
        if begin != end:
            raise Unfit(f"{file.name} is damaged: {name[:100]!r} begins at byte {begin:,} instead of {end:,}")
        end = until
    if end != size - 8 - length:
        raise Unfit(f"{file.name} is damaged: its tensors end at byte {end:,} of {size - 8 - length:,}")
    return header


def _place(name: str, about: Any, file: str) -> tuple[int, int]:
    """Where a tensor begins and ends, if its dtype and shape ask for exactly that."""
    try:
        bits, shape, (begin, end) = _BITS[about["dtype"]], about["shape"], about["data_offsets"]
        numbers = [*shape, begin, end]
        fits = all(type(one) is int and one >= 0 for one in numbers) and 8 * (end - begin) == bits * math.prod(shape)
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise Unfit(f"{file} is damaged: what its header says of {name[:100]!r} cannot be")
    return begin, end
