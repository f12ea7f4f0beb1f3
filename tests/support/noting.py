"""A listener that remembers what it was given."""

from anchorscope.progress import Silent


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.titles: list[str] = []
        """Of all parts that were begun."""

    def start(self, title: str, total: int) -> None:
        self.titles.append(title)

    def note(self, text: str) -> None:
        self.lines.append(text)
