"""Is a short answer right: does it name one of the accepted answers? The rules, with examples: docs/grading.md.

An accepted answer counts where its words stand together in the answer; one of one or two characters must be the whole
answer. Numbers, dates and yes/no have their own rules; "not Paris" denies; "Paris or London" guesses.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from anchorscope.answers.grade_names import (
    LISTS,
    WORDS,
    ParsedQuestion,
    alias_readings,
    is_in_region,
    longer_names,
    numerals,
    ordinal_value,
    parse_question,
    readings,
    same_name,
    stands_in,
)
from anchorscope.datasets.text import (
    ARTICLES,
    Word,
    located_words,
    occurrences,
    without_articles,
    words,
)


def _phrases(name: str) -> list[tuple[str, ...]]:
    return sorted(
        (tuple(phrase.split()) for phrase in LISTS["phrases"][name].split("|")),
        key=len,
        reverse=True,
    )


OPENINGS, CLOSINGS = _phrases("openings"), _phrases("closings")
_CLAUSE_END = re.compile(r"[,;:.!?—–]")
_DENIALS = re.compile(
    r"\s*(?:,\s*)?(?:(?:is|was|are|were|did|does|do|has|had|would|could|can)\s+not\b|(?:is|was|are|were|did|does|do)n['’]t\b|"
    r"(?:is|was|are|were)\s+(?:wrong|incorrect|false)\b)(?!\s+(?:only|just)\b)",
    re.I,
)
_OR = re.compile(r"\bor\b", re.I)
_POSSESSIVE = re.compile(r"['’]s?\b")
_REACH = 4  # words of the same clause that a negation speaks of


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer's words in every reading, and the answer without the words around it."""

    text: str
    located: tuple[Word, ...]
    words: tuple[str, ...]
    """All words, articles included."""
    whole: tuple[str, ...]
    core: tuple[str, ...]
    """Without openings and closings, either."""
    haystacks: tuple[tuple[str, ...], ...]
    """For every reading of numerals: all words, words without articles, possessives apart."""


@lru_cache(maxsize=1024)  # sampled answers are compared pair by pair
def parse_answer(answer: str) -> ParsedAnswer:
    located = tuple(located_words(answer))
    words = tuple(word.text for word in located)
    whole = without_articles(words)
    variants = [words, whole]
    if _POSSESSIVE.search(answer):
        variants.append(
            tuple(word.text for word in located_words(answer, split_possessive=True))
        )
    read = [readings(variant) for variant in dict.fromkeys(variants)]
    haystacks = tuple(
        tuple(
            dict.fromkeys(
                f" {' '.join(variant[min(number, len(variant) - 1)])} "
                for variant in read
            )
        )
        for number in range(max(map(len, read)))
    )
    return ParsedAnswer(answer, located, words, whole, _strip_phrases(whole), haystacks)


def _strip_phrases(whole: tuple[str, ...]) -> tuple[str, ...]:
    """The words without openings ("it is") and closings ("I think"), but never down to nothing."""
    core = whole
    while opening := next(
        (phrase for phrase in OPENINGS if core[: len(phrase)] == phrase != core), None
    ):
        core = core[len(opening) :]
    closing = next(
        (phrase for phrase in CLOSINGS if core[-len(phrase) :] == phrase != core), ()
    )
    return core[: len(core) - len(closing)]


def denies(parsed: ParsedAnswer, wanted: tuple[str, ...]) -> bool:
    """Whether the answer names the words only to deny them, or inside another name ("West Virginia")."""
    places = list(occurrences(wanted, parsed.words))
    others = [
        place
        for name in longer_names(wanted)
        for place in occurrences(name, parsed.words)
    ]
    return bool(places) and all(
        _denied(parsed, first, after)
        or any(start <= first and after <= end for start, end in others)
        for first, after in places
    )


def _denied(parsed: ParsedAnswer, first: int, after: int) -> bool:
    if _DENIALS.match(parsed.text, parsed.located[after - 1].end):
        return True
    for index in range(first - 1, max(first - 1 - _REACH, -1), -1):
        following = parsed.words[index + 1]
        if _CLAUSE_END.search(
            parsed.text, parsed.located[index].end, parsed.located[index + 1].start
        ):
            return False
        if parsed.words[index] in WORDS["negations"]:
            return following not in WORDS["hedges"]
        if (
            parsed.words[index] == "than" and not following[0].isdigit()
        ):  # "larger than Jupiter", but "more than 300"
            return True
        if parsed.words[index] in WORDS["negation_ends"]:
            return False
    return False


