"""The header of a GGUF file, read within bounds before any library does: its facts, its tensors, and where they lie.

Layout (version 2 and 3): magic, version, number of tensors, number of facts; then the facts (name, kind, value); then
for every tensor name, sides, kind and offset; then, aligned, the tensors. Each length is a number of 64 bits that the
file itself gives, so each is compared with what is left of the file.
"""

import math
import struct
from pathlib import Path
from typing import IO

from anchorscope.models.config_door import check_number
from anchorscope.models.limits import GGUF_ARRAY, GGUF_ENTRIES, GGUF_STRING
from anchorscope.models.plain_files import Unfit, open_regular, size_within
from anchorscope.models.weight_files import StoredWeights

_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_SIDES = 8
_ALIGNMENT = 32
_DENSEST = 8  # values in a byte: no kind packs more


class _Header:
    """Reads on through the header, and never beyond the file's end."""

    def __init__(self, file: IO[bytes], size: int, name: str) -> None:
        self.file, self.left, self.name = file, size, name

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Unfit(f"{self.name} is cut off, or its header is damaged")
        self.left -= count
        content = self.file.read(count)
        if len(content) < count:
            raise Unfit(f"{self.name} is cut off")
        return content

    def number(self, kind: str) -> float:
        return struct.unpack(kind, self.take(struct.calcsize(kind)))[0]

    def count(self, kind: str, most: int, what: str) -> int:
        found = int(self.number(kind))
        if found > most:
            raise Unfit(f"{self.name} says that it has {what.format(f'{found:,}')}; allowed: at most {most:,}")
        return found

    def string(self) -> bytes:
        return self.take(self.count("<Q", GGUF_STRING, "a text of {} bytes"))


def read_gguf_header(path: Path) -> StoredWeights:
    """The tensors of a GGUF file, after a look at everything that its header says."""
    size = size_within(path, 1 << 62)
    try:
        with open_regular(path) as file:
            return _read(_Header(file, size, path.name), size)
    except OSError as error:
        raise Unfit(f"{path.name} cannot be read ({error.strerror})") from error


def _read(header: _Header, size: int) -> StoredWeights:
    if header.take(4) != b"GGUF":
        raise Unfit(f"{header.name} is no GGUF file")
    version = int(header.number("<I"))
    if version not in (2, 3):
        raise Unfit(f"{header.name} has version {version} of the format, or its bytes in another order; allowed: 2, 3")
    tensors = header.count("<Q", GGUF_ENTRIES, "{} tensors")
    alignment = _ALIGNMENT
    for _ in range(header.count("<Q", GGUF_ENTRIES, "{} facts")):
        key = header.string().decode("utf-8", "replace")
        value = _fact(header)
        if isinstance(value, int | float):
            check_number(key, value, header.name)
            alignment = int(value) if key == "general.alignment" else alignment
    if alignment < 1 or alignment & (alignment - 1):
        raise Unfit(f"{header.name} says general.alignment = {alignment}; allowed: a power of two")
    found = [_tensor(header) for _ in range(tensors)]
    data = -(-(size - header.left) // alignment) * alignment
    for name, values, offset in found:
        if offset % alignment or data + offset + values // _DENSEST > size:
            raise Unfit(f"{header.name} is cut off or damaged: {name[:100]!r} does not lie inside the file")
    return StoredWeights({name: values for name, values, _ in found}, is_plain=True)


def _fact(header: _Header) -> float | None:
    """The value of a fact where it is a number; texts and lists are passed over."""
    kind = int(header.number("<I"))
    if kind in _NUMBERS:
        return header.number(_NUMBERS[kind])
    if kind == _STRING:
        header.string()
        return None
    if kind != _ARRAY:
        raise Unfit(f"{header.name} holds a fact of the unknown kind {kind}")
    inner, count = int(header.number("<I")), header.count("<Q", GGUF_ARRAY, "a list of {} members")
    if inner in _NUMBERS:
        header.take(count * struct.calcsize(_NUMBERS[inner]))
    elif inner == _STRING:
        for _ in range(count):
            header.string()
    else:
        raise Unfit(f"{header.name} holds a list of the unknown kind {inner}")
    return None


def _tensor(header: _Header) -> tuple[str, int, int]:
    """Name, values and offset of a tensor."""
    name = header.string().decode("utf-8", "replace")
    sides = [int(header.number("<Q")) for _ in range(header.count("<I", _SIDES, "a tensor with {} sides"))]
    header.number("<I")  # how its values are packed, for the library to know
    return name, math.prod(sides), int(header.number("<Q"))
