"""The answer card in letters: the sentence, four lines with ✓ ✗ ?, warnings, next steps; as wide as the terminal is.

Commands stand on lines of their own and are never wrapped, so that they can be pasted. Colour only repeats what the
signs say.
"""

import textwrap

from rich.console import Console
from rich.text import Text

from anchorscope.report.answer_card import AnswerCard
from anchorscope.screen.messages import harmless

_WIDEST = 100  # columns that a person reads along without losing the line
_STYLES = {"holds": "bold green", "does not hold": "bold red", "undecided": "bold yellow"}
_COMMAND = ": anchorscope "


def print_card(card: AnswerCard, console: Console) -> None:
    """Writes the card."""
    console.print(card_text(card, console.width), soft_wrap=True, highlight=False)


def card_text(card: AnswerCard, width: int) -> Text:
    """The card as lines of at most `width` columns."""
    page = _Page(min(width, _WIDEST))
    page.add(card.model, "dim")
    page.add(card.sentence, "bold")
    page.add("")
    for tile in card.tiles:
        page.marked(tile.mark, _STYLES[tile.verdict], tile.label, tile.figure)
        page.add(tile.detail, "dim", "    ")
    for title, lines in (("Before you believe it", card.warnings), ("What to do next", card.next_steps)):
        if lines:
            page.add("")
            page.add(title, "bold")
        for line in lines:
            page.listed(line)
    return page.text


class _Page:
    """Lines, wrapped."""

    def __init__(self, width: int) -> None:
        self.width, self.text = max(width, 20), Text()

    def add(self, text: str, style: str = "", indent: str = "", first: str | None = None) -> None:
        """A paragraph."""
        begin = indent if first is None else first
        lines = textwrap.wrap(
            harmless(text),
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
        figure = harmless(figure)
        begin = len(self.text) + 1
        self.add(label, "", "    ", f"{mark} ")
        self.text.stylize(style, begin, begin + len(mark))
        written = len(self.text.plain.rpartition("\n")[2])
        self.text.append("  " if written + len(figure) + 2 <= self.width else "\n    ")
        self.text.append(figure, "bold")

    def listed(self, text: str) -> None:
        """A line of a list; a command in it stands below, whole."""
        before, colon, command = text.partition(_COMMAND)
        self.add(before + (":" if colon else ""), "", "    ", "  - ")
        if colon:
            self.text.append(f"\n      {harmless(f'anchorscope {command}')}")
