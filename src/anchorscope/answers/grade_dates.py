"""Dates in answers: "4 July 1776", "July 4th, 1776" and "1776-07-04" are one date.

An answer names an accepted date if it gives everything that the accepted one gives: a full date names its year, a year
does not name a full date, and a span of years ("1939–1945") does not name its ends. Where day and month cannot be told
apart ("07/04/1776"), both readings count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anchorscope.answers.grade_words import numerals, ordinal_value
from anchorscope.datasets.text import ARTICLES, located_words

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


def _year(words: Sequence[str], at: int) -> tuple[int | None, int]:
    """The year that begins at word `at` and the index after it: "1776", "44 BC", "AD 79"."""
    before = at < len(words) and words[at] in ("ad", "ce")
    start = at + 1 if before else at
    if start >= len(words) or not (words[start].isascii() and words[start].isdigit()) or len(words[start]) > 4:
        return None, at
    era = words[start + 1] if start + 1 < len(words) and words[start + 1] in _ERAS else ""
    if not (era or before) and len(words[start]) != 4:
        return None, at
    value = int(words[start])
    return -value if era in _BEFORE_CHRIST else value, start + (2 if era else 1)


def _dates(words: Sequence[str]) -> Iterator[tuple[Date, int, int]]:
    """Every date in the words with its place [first, after)."""
    at = 0
    while at < len(words):
        month, day, after = MONTHS.get(words[at]), None, at + 1
        if month is not None and after < len(words) and _day(words[after]) is not None:
            day, after = _day(words[after]), after + 1
        elif month is None and (day := _day(words[at])) is not None:
            while after < len(words) and words[after] == "of":
                after += 1
            month = MONTHS.get(words[after]) if after < len(words) else None
            after += 1
        year, end = _year(words, after if month else at)
        if month or year is not None:
            yield Date(year, month, day if month else None), at, end if year is not None else after
            at = end if year is not None else after
        else:
            at += 1


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
