"""Files of strangers are opened here first: regular ones only, no longer than they may be, and JSON within bounds.

A pipe would wait for ever, a device never ends, and a JSON file of a few hundred megabytes fills all memory with empty
objects. Whatever is refused is told in words that begin with the file's name.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from anchorscope import files
from anchorscope.models.limits import DIGITS, JSON_VALUES


class Unfit(Exception):
    """Why a model's file is not used: its name, and what is wrong with it."""


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """A file that is none of pipe, device, socket or folder, to be read."""
    try:
        file = files.open_regular(path)
    except files.NotRegular:
        raise Unfit(f"{path.name} is not a regular file") from None
    except (OSError, ValueError) as error:
        raise Unfit(f"{path.name[:100]} cannot be read ({getattr(error, 'strerror', None) or error})") from error
    with file:
        yield file


def size_within(path: Path, most: int) -> int:
    """The size of a regular file that may have so many bytes at most."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size > most:
        raise Unfit(f"{path.name} has {size:,} bytes; at most {most:,} are read")
    return size


def read_object(path: Path, most: int) -> dict[str, Any]:
    """The object that a JSON file of at most so many bytes holds."""
    size_within(path, most)
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Unfit(f"{path.name} cannot be read ({error.strerror})") from error
    return parse_object(content, path.name)


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """The object that JSON text holds; `name` begins what is said of it."""
    values = sum(content.count(mark) for mark in (b",", b"[", b"{"))
    if values > JSON_VALUES:
        raise Unfit(f"{name} holds about {values:,} values; at most {JSON_VALUES:,} are read")
    try:
        found = json.loads(content.decode("utf-8"), parse_int=_integer)
    except RecursionError:
        raise Unfit(f"{name} is nested too deeply") from None
    except ValueError as error:  # broken JSON, or letters that are not UTF-8
        raise Unfit(f"{name} is not JSON that can be read ({str(error).splitlines()[0][:200]})") from error
    if not isinstance(found, dict):
        raise Unfit(f"{name} holds {type(found).__name__} instead of an object")
    return found


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)
