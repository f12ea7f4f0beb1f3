"""Logs in the form of inspect_ai's `.eval`, written byte by byte: any compression, also broken ones."""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow

STORED, DEFLATED, ZSTD = 0, 8, 93


def sample(number: int, question: Any, target: Any, completion: Any, **others: Any) -> dict[str, Any]:
    """A sample with the fields that inspect_ai 0.3.285 writes; its events are left out."""
    message = {"id": f"m{number}", "content": completion, "source": "generate", "role": "assistant"}
    return {
        "id": number,
        "epoch": 1,
        "input": question,
        "target": target,
        "messages": [{"content": question, "role": "user"}, message],
        "output": {
            "model": "mockllm/model",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "completion": completion if isinstance(completion, str) else "",
        },
        "scores": {},
        "metadata": {},
        "store": {},
        "events": [],
        "attachments": {},
    } | others


def packed(content: bytes, method: int) -> bytes:
    """The content as the method packs it."""
    if method == DEFLATED:
        squeezed = zlib.compressobj(1, zlib.DEFLATED, -15)
        return squeezed.compress(content) + squeezed.flush()
    return bytes(pyarrow.Codec("zstd").compress(content, asbytes=True)) if method == ZSTD else content


def archive(
    files: Sequence[tuple[str, bytes]], method: int = ZSTD, size: int | None = None, far: bool = False
) -> bytes:
    """A ZIP archive; `size` is what it says of every file's size, `far` writes numbers as those beyond 4 GB are."""
    body, directory = b"", b""
    for name, content in files:
        squeezed, told = packed(content, method), name.encode()
        sizes = (zlib.crc32(content), len(squeezed), len(content) if size is None else size)
        extra = struct.pack("<HHQQQ", 1, 24, sizes[2], sizes[1], len(body)) if far else b""
        listed = (sizes[0], 0xFFFFFFFF, 0xFFFFFFFF) if far else sizes
        place = 0xFFFFFFFF if far else len(body)
        directory += (
            struct.pack(
                "<4s6HLLL5HLL", b"PK\1\2", 20, 20, 0, method, 0, 0, *listed, len(told), len(extra), 0, 0, 0, 0, place
            )
            + told
            + extra
        )
        body += struct.pack("<4s5HLLLHH", b"PK\3\4", 20, 0, method, 0, 0, *sizes, len(told), 0) + told + squeezed
    n, end = len(files), (len(directory), len(body))
    if not far:
        return body + directory + struct.pack("<4s4HLLH", b"PK\5\6", 0, 0, n, n, *end, 0)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 20, 20, 0, 0, n, n, *end)
    place = struct.pack("<4sLQL", b"PK\6\7", 0, len(body) + len(directory), 1)
    return (
        body
        + directory
        + record
        + place
        + struct.pack("<4s4HLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    )


def log(samples: Sequence[dict[str, Any]], method: int = ZSTD, **options: Any) -> bytes:
    """A log of these samples."""
    named = [(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one).encode()) for one in samples]
    start, header = ("_journal/start.json", b'{"version": 2}'), ("header.json", b'{"version": 2, "status": "success"}')
    return archive([start, *named, header], method, **options)
