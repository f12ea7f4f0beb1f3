"""The answer card in letters: whole in any width, with or without colour; commands can be pasted."""

from io import StringIO

import pytest
from rich.console import Console

from anchorscope.report.answer_card import AnswerCard, Tile
from anchorscope.screen.card_letters import card_text, print_card

COMMAND = "anchorscope run runs/a-rather-long-name/recipe.toml --out runs/a-rather-long-name --random-cuts 20"
CARD = AnswerCard(
    model="m\x1b[2J[red]x",
    sentence="About 70\u00a0% of the probe's evidence needs the question's key words (random words: 15\u00a0%).",
    tiles=(
        Tile("Does the probe know more than confidence and words?", "+0.07 [0.03, 0.11] AUC", "Yes: Λ.", "holds"),
        Tile("How much?", "70\u00a0% [60, 80]", "Layer 20.", "undecided"),
        Tile("Do items differ in it?", "35 points [−2, 78]", "Held out.", "undecided"),
        Tile("What failed?", "1 of 5 controls", "Random words.", "does not hold"),
    ),
    warnings=("All 400 answers were supplied.",),
    next_steps=(f"Look at more random cuts: {COMMAND}", "Ask more questions."),
)


@pytest.mark.parametrize("width", [20, 40, 80, 120, 300])
def test_every_word_is_there_in_every_width(width: int) -> None:
    text = card_text(CARD, width).plain
    lines = text.splitlines()
    longest = max(len(word) for word in text.split())
    assert all(len(line) <= max(min(width, 100), longest + 6) for line in lines if COMMAND not in line)
    words = text.split()
    for said in (CARD.sentence, *CARD.warnings, *(tile.label for tile in CARD.tiles)):
        assert set(said.split()) <= set(words)
    assert [line.split()[0] for line in lines if line[:2] in ("✓ ", "✗ ", "? ")] == ["✓", "?", "?", "✗"]
    assert f"      {COMMAND}" in lines
    assert "\x1b" not in text


def printed(**options: object) -> str:
    written = StringIO()
    print_card(CARD, Console(file=written, width=80, **options))  # type: ignore[arg-type]
    return written.getvalue()


def test_colour_only_repeats_the_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = printed(force_terminal=True, color_system="standard")
    assert "\x1b[1;32m✓" in coloured
    assert "\x1b[1;31m✗" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = printed(force_terminal=True, color_system="standard")
    assert "✓" in plain
    assert not any(f"\x1b[{style}m" in plain for style in ("32", "31", "1;32", "1;31"))
