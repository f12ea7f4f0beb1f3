"""Logs in the form of inspect_ai's `.eval`, written byte by byte: any compression, also broken ones."""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow

STORED, DEFLATED, ZSTD = 0, 8, 93


def sample(
    number: int, question: Any, target: Any, completion: Any, **others: Any
) -> dict[str, Any]:
    """A sample with the fields that inspect_ai 0.3.285 writes; its events are left out."""
    message = {
        "id": f"m{number}",
        "content": completion,
        "source": "generate",
        "role": "assistant",
    }
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
    if method == DEFLATED:
        squeezed = zlib.compressobj(1, zlib.DEFLATED, -15)
        return squeezed.compress(content) + squeezed.flush()
    return (
        bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))
        if method == ZSTD
        else content
    )


def archive(files: Sequence[tuple[str, bytes]], method: int = ZSTD) -> bytes:
    """A ZIP archive, written by hand: the standard library packs no zstd."""
    body, directory = b"", b""
    for name, content in files:
        squeezed, title = packed(content, method), name.encode()
        sizes = (zlib.crc32(content), len(squeezed), len(content))
        numbers = (
            20,
            20,
            0,
            method,
            0,
            0,
            *sizes,
            len(title),
            0,
            0,
            0,
            0,
            0,
            len(body),
        )
        directory += struct.pack("<4s6HLLL5HLL", b"PK\1\2", *numbers) + title
        body += (
            struct.pack(
                "<4s5HLLLHH", b"PK\3\4", 20, 0, method, 0, 0, *sizes, len(title), 0
            )
            + title
            + squeezed
        )
    n = len(files)
    return (
        body
        + directory
        + struct.pack("<4s4HLLH", b"PK\5\6", 0, 0, n, n, len(directory), len(body), 0)
    )


def log(samples: Sequence[dict[str, Any]], method: int = ZSTD) -> bytes:
    named = [
        (f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one).encode())
        for one in samples
    ]
    start, header = (
        ("_journal/start.json", b'{"version": 2}'),
        ("header.json", b'{"version": 2, "status": "success"}'),
    )
    return archive([start, *named, header], method)
