"""Files inside a ZIP archive, one at a time and within bounds: what the directory at its end says is never trusted.

The standard library's reader takes the whole directory into memory and knows no zstd, which inspect_ai packs with. Here
a directory has a limit, an entry is unpacked no further than a row may be long, and its checksum decides.
"""

import importlib
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from anchorscope.datasets.limits import ALLOW_LARGE, ROW_BYTES
from anchorscope.datasets.question_file import QuestionFile
from anchorscope.datasets.raw_rows import Unusable
from anchorscope.errors import UserError

ZIP_MAGIC = b"PK\x03\x04"
"""How an archive with at least one entry begins."""
_END, _FAR_END, _FAR_PLACE, _LISTED = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02"
_END_SIZE, _FAR_PLACE_SIZE, _FAR_END_SIZE, _LISTED_SIZE, _LOCAL_SIZE = 22, 20, 56, 46, 30
_LONGEST_COMMENT = 0xFFFF
_FAR = 0xFFFFFFFF  # "look into the extra field": sizes and places beyond 4 GB
_STORED, _DEFLATED, _ZSTD = 0, 8, 93
_CHUNK = 1 << 16
_LARGEST_WINDOW = 1 << 27  # bytes that zstd may look back; a frame that asks for more is refused by the libraries


class Entry(NamedTuple):
    """Where a file lies in the archive."""

    name: str
    method: int
    checksum: int
    packed: int
    """Bytes in the archive."""
    size: int
    """Bytes after unpacking, as the directory has it."""
    place: int
    """Where its own header begins."""
    is_encrypted: bool


def entries(file: QuestionFile, wanted: Callable[[str], bool]) -> list[Entry]:
    """The wanted entries of the archive; of several with one name the last, which replaced the others."""
    directory, found = _directory(file), dict[str, Entry]()
    for entry in _listed(file, directory):
        if wanted(entry.name):
            found[entry.name] = entry
    if sum(entry.packed for entry in found.values()) > file.size:  # the same bytes, unpacked again and again
        raise UserError(f"{file.name} lists more bytes than it has: its entries overlap. Fetch it again.")
    return list(found.values())


def unpacked(file: QuestionFile, entry: Entry) -> bytes:
    """An entry's bytes; what cannot be read, or is longer than a row may be, is a bad row."""
    if entry.is_encrypted:
        raise Unusable(f"{entry.name!r} is encrypted")
    if entry.size > ROW_BYTES:
        raise Unusable(f"{entry.name!r} has {entry.size:,} bytes; at most {ROW_BYTES:,} are read")
    stream, parts, size = _stream(file, entry), list[bytes](), 0
    while part := _next(stream, entry):
        size += len(part)
        if size > ROW_BYTES:
            raise Unusable(f"{entry.name!r} has more than {ROW_BYTES:,} bytes, which is the most that is read")
        file.count(memoryview(bytearray(part)), entry.place)
        parts.append(part)
    content = b"".join(parts)
    if zlib.crc32(content) != entry.checksum:
        raise Unusable(f"{entry.name!r} is damaged (its checksum is another)")
    return content


def _next(stream: Any, entry: Entry) -> bytes:
    try:
        return bytes(stream.read(_CHUNK))
    except Exception as error:  # each library of zstd has errors of its own
        told = " ".join(str(error).split())[:100] or type(error).__name__
        raise Unusable(f"{entry.name!r} cannot be unpacked ({told})") from None


def _directory(file: QuestionFile) -> bytes:
    """The list of entries at the archive's end."""
    tail_size = min(file.size, _LONGEST_COMMENT + _END_SIZE + _FAR_PLACE_SIZE)
    tail = _read(file, file.size - tail_size, tail_size)
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise _cut_off(file)
    size, place = struct.unpack_from("<LL", tail, at + 12)
    before = tail[max(at - _FAR_PLACE_SIZE, 0) : at]
    if _FAR in (size, place) and before.startswith(_FAR_PLACE):
        far = _read(file, struct.unpack_from("<Q", before, 8)[0], _FAR_END_SIZE)
        if not far.startswith(_FAR_END):
            raise _cut_off(file)
        size, place = struct.unpack_from("<QQ", far, 40)
    if size > file.limits.memory // 10:
        raise UserError(f"{file.name} has a list of entries of {size / 1e6:,.0f} MB. {ALLOW_LARGE}.")
    return _read(file, place, size)