def guesses(answer: str) -> list[str]:
    """The parts of an answer that offers several: "Paris or London"; else empty."""
    if not _OR.search(answer):
        return []
    parts = [part.strip(" ,;?") for part in _OR.split(answer)]
    offered = [part for part in parts if located_words(part)]
    return offered if len(offered) > 1 else []


def yes_or_no(parsed: ParsedAnswer) -> str | None:
    """`yes` or `no` if the answer begins with it; None otherwise ("No Doubt")."""
    if not parsed.words or parsed.words[0] not in WORDS["yes"] | WORDS["no"]:
        return None
    if len(parsed.words) > 1:
        between = parsed.text[parsed.located[0].end : parsed.located[1].start]
        if not between.strip() and parsed.words[1] not in WORDS["after_polar"]:
            return None
    return "yes" if parsed.words[0] in WORDS["yes"] else "no"


LONGEST_NAME = 1000
"""Characters beyond which neither side is a name, which may be written in many ways."""
SHORT = 2
"""An accepted answer of at most this many characters must be the whole answer."""
_MARKS = re.compile(
    r"(?<=[A-Za-z])[+#]+"
)  # "C", "C++" and "C#" are three things, though symbols are no words


def is_short(alias_words: Sequence[str]) -> bool:
    """Whether an accepted answer is too short to be searched for inside a longer answer."""
    return len(alias_words) <= SHORT and sum(map(len, alias_words)) <= SHORT


def grade(answer: str, accepted: Sequence[str], question: str | None = None) -> bool:
    """Whether the answer names one of the accepted ones; the question, if given, makes more answers clear."""
    parsed = parse_answer(answer)
    if not parsed.words:
        stripped = answer.strip().casefold()
        return bool(stripped) and any(
            stripped == alias.strip().casefold() for alias in accepted
        )
    asked = parse_question(question or "")
    offered = guesses(answer)
    if not offered:
        return any(_matches_alias(parsed, alias, asked) for alias in accepted)
    chosen = [
        alias
        for alias in accepted
        if "or" in words(alias) or words(alias) == parsed.whole
    ]
    return any(_matches_alias(parsed, alias, asked) for alias in chosen) or all(
        grade(part, accepted, question) for part in offered
    )


@dataclass(frozen=True)
class Grader:
    """What decides whether answers are true; `--grader` chooses one by name."""

    name: str
    grade: Callable[[str, Sequence[str], str | None], bool]
    """From an answer, the accepted ones and the question."""


RULES = Grader("rules", grade)


def _matches_alias(parsed: ParsedAnswer, alias: str, asked: ParsedQuestion) -> bool:
    wanted = words(alias)
    short = is_short(wanted)
    if not wanted or (short and _MARKS.findall(parsed.text) != _MARKS.findall(alias)):
        return False
    if wanted in (("yes",), ("no",)):
        return yes_or_no(parsed) == wanted[0] or wanted == parsed.whole
    numeric = _compare_numbers(parsed, alias, wanted, asked)
    if numeric is not None:
        return numeric
    in_region = is_in_region(parsed.text, wanted)
    if in_region is not None and WORDS["negations"].isdisjoint(parsed.words):
        return in_region
    if wanted == parsed.whole:
        return not asked.is_repeated(wanted, parsed.words)
    if not short and _contains(parsed, alias):
        repeated = asked.is_repeated(wanted, parsed.words)
        return not repeated and not denies(parsed, wanted)
    return _matches_name(parsed, alias, asked)


def _contains(parsed: ParsedAnswer, alias: str) -> bool:
    read = alias_readings(alias)
    for index, haystacks in enumerate(parsed.haystacks):
        needle = f" {' '.join(read[min(index, len(read) - 1)])} "
        if any(needle in haystack for haystack in haystacks):
            return True
    # An accepted answer with an article of its own ("Vitamin A") may have lost another one before it.
    return not ARTICLES.isdisjoint(read[0]) and stands_in(read[0], parsed.words)


