"""A case: files in a folder of its own, a command, and what the command may do there."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostile.stage import Stage


@dataclass
class Case:
    """What a generator makes from a seed."""

    folder: Path
    """Everything of the case lies below; nothing else may be changed."""
    words: list[str] = field(default_factory=list)
    """What stands behind `anchorscope` on the command line."""
    place: str = "user"
    """Where the command is called, relative to the folder."""
    outs: list[str] = field(default_factory=list)
    """Where the command may write, relative to the folder."""
    ours: set[str] = field(default_factory=set)
    """Files there that anchorscope wrote before, and may change; all others are the user's."""
    environment: dict[str, str] = field(default_factory=dict)
    memory_mb: int = 3000
    """What the command may take above what the server has."""
    seconds: int = 60
    """A command that takes longer hangs."""
    interrupt: tuple[float, int] | None = None
    """After so many seconds this signal is sent: for commands that rightly go on for long."""
    reaches_out: bool = False
    """Whether the command names a place outside; writing there fails as on a read-only disk."""
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
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@dataclass(frozen=True)
class Generator:
    """One way to be hostile."""

    name: str
    make: "Callable[[random.Random, Stage, Case], None]"
    """Fills a case whose folder is there and empty."""
    share: int
    """Of a hundred cases."""
    in_tests: int
    """Cases in the test suite."""
