"""A listener that remembers what the user has to know.

Imported by putting this folder on `sys.path`, since pytest's import mode does not make helper modules importable.
"""

from anchorscope.progress import Silent


class Notes(Silent):
    """Shows nothing, and remembers the notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)
