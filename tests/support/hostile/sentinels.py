"""The user's own files, with names and content that programs stumble over; and what a folder looks like, exactly."""

import hashlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

NAMES = (
    b"notes.txt",
    b"my report.md",
    b"-rf",
    b"a\nb",
    b"caf\xe9.txt",
    "Übung 数学.csv".encode(),
    b".hidden",
    b"x" * 200,
    b"results.csv",
    b"thesis.docx",
    b"$HOME",
    b"%s%n",
    b"[red]x",
    b"index.json.bak",
    b"old.partial",
    b"a.changed-1",
    b"items.parquet.changed-1",
    "\u202egnp.exe".encode(),
    b"\x1b[2J",
    b"CON",
    b"work.zip",
    b"'; rm -rf .",
    b"~",
    b"*",
)
"""Names of files that a user may have; some are no UTF-8."""


def plant(folder: Path, rng: random.Random, count: int = 2) -> None:
    """Puts files of the user's into a folder."""
    for name in rng.sample(NAMES, count):
        place = os.path.join(os.fsencode(folder), name)
        if not os.path.lexists(place):
            with open(place, "wb") as file:
                file.write(rng.randbytes(rng.choice((0, 1, 50, 3000))))


def seen(folder: Path) -> dict[str, str]:
    """Every entry below a folder with all that makes it what it is; links are not followed, pipes not opened."""
    return dict(_seen(os.fsencode(folder), b""))


def _seen(folder: bytes, below: bytes) -> Iterator[tuple[str, str]]:
    for entry in sorted(os.scandir(os.path.join(folder, below)), key=lambda entry: entry.name):
        name = os.path.join(below, entry.name)
        found = entry.stat(follow_symlinks=False)
        kind, mode = stat.S_IFMT(found.st_mode), oct(stat.S_IMODE(found.st_mode))
        if kind == stat.S_IFDIR:
            yield os.fsdecode(name), f"folder {mode}"
            yield from _seen(folder, name)
        elif kind == stat.S_IFLNK:
            yield os.fsdecode(name), f"link to {os.fsdecode(os.readlink(entry.path))}"
        elif kind == stat.S_IFREG:
            yield os.fsdecode(name), f"file {mode} {found.st_size} {_hash(entry.path)}"
        else:
            yield os.fsdecode(name), f"kind {kind:o} {mode}"


def _hash(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