def _listed(file: QuestionFile, directory: bytes) -> Iterator[Entry]:
    """Every entry of the directory."""
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != _LISTED or len(directory) < at + _LISTED_SIZE:
            raise _cut_off(file)
        flags, method = struct.unpack_from("<HH", directory, at + 8)
        checksum, packed, size, name_size, extra_size, comment_size = struct.unpack_from("<LLLHHH", directory, at + 16)
        (place,) = struct.unpack_from("<L", directory, at + 42)
        start = at + _LISTED_SIZE
        name = directory[start : start + name_size].decode(errors="replace")
        extra = directory[start + name_size : start + name_size + extra_size]
        size, packed, place = _far_numbers(extra, size, packed, place)
        yield Entry(name, method, checksum, packed, size, place, bool(flags & 1))
        at = start + name_size + extra_size + comment_size


def _far_numbers(extra: bytes, *given: int) -> Iterator[int]:
    """The numbers, those that do not fit 32 bits taken from the extra field."""
    far, at = b"", 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            far = extra[at + 4 : at + 4 + length]
        at += 4 + length
    for number in given:
        if number == _FAR and len(far) >= 8:
            yield int.from_bytes(far[:8], "little")
            far = far[8:]
        else:
            yield number


def _stream(file: QuestionFile, entry: Entry) -> Any:
    """The unpacked bytes, to be read."""
    header = _read(file, entry.place, _LOCAL_SIZE)
    if not header.startswith(ZIP_MAGIC):
        raise Unusable(f"{entry.name!r} is not where the list of entries says")
    name_size, extra_size = struct.unpack_from("<HH", header, 26)
    part = _Part(file, entry.place + _LOCAL_SIZE + name_size + extra_size, entry.packed)
    packed = cast(BinaryIO, io.BufferedReader(part))
    if entry.method == _STORED:
        return packed
    if entry.method == _DEFLATED:
        return _Inflated(packed)
    if entry.method == _ZSTD:
        return zstd_stream(packed, file.name)
    raise Unusable(f"{entry.name!r} is packed with method {entry.method}; deflate and zstd are read")


class _Part(io.RawIOBase):
    """Some bytes of the file."""

    def __init__(self, file: QuestionFile, place: int, size: int) -> None:
        self._file, self._place, self._left = file, place, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = os.pread(self._file.handle.fileno(), min(len(buffer), self._left), self._place)
        buffer[: len(found)] = found
        self._place, self._left = self._place + len(found), self._left - len(found)
        return len(found)


class _Inflated:
    """What deflate has packed."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._inflate = packed, zlib.decompressobj(wbits=-15)

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        while not self._inflate.eof:
            given = self._inflate.unconsumed_tail or self._packed.read(_CHUNK)
            found = self._inflate.decompress(given, size)
            if found:
                return found
            if not given:
                raise EOFError("it ends in the middle")
        return b""


def zstd_stream(packed: BinaryIO, name: str) -> Any:
    """What zstd has packed, through whichever library of it is here; Python has one of its own from 3.14 on."""
    readers: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("compression.zstd", lambda library: library.ZstdFile(packed)),
        ("zstandard", lambda library: library.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(packed)),
        ("pyarrow", lambda library: library.CompressedInputStream(library.PythonFile(packed, "r"), "zstd")),
    )
    for module, opened in readers:
        try:
            return opened(importlib.import_module(module))
        except ImportError:
            continue
    raise UserError(
        f"{name} is packed with zstd, and no library of it is installed; pip install zstandard, or write the log anew "
        f"without it."
    )


def _read(file: QuestionFile, place: int, size: int) -> bytes:
    """So many bytes from a place of the file, all of them."""
    if place + size > file.size:
        raise _cut_off(file)
    return os.pread(file.handle.fileno(), size, place)


def _cut_off(file: QuestionFile) -> UserError:
    return UserError(f"{file.name} begins like a ZIP archive and does not end like one: cut off. Fetch it again.")
