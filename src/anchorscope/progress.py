"""How a long step tells how far it is, without knowing who listens.

The engine and the solver are given a `Progress` and call `advance`; the terminal shows a bar with the time left, a test
or a notebook shows nothing.
"""

from typing import Protocol


class Progress(Protocol):
    """One step's listener."""

    def start(self, title: str, total: int) -> None:
        """A step of `total` units begins."""

    def advance(self, units: int) -> None:
        """So many more units are done."""

    def finish(self) -> None:
        """The step is over."""

    def note(self, text: str) -> None:
        """Something that the user has to know."""


class Silent:
    """Listens and shows nothing."""

    def start(self, title: str, total: int) -> None:
        pass

    def advance(self, units: int) -> None:
        pass

    def finish(self) -> None:
        pass

    def note(self, text: str) -> None:
        pass
