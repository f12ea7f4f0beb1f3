"""A case: files in a folder of its own, a command, and what the command may do there."""

import hashlib
import os
import random
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

NAMES = (b"notes.txt", b"-rf", b"a\nb", b"caf\xe9.txt", b".hidden", b"x" * 200, b"$HOME %s", b"[red]x")
NAMES += (b"old.partial", b"a.changed-1", "\u202egnp.exe".encode(), b"\x1b[2J", b"'; rm -rf .", b"*")
"""Names of files that a user may have; some are no UTF-8."""


@dataclass
class Case:
    """What a generator makes from a seed."""

    folder: Path
    """Everything of the case lies below; nothing else may be changed."""
    words: list[str] = field(default_factory=list)
    """What stands behind `anchorscope` on the command line."""
    working_folder: str = "user"
    """Where the command is called, relative to the folder."""
    outs: list[str] = field(default_factory=list)
    """Where the command may write, relative to the folder."""
    ours: set[str] = field(default_factory=set)
    """Files there that anchorscope wrote before, and may change; all others are the user's."""
    memory_mb: int = 3000
    """What the command may take above what the server has."""
    seconds: int = 60
    """A command that takes longer hangs."""
    interrupt: tuple[float, int] | None = None
    """After that many seconds this signal is sent: for commands that rightly go on for long."""
    reaches_out: bool = False
    """Whether the command names a folder outside; writing there fails as on a read-only disk."""
    may_ask_hub: bool = False
    """Whether the command names something that only the hub has."""
    tables: Mapping[str, bytes] | None = None
    """The tables that must stand in the first of `outs` when the command ends well."""

    @property
    def user(self) -> Path:
        """The folder of the user's own things."""
        return self.folder / "user"

    def file(self, name: str, content: bytes | str) -> Path:
        """Writes a file of the user's."""
        path = self.user / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def plant(folder: Path, rng: random.Random, count: int = 2) -> None:
    """Puts files of the user's into a folder."""
    for name in rng.sample(NAMES, count):
        path = os.path.join(os.fsencode(folder), name)
        if not os.path.lexists(path):
            with open(path, "wb") as file:
                file.write(rng.randbytes(rng.choice((0, 1, 50, 3000))))


def seen(folder: Path) -> dict[str, str]:
    """Every entry below a folder with all that makes it what it is; links are not followed, pipes not opened."""
    return dict(_seen(os.fsencode(folder), b""))


def _seen(folder: bytes, below: bytes) -> Iterator[tuple[str, str]]:
    for entry in sorted(os.scandir(os.path.join(folder, below)), key=lambda entry: entry.name):
        name = os.path.join(below, entry.name)
        status = entry.stat(follow_symlinks=False)
        kind, mode = stat.S_IFMT(status.st_mode), oct(stat.S_IMODE(status.st_mode))
        if kind == stat.S_IFDIR:
            yield os.fsdecode(name), f"folder {mode}"
            yield from _seen(folder, name)
        elif kind == stat.S_IFLNK:
            yield os.fsdecode(name), f"link to {os.fsdecode(os.readlink(entry.path))}"
        elif kind == stat.S_IFREG:
            with open(entry.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            yield os.fsdecode(name), f"file {mode} {status.st_size} {digest}"
        else:
            yield os.fsdecode(name), f"kind {kind:o} {mode}"