def _compare_numbers(
    parsed: ParsedAnswer, alias: str, wanted: tuple[str, ...], asked: ParsedQuestion
) -> bool | None:
    """What dates and numbers decide; None if they say nothing."""
    if not any(word[0].isdigit() for word in wanted):
        return None
    if not any(character.isdigit() for character in "".join(numerals(parsed.words))):
        return None
    span = _YEARS.fullmatch(alias.strip())
    if span and span.groups() in _YEARS.findall(parsed.text):
        return not denies(parsed, wanted[:1])
    dates = as_date(alias)
    given_dates = dates_in(parsed.text)
    if any(given.gives(date) for given in given_dates for date in dates):
        return not denies(parsed, wanted) and not any(
            only_beside(parsed.text, date) for date in dates
        )
    if any(given.is_in_another_era(date) for given in given_dates for date in dates):
        return False
    if any(date.month is not None or (date.year or 0) < 0 for date in dates):
        return None
    silent = WORDS["fillers"] | asked.words
    return compare(numbers_in(parsed.text), numbers_in(alias), silent)


def _matches_name(parsed: ParsedAnswer, alias: str, asked: ParsedQuestion) -> bool:
    if max(len(parsed.text), len(alias)) > LONGEST_NAME:
        return False
    if not asked.offers_choice and asked.words.issuperset(parsed.core):
        return False
    if asked.is_another_option(words(alias), parsed.core):
        return False
    return same_name(parsed.text, parsed.core, alias, asked)


UNITS = {name: group[0] for group in _phrases("units") for name in group}
# words that are no unit after an accepted number: "12 players", "9 full seasons"
_LONGEST_COUNTED = 2
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NEGATIVE = re.compile(r"(?:(?<![\w.)])[-−–]\s?|\bminus\s+)(?=[0-9.])", re.I)


class Numbers(NamedTuple):
    """The numbers of a text. Units are compared only where both sides have a known one."""

    quantities: list[tuple[Decimal, str | None]]
    """Values, each with the known unit beside it."""
    others: list[str]
    """The words that are neither a number, nor a unit beside one, nor an approximation."""
    leads: bool
    """Whether a number comes first and only lower-case words after it: "12 players", but not "Apollo 11"."""


def numbers_in(text: str) -> Numbers:
    negative = bool(_NEGATIVE.search(text))
    for symbol, name in LISTS["unit_symbols"].items():
        text = text.replace(symbol, f" {name} ")
    text = re.sub(r"\bper\s+cent\b", "percent", text, flags=re.I)
    text = re.sub(
        r"(?<=[0-9])(?=(?:km|cm|mm|m|kg|g|ft|in|mi|lbs?|h|hrs?|mph|kph)\b)",
        " ",
        text,
        flags=re.I,
    )
    located = [word for word in located_words(text) if word.text not in ARTICLES]
    words = [word.text for word in located]
    beside: set[int] = set()
    quantities: list[tuple[Decimal, str | None]] = []
    for index, word in enumerate(words):
        if _NUMBER.fullmatch(word):
            unit_at = _unit_beside(words, index)
            beside.update((index, *unit_at))
            value = Decimal(word).normalize()
            quantities.append(
                (
                    -value if negative else value,
                    UNITS[words[unit_at[0]]] if unit_at else None,
                )
            )
    other_places = [
        index
        for index, word in enumerate(words)
        if index not in beside and word not in WORDS["approximations"]
    ]
    small_after = (
        index > min(beside) and text[located[index].start].islower()
        for index in other_places
    )
    return Numbers(
        quantities,
        [words[index] for index in other_places],
        bool(quantities) and all(small_after),
    )


def _unit_beside(words: Sequence[str], index: int) -> list[int]:
    """Indices of the units beside the number, the decisive one first: "5 percent", "$5", "20 degrees Celsius"."""
    after = [
        at for at in (index + 1, index + 2) if at < len(words) and words[at] in UNITS
    ]
    if after and after[0] == index + 1:
        return (
            after[::-1]
            if len(after) == 2 and words[after[0]].startswith("degree")
            else after[:1]
        )
    return (
        [index - 1]
        if index and words[index - 1] in ("dollar", "euro", "pound", "yen", "rupee")
        else []
    )


def compare(answer: Numbers, accepted: Numbers, silent: frozenset[str]) -> bool | None:
    """Whether the answer gives the accepted number; None if words must decide.

    The accepted answer must be one number with at most two words after it ("12 players"). The answer must hold no other
    number, and no word beyond the accepted one's own and `silent` ones (such as the question's).
    """
    if len(accepted.quantities) != 1 or len(answer.quantities) != 1:
        return None
    (given, given_unit), (wanted, wanted_unit) = (
        answer.quantities[0],
        accepted.quantities[0],
    )
    if abs(given) != abs(wanted):
        return None
    if given != wanted or (given_unit and wanted_unit and given_unit != wanted_unit):
        return False
    if not accepted.leads or len(accepted.others) > _LONGEST_COUNTED:
        return None
    return True if silent.union(accepted.others).issuperset(answer.others) else None


