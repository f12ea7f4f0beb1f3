"""A listener that remembers what it was given."""

from anchorscope.progress import Silent


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)
