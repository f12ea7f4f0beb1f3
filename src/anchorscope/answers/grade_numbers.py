"""Numbers in answers: "20 %" is "20 percent", "$5 million" is "5,000,000 dollars", "12" answers for "12 months".

Values are compared exactly. Units are compared only where both sides give one that is known here: "12 years" is not
"12 months", but "12 players" may well be "12 men". Words such as "about" change nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from anchorscope.answers.grade_lists import APPROXIMATIONS, UNIT_SYMBOLS, UNITS
from anchorscope.datasets.text import ARTICLES, located_words

LONGEST_COUNTED = 2
"""An accepted number may be followed by so many words that are no unit: "12 players", "9 full seasons"."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NEGATIVE = re.compile(r"(?:(?<![\w.)])[-−–]\s?|\bminus\s+)(?=[0-9.])", re.I)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: Decimal
    unit: str | None
    """The known unit beside it; None where there is none."""


@dataclass(frozen=True)
class Numbers:
    """What a text says in numbers."""

    quantities: tuple[Quantity, ...]
    others: tuple[str, ...]
    """The words that are neither a number, nor a known unit beside one, nor an approximation."""
    leads: bool
    """Whether a number comes first and only lower-case words after it: "12 players", but not "Apollo 11"."""


def numbers_in(text: str) -> Numbers:
    """The numbers of a text."""
    negative = bool(_NEGATIVE.search(text))
    for symbol, name in UNIT_SYMBOLS.items():
        text = text.replace(symbol, f" {name} ")
    text = re.sub(r"\bper\s+cent\b", "percent", text, flags=re.I)
    text = re.sub(r"(?<=[0-9])(?=(?:km|cm|mm|m|kg|g|ft|in|mi|lbs?|hrs?|mph|kph)\b)", " ", text, flags=re.I)
    heard = [word for word in located_words(text) if word.text not in ARTICLES]
    words = [word.text for word in heard]
    beside: set[int] = set()
    found: list[Quantity] = []
    for at, word in enumerate(words):
        if _NUMBER.fullmatch(word):
            unit_at = _unit_beside(words, at)
            beside.update((at, *unit_at))
            value = Decimal(word).normalize()
            found.append(Quantity(-value if negative else value, UNITS[words[unit_at[0]]] if unit_at else None))
    other_places = [at for at, word in enumerate(words) if at not in beside and word not in APPROXIMATIONS]
    leads = bool(found) and all(at > min(beside) and text[heard[at].start].islower() for at in other_places)
    return Numbers(tuple(found), tuple(words[at] for at in other_places), leads)


def _unit_beside(words: Sequence[str], at: int) -> list[int]:
    """The places of the units beside the number, the telling one first: "5 percent", "$5", "20 degrees Celsius"."""
    after = [place for place in (at + 1, at + 2) if place < len(words) and words[place] in UNITS]
    if after and after[0] == at + 1:
        return after[::-1] if len(after) == 2 and words[after[0]].startswith("degree") else after[:1]
    return [at - 1] if at and words[at - 1] in ("dollar", "euro", "pound", "yen", "rupee") else []


def compare(answer: Numbers, accepted: Numbers, known_words: frozenset[str]) -> bool | None:
    """Whether the answer gives the accepted number; None where words must decide.

    The accepted answer must be one number with at most two words after it ("12 players"). The answer must hold no other
    number, and no further word than the accepted one's own and `known_words` (those of the question, say).
    """
    if len(accepted.quantities) != 1 or len(answer.quantities) != 1:
        return None
    said, wanted = answer.quantities[0], accepted.quantities[0]
    if abs(said.value) != abs(wanted.value):
        return None
    if said.value != wanted.value or (said.unit is not None and wanted.unit is not None and said.unit != wanted.unit):
        return False
    if not accepted.leads or len(accepted.others) > LONGEST_COUNTED:
        return None
    return True if known_words.union(accepted.others).issuperset(answer.others) else None
