"""The hash of a result: sha256 of its bytes, or where they are many, of the hashes of its chunks, taken side by side.

One core hashes about a gigabyte a second, and a GPU gives more than that. Results of up to one chunk have the plain
sha256 of their bytes.
"""

import hashlib
from collections.abc import Iterator, Sequence

from anchorscope.side_by_side import side_by_side

Body = bytes | memoryview
"""A packed value, or a piece of it."""
CHUNK = 2**23
"""Bytes of a chunk."""
_MANY = b"sha256 of chunks"  # so that no result is taken for the list of another one's chunks


def content_hash(pieces: Sequence[Body]) -> str:
    """Of the bytes that these pieces make up, one after the other, however they are cut."""
    chunks = list(in_chunks(pieces))
    if len(chunks) < 2:
        return _digest(chunks[0] if chunks else ()).hex()
    return hashlib.sha256(_MANY + b"".join(side_by_side(_digest, chunks))).hexdigest()


def in_chunks(pieces: Sequence[Body]) -> Iterator[list[memoryview]]:
    """Pieces that make up a chunk each, cut where one is full."""
    found, size = list[memoryview](), 0
    for piece in pieces:
        left = memoryview(piece).cast("B")
        while len(left):
            taken = left[: CHUNK - size]
            found.append(taken)
            size += len(taken)
            left = left[len(taken) :]
            if size == CHUNK:
                yield found
                found, size = [], 0
    if found:
        yield found


def _digest(pieces: Sequence[Body]) -> bytes:
    found = hashlib.sha256()
    for one in pieces:
        found.update(one)
    return found.digest()