_MONTH_NAMES = "january february march april may june july august september october november december"
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), start=1)}
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9}
_BEFORE_CHRIST, _AFTER = ("bc", "bce"), ("ad", "ce")
_ISO = re.compile(r"(?<![\w-])([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?![\w-])")
_NUMERIC = re.compile(
    r"(?<![\w/.-])([0-9]{1,2})([/.-])([0-9]{1,2})\2([0-9]{4})(?![\w/-])"
)

_YEARS = re.compile(
    r"(?<![\w-])([0-9]{4})\s*(?:-|–|—|to|until|till|and)\s*([0-9]{4})(?![\w-])", re.I
)
_BEFORE_OR_AFTER = re.compile(r"\b(?:before|after)\s+[0-9]{4}\b", re.I)


class Date(NamedTuple):
    """A date, as far as given; the year is negative before Christ."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def gives(self, wanted: "Date") -> bool:
        """Whether everything in `wanted` is given and equal: a full date gives its year."""
        return all(
            part is None or part == own for part, own in zip(wanted, self, strict=True)
        )

    def is_in_another_era(self, wanted: "Date") -> bool:
        """1200 BC, where 1200 is wanted."""
        return bool(wanted.year) and self.year == -(wanted.year or 0)


def _write_out_dates(text: str) -> list[str]:
    """The text with numeric dates in words, once for every way to read them."""
    names = _MONTH_NAMES.split()

    def spelled(year: str, month: str, day: str, otherwise: str) -> str:
        return (
            f"{int(day)} {names[int(month) - 1]} {year}"
            if 1 <= int(month) <= 12
            else otherwise
        )

    text = _ISO.sub(lambda m: spelled(m[1], m[2], m[3], m[0]), text)
    day_first = _NUMERIC.sub(lambda m: spelled(m[4], m[3], m[1], m[0]), text)
    month_first = _NUMERIC.sub(lambda m: spelled(m[4], m[1], m[3], m[0]), text)
    return [text] if day_first == text == month_first else [day_first, month_first]


def _day(word: str) -> int | None:
    value = (
        int(word)
        if word.isascii() and word.isdigit() and len(word) <= 2
        else ordinal_value(word)
    )
    return value if value is not None and 1 <= value <= 31 else None


def _year(words: Sequence[str], index: int) -> tuple[int | None, int]:
    """The year at word `index` and the index after it: "1776", "44 BC", "AD 79"."""
    before = index < len(words) and words[index] in _AFTER
    start = index + 1 if before else index
    if (
        start >= len(words)
        or not (words[start].isascii() and words[start].isdigit())
        or len(words[start]) > 4
    ):
        return None, index
    era = (
        words[start + 1]
        if start + 1 < len(words) and words[start + 1] in (*_BEFORE_CHRIST, *_AFTER)
        else ""
    )
    if not (era or before) and len(words[start]) != 4:
        return None, index
    value = int(words[start])
    return -value if era in _BEFORE_CHRIST else value, start + (2 if era else 1)


def _dates(words: Sequence[str]) -> Iterator[tuple[Date, int, int]]:
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
            yield (
                Date(year, month, day if month else None),
                index,
                end if year is not None else after,
            )
            index = end if year is not None else after
        else:
            index += 1


def _plain_words(text: str) -> list[str]:
    return list(
        numerals(
            [word.text for word in located_words(text) if word.text not in ARTICLES]
        )
    )


def dates_in(text: str) -> list[Date]:
    """Every date that the text may give."""
    return [
        date
        for reading in _write_out_dates(text)
        for date, _, _ in _dates(_plain_words(reading))
    ]


def as_date(text: str) -> list[Date]:
    """The readings of a text that is a date and nothing else."""
    whole = []
    for reading in _write_out_dates(text):
        words = _plain_words(reading)
        dates = list(_dates(words))
        if len(dates) == 1 and all(
            word in WORDS["around_dates"]
            for word in (*words[: dates[0][1]], *words[dates[0][2] :])
        ):
            whole.append(dates[0][0])
    return whole


def only_beside(text: str, date: Date) -> bool:
    """Whether the text gives a year only as an end of a span of years, or as one before or after the right one."""
    if date.month is not None or not any(given.gives(date) for given in dates_in(text)):
        return False
    rest = _BEFORE_OR_AFTER.sub(" ", _YEARS.sub(" ", text))
    return not any(given.gives(date) for given in dates_in(rest))
