"""The answer card in letters: the sentence, four lines with ✓ ✗ ?, warnings, next steps; as wide as the terminal is.

Commands stand on lines of their own and are never wrapped, so that they can be pasted. Colour only repeats what the
signs say.
"""

import textwrap

from rich.console import Console
from rich.text import Text

from anchorscope.report.answer_card import AnswerCard
from anchorscope.screen.messages import encodable, encoding_of, harmless

_WIDEST = 100  # columns that a person reads along without losing the line
_STYLES = {"holds": "bold green", "does not hold": "bold red", "undecided": "bold yellow"}
_COMMAND = ": anchorscope "


def print_card(card: AnswerCard, console: Console) -> None:
    """Writes the card."""
    console.print(card_text(card, console.width, encoding_of(console)), soft_wrap=True, highlight=False)


def card_text(card: AnswerCard, width: int, encoding: str = "utf-8") -> Text:
    """The card as lines of at most `width` columns, in signs that the encoding has."""
    page = _Page(min(width, _WIDEST), encoding)
    page.add(card.model, "dim")
    page.add(card.sentence, "bold")
    page.add("")
    in_signs = encodable("✓✗", encoding) == "✓✗"
    for tile in card.tiles:
        mark = tile.mark if in_signs else {"✓": "[yes]", "✗": "[no]", "?": "[?]"}[tile.mark]
        page.marked(mark, _STYLES[tile.verdict], tile.label, tile.figure)
        page.add(tile.detail, "dim", "    ")
    for title, told in (("Before you believe it", card.warnings), ("What to do next", card.next_steps)):
        if told:
            page.add("")
            page.add(title, "bold")
        for line in told:
            page.listed(line)
    return page.text


class _Page:
    """Lines, wrapped."""

    def __init__(self, width: int, encoding: str) -> None:
        self.width, self.encoding, self.text = max(width, 20), encoding, Text()

    def _plain(self, text: str) -> str:
        return encodable(harmless(text), self.encoding)

    def add(self, text: str, style: str = "", indent: str = "", first: str | None = None) -> None:
        """A paragraph."""
        begin = indent if first is None else first
        lines = textwrap.wrap(
            self._plain(text),
            self.width,
            initial_indent=begin,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for line in lines or [""]:
            if len(self.text):
                self.text.append("\n")
            self.text.append(line, style)

    def marked(self, mark: str, style: str, label: str, figure: str) -> None:
        """A tile's first line; its number goes to the next where the line is too short."""
        figure = self._plain(figure)
        begin = len(self.text) + 1
        self.add(label, "", "    ", f"{mark} ")
        self.text.stylize(style, begin, begin + len(mark))
        written = len(self.text.plain.rpartition("\n")[2])
        self.text.append("  " if written + len(figure) + 2 <= self.width else "\n    ")
        self.text.append(figure, "bold")

    def listed(self, text: str) -> None:
        """A line of a list; a command in it stands below, whole."""
        said, colon, command = text.partition(_COMMAND)
        self.add(said + (":" if colon else ""), "", "    ", "  - ")
        if colon:
            self.text.append(f"\n      {self._plain(f'anchorscope {command}')}")
