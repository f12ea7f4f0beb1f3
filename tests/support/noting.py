"""Listeners that remember what they were given."""

from dataclasses import dataclass, field
from typing import Any

from anchorscope.progress import Silent


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@dataclass
class Log:
    heard: list[tuple[Any, ...]] = field(default_factory=list)

    def start(self, title: str, total: int) -> None:
        self.heard.append(("start", title, total))

    def advance(self, units: int) -> None:
        self.heard.append(("advance", units))

    def finish(self) -> None:
        self.heard.append(("finish",))
