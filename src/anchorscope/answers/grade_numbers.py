"""Numbers and dates in answers: "20 %" is "20 percent", "12" answers for "12 months", "July 4th, 1776" is "1776-07-04".

Values are compared exactly ("$5 million" is "5,000,000 dollars"). Units are compared only where both sides give one
that is known here: "12 years" is not "12 months", but "12 players" may well be "12 men". Words such as "about" change
nothing.

An answer names an accepted date if it gives everything that the accepted one gives: a full date names its year, a year
does not name a full date, and a span of years ("1939–1945") does not name its ends. Where day and month cannot be told
apart ("07/04/1776"), both readings count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from anchorscope.answers.grade_words import APPROXIMATIONS, UNIT_SYMBOLS, UNITS, numerals, ordinal_value
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
    located = [word for word in located_words(text) if word.text not in ARTICLES]
    words = [word.text for word in located]
    beside: set[int] = set()
    found: list[Quantity] = []
    for index, word in enumerate(words):
        if _NUMBER.fullmatch(word):
            unit_at = _unit_beside(words, index)
            beside.update((index, *unit_at))
            value = Decimal(word).normalize()
            found.append(Quantity(-value if negative else value, UNITS[words[unit_at[0]]] if unit_at else None))
    other_places = [index for index, word in enumerate(words) if index not in beside and word not in APPROXIMATIONS]
    leads = bool(found) and all(index > min(beside) and text[located[index].start].islower() for index in other_places)
    return Numbers(tuple(found), tuple(words[index] for index in other_places), leads)


def _unit_beside(words: Sequence[str], index: int) -> list[int]:
    """The places of the units beside the number, the telling one first: "5 percent", "$5", "20 degrees Celsius"."""
    after = [place for place in (index + 1, index + 2) if place < len(words) and words[place] in UNITS]
    if after and after[0] == index + 1:
        return after[::-1] if len(after) == 2 and words[after[0]].startswith("degree") else after[:1]
    return [index - 1] if index and words[index - 1] in ("dollar", "euro", "pound", "yen", "rupee") else []


def compare(answer: Numbers, accepted: Numbers, known_words: frozenset[str]) -> bool | None:
    """Whether the answer gives the accepted number; None where words must decide.

    The accepted answer must be one number with at most two words after it ("12 players"). The answer must hold no other
    number, and no further word than the accepted one's own and `known_words` (those of the question, say).
    """
    if len(accepted.quantities) != 1 or len(answer.quantities) != 1:
        return None
    given, wanted = answer.quantities[0], accepted.quantities[0]
    if abs(given.value) != abs(wanted.value):
        return None
    units_known = given.unit is not None and wanted.unit is not None
    if given.value != wanted.value or (units_known and given.unit != wanted.unit):
        return False
    if not accepted.leads or len(accepted.others) > LONGEST_COUNTED:
        return None
    return True if known_words.union(accepted.others).issuperset(answer.others) else None


_MONTH_NAMES = "january february march april may june july august september october november december"
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), start=1)}
"""Months by their names and usual abbreviations."""
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9}
_BEFORE_CHRIST = ("bc", "bce")
_ERAS = (*_BEFORE_CHRIST, "ad", "ce")
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun"
_AROUND = frozenset(f"{_WEEKDAYS} of in on the at a year by c ca circa around about utc gmt date day".split())
_ISO = re.compile(r"(?<![\w-])([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![\w-])")
_NUMERIC = re.compile(r"(?<![\w/.-])([0-9]{1,2})([/.-])([0-9]{1,2})\2([0-9]{4})(?![\w/-])")

_YEARS = re.compile(r"(?<![\w-])([0-9]{4})\s*(?:-|–|—|to|until|till|and)\s*([0-9]{4})(?![\w-])", re.I)


@dataclass(frozen=True)
class Date:
    """A date as far as it is given."""

    year: int | None = None
    """Negative before Christ."""
    month: int | None = None
    day: int | None = None

    def gives(self, wanted: "Date") -> bool:
        """Whether everything that `wanted` gives is given here, and the same."""
        pairs = ((wanted.year, self.year), (wanted.month, self.month), (wanted.day, self.day))
        return all(one is None or one == other for one, other in pairs)


def _written_out(text: str) -> list[str]:
    """The text with numeric dates in words, once for every way to read them."""
    names = _MONTH_NAMES.split()

    def spelled(year: str, month: str, day: str, otherwise: str) -> str:
        return f"{int(day)} {names[int(month) - 1]} {year}" if 1 <= int(month) <= 12 else otherwise

    text = _ISO.sub(lambda m: spelled(m[1], m[2], m[3], m[0]), text)
    day_first = _NUMERIC.sub(lambda m: spelled(m[4], m[3], m[1], m[0]), text)
    month_first = _NUMERIC.sub(lambda m: spelled(m[4], m[1], m[3], m[0]), text)
    return [text] if day_first == text == month_first else [day_first, month_first]


def _day(word: str) -> int | None:
    value = int(word) if word.isascii() and word.isdigit() and len(word) <= 2 else ordinal_value(word)
    return value if value is not None and 1 <= value <= 31 else None


def _year(words: Sequence[str], index: int) -> tuple[int | None, int]:
    """The year that begins at word `index` and the index after it: "1776", "44 BC", "AD 79"."""
    before = index < len(words) and words[index] in ("ad", "ce")
    start = index + 1 if before else index
    if start >= len(words) or not (words[start].isascii() and words[start].isdigit()) or len(words[start]) > 4:
        return None, index
    era = words[start + 1] if start + 1 < len(words) and words[start + 1] in _ERAS else ""
    if not (era or before) and len(words[start]) != 4:
        return None, index
    value = int(words[start])
    return -value if era in _BEFORE_CHRIST else value, start + (2 if era else 1)


def _dates(words: Sequence[str]) -> Iterator[tuple[Date, int, int]]:
    """Every date in the words with its place [first, after)."""
    index = 0
    while index < len(words):
        month, day, after = MONTHS.get(words[index]), None, index + 1
        if month is not None and after < len(words) and _day(words[after]) is not None:
            day, after = _day(words[after]), after + 1
        elif month is None and (day := _day(words[index])) is not None:
            while after < len(words) and words[after] == "of":
                after += 1
            month = MONTHS.get(words[after]) if after < len(words) else None
            after += 1
        year, end = _year(words, after if month else index)
        if month or year is not None:
            yield Date(year, month, day if month else None), index, end if year is not None else after
            index = end if year is not None else after
        else:
            index += 1


def _plain_words(text: str) -> list[str]:
    return list(numerals([word.text for word in located_words(text) if word.text not in ARTICLES]))


def dates_in(text: str) -> list[Date]:
    """Every date that the text may be read to give."""
    return [date for reading in _written_out(text) for date, _, _ in _dates(_plain_words(reading))]


def as_date(text: str) -> list[Date]:
    """The readings of a text that is one date and nothing else; none if it says more."""
    whole = []
    for reading in _written_out(text):
        words = _plain_words(reading)
        found = list(_dates(words))
        if len(found) == 1 and all(word in _AROUND for word in (*words[: found[0][1]], *words[found[0][2] :])):
            whole.append(found[0][0])
    return whole


def only_in_a_span(text: str, date: Date) -> bool:
    """Whether the text gives a year, but only as an end of a span of years."""
    if date.month is not None or not any(one.gives(date) for one in dates_in(text)):
        return False
    return not any(one.gives(date) for one in dates_in(_YEARS.sub(" ", text)))
