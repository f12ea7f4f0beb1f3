"""The answer card: what a run found, whether to believe it, what to do next, in ten seconds.

One sentence, four tiles (does the probe know more than confidence and words; how much of its evidence needs question
and answer together; how much more needs the key words than random words; what failed), each with its number, interval
and verdict, then warnings and next steps. Every word comes from the readings of the run, so that the card cannot say
more than they do. The page, the terminal, a notebook and `anchorscope view` show the same card.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorscope.report.card_tiles import CardWords
from anchorscope.report.card_tiles import Tile as Tile
from anchorscope.report.findings import Findings
from anchorscope.report.next_steps import next_steps
from anchorscope.report.page_writer import fragment
from anchorscope.report.palette import display_name
from anchorscope.report.statements.statement import Reading
from anchorscope.report.wording import listing


@dataclass(frozen=True)
class AnswerCard:
    """What a run says first."""

    model: str
    """Whose answers."""
    sentence: str
    """The answer."""
    tiles: tuple[Tile, ...]
    """How sure."""
    warnings: tuple[str, ...]
    """What to know before believing it."""
    next_steps: tuple[str, ...]
    """What to do now."""

    def record(self) -> dict[str, Any]:
        """As answer.json holds it."""
        return asdict(self)


def card_from_record(found: dict[str, Any]) -> AnswerCard:
    """The card that answer.json holds."""
    tiles = tuple(Tile(**one) for one in found["tiles"])
    told = {name: tuple(found[name]) for name in ("warnings", "next_steps")}
    return AnswerCard(found["model"], found["sentence"], tiles, **told)


def card_html(card: AnswerCard) -> str:
    """The card as a piece of HTML with its own style."""
    return fragment("card", {"card": card})


RANDOM_WEIGHTS = "RANDOM WEIGHTS"
"""How the one begins that the card tells in its own words."""
UNAVAILABLE = "not available on "
"""How a warning begins that an experiment cannot be made on a dataset."""
NOISE = "Random weights: this model was never trained, and every number here is noise."


def answer_card(findings: Findings, observations: Sequence[Reading]) -> AnswerCard:
    """The card of a run."""
    said = CardWords(findings, observations)
    sentence = said.answer()
    tiles = (said.probe_tile(), said.together_tile(), said.question_tile(), said.controls_tile())
    if findings.random_weights:
        sentence = NOISE
    return AnswerCard(findings.model, sentence, tiles, _warnings(findings), next_steps(findings, observations))


def _warnings(findings: Findings) -> tuple[str, ...]:
    """What a reader has to know first: the same of several datasets once, and what could not be done as a count."""
    found: dict[str, list[str]] = {NOISE: []} if findings.random_weights else {}
    for warning in findings.warnings:
        name = next((one for one in findings.datasets if warning.startswith(f"{one}: ")), "")
        if not warning.startswith((UNAVAILABLE, RANDOM_WEIGHTS)):
            found.setdefault(warning.removeprefix(f"{name}: "), []).append(display_name(name) if name else "")
    told = [f"{listing(names)}: {text}" if any(names) else text for text, names in found.items()]
    if absent := findings.unavailable.height:
        what = "1 thing" if absent == 1 else f"{absent} things"
        told.append(f"{what} cannot be said on these questions; “Further evidence” names them")
    return tuple(told)
