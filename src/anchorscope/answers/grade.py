"""Is a short answer right: does it name one of the accepted answers? The rules, with examples: docs/grading.md.

All of them read the words that `datasets.text` reads (case, accents, punctuation, articles and number words folded).
An accepted answer counts where its words stand together in the answer as whole words; one of one or two characters must
be the whole answer. Numbers, dates and yes/no have rules of their own; a name may also be written in other ways.

An answer is first parsed: "It is Paris, I think" says "Paris"; "not Paris" denies it; "Paris or London" guesses, and is
right only if both are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.answers.grade_names import parse_question, same_name
from anchorscope.answers.grade_words import (
    AFTER_POLAR,
    CLOSINGS,
    FILLERS,
    NEGATION_ENDS,
    NEGATIONS,
    NO,
    NO_NEGATION_BEFORE,
    OPENINGS,
    YES,
    alias_readings,
    as_date,
    compare,
    dates_in,
    is_read_as_written,
    numbers_in,
    only_in_a_span,
    readings,
)
from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences, without_articles, word_tuple, words

_CLAUSE_END = re.compile(r"[,;:.!?—–]")
_DENIALS = re.compile(
    r"\s*(?:,\s*)?(?:(?:is|was|are|were|did|does|do|has|had|would|could|can)\s+not\b|(?:is|was|are|were|did|does|do)n['’]t\b|"
    r"(?:is|was|are|were)\s+(?:wrong|incorrect|false)\b)(?!\s+(?:only|just)\b)",
    re.I,
)
_OR = re.compile(r"\bor\b", re.I)
_POSSESSIVE = re.compile(r"['’]s?\b")
_REACH = 4
"""A negation speaks of what follows within so many words of the same clause."""


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer says: its words in every reading, and the answer without what is said around it."""

    text: str
    located: tuple[Word, ...]
    """All words with their places in the text."""
    words: tuple[str, ...]
    """All words, articles included."""
    whole: tuple[str, ...]
    """Without articles."""
    core: tuple[str, ...]
    """Without what is said around the answer, either."""
    haystacks: tuple[tuple[str, ...], ...]
    """For every reading of numerals, one string each: all words, none of the articles, possessives apart."""
    vocabulary: frozenset[str]
    """Every word that stands in any of them."""
    core_words: frozenset[str]
    core_joined: str
    has_digits: bool


def _padded(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def parse_answer(answer: str) -> ParsedAnswer:
    """Reads an answer."""
    located = tuple(located_words(answer))
    words = tuple(word.text for word in located)
    whole = without_articles(words)
    variants = [words, whole]
    if _POSSESSIVE.search(answer):
        variants.append(tuple(word.text for word in located_words(answer, split_possessive=True)))
    read = [readings(variant) for variant in dict.fromkeys(variants)]
    haystacks = tuple(
        tuple(dict.fromkeys(_padded(one[min(number, len(one) - 1)]) for one in read))
        for number in range(max(map(len, read)))
    )
    core = _core(whole)
    return ParsedAnswer(
        answer,
        located,
        words,
        whole,
        core,
        haystacks,
        vocabulary=frozenset(word for one in read for reading in one for word in reading),
        core_words=frozenset(core),
        core_joined="".join(core),
        has_digits=any(character.isdigit() for word in words for character in word),
    )


_OPENINGS_BY_FIRST = {one[:1]: [phrase for phrase in OPENINGS if phrase[:1] == one[:1]] for one in OPENINGS}


def _core(whole: tuple[str, ...]) -> tuple[str, ...]:
    """The words without openings ("it is") and closings ("I think"), but never down to nothing."""
    first = 0
    while True:
        for opening in _OPENINGS_BY_FIRST.get(whole[first : first + 1], ()):
            after = first + len(opening)
            if whole[first:after] == opening and len(whole) > after:
                first = after
                break
        else:
            break
    core = whole[first:]
    for closing in CLOSINGS:
        if core[-len(closing) :] == closing and len(core) > len(closing):
            return core[: -len(closing)]
    return core


def denies(parsed: ParsedAnswer, wanted: Sequence[str]) -> bool:
    """Whether the answer names the words only to say that they are not the answer."""
    places = list(occurrences(wanted, parsed.words))
    return bool(places) and all(_denied(parsed, first, after) for first, after in places)


def _denied(parsed: ParsedAnswer, first: int, after: int) -> bool:
    if _DENIALS.match(parsed.text, parsed.located[after - 1].end):
        return True
    for index in range(first - 1, max(first - 1 - _REACH, -1), -1):
        following = parsed.words[index + 1]
        if _CLAUSE_END.search(parsed.text, parsed.located[index].end, parsed.located[index + 1].start):
            return False
        if parsed.words[index] in NEGATIONS:
            return following not in NO_NEGATION_BEFORE
        if parsed.words[index] == "than" and not following[0].isdigit():  # "larger than Jupiter", but "more than 300"
            return True
        if parsed.words[index] in NEGATION_ENDS:
            return False
    return False


def guesses(answer: str) -> list[str]:
    """The parts of an answer that offers several: "Paris or London"; empty for one that commits itself."""
    if not _OR.search(answer):
        return []
    parts = [part.strip(" ,;?") for part in _OR.split(answer)]
    offered = [part for part in parts if located_words(part)]
    return offered if len(offered) > 1 else []


def yes_or_no(parsed: ParsedAnswer) -> str | None:
    """`yes` or `no` where the answer begins by saying so; None otherwise ("No Doubt")."""
    if not parsed.words or parsed.words[0] not in YES | NO:
        return None
    if len(parsed.words) > 1:
        between = parsed.text[parsed.located[0].end : parsed.located[1].start]
        if not between.strip() and parsed.words[1] not in AFTER_POLAR:
            return None
    return "yes" if parsed.words[0] in YES else "no"


LONGEST_NAME = 1000
"""Characters beyond which neither an answer nor an accepted one is a name, which may be written in many ways."""
SHORT = 2
"""An accepted answer of at most so many characters must be the whole answer."""

_MARKS = re.compile(r"(?<=[A-Za-z])[+#]+")  # "C", "C++" and "C#" are three things, though symbols are no words


def is_short(alias_words: Sequence[str]) -> bool:
    """Whether a normalised accepted answer is too short to be looked for inside a longer answer."""
    return len(alias_words) <= SHORT and sum(map(len, alias_words)) <= SHORT


def grade(answer: str, accepted: Sequence[str], question: str | None = None) -> bool:
    """Whether the answer names one of the accepted ones; the question, where known, makes more answers clear."""
    parsed = parse_answer(answer)
    if not parsed.words:
        stripped = answer.strip().casefold()
        return bool(stripped) and any(stripped == alias.strip().casefold() for alias in accepted)
    offered = guesses(answer)
    if offered:
        chosen = [alias for alias in accepted if "or" in word_tuple(alias) or word_tuple(alias) == parsed.whole]
        return any(_names(parsed, alias, question) for alias in chosen) or all(
            grade(part, accepted, question) for part in offered
        )
    return any(_names(parsed, alias, question) for alias in accepted)


@dataclass(frozen=True)
class Grader:
    """What decides whether answers are true; `--grader` chooses one by name."""

    name: str
    grade: Callable[[str, Sequence[str], str | None], bool]
    """From an answer, the accepted ones and the question."""


RULES = Grader("rules", grade)
"""The rules of this file."""


def _names(parsed: ParsedAnswer, alias: str, question: str | None) -> bool:
    wanted = word_tuple(alias)
    short = is_short(wanted)
    if not wanted or (short and _marks(parsed.text) != _marks(alias)):
        return False
    if wanted in (("yes",), ("no",)):
        return yes_or_no(parsed) == wanted[0] or wanted == parsed.whole
    numeric = _by_numbers(parsed, alias, wanted, question)
    if numeric is not None:
        return numeric
    if wanted == parsed.whole:
        return not _repeats(parsed, wanted, question)
    if not short and _contains(parsed, alias, wanted[0]):
        return not _repeats(parsed, wanted, question) and not denies(parsed, wanted)
    return _resembles(parsed, wanted) and _relaxed(parsed, alias, question)


def _repeats(parsed: ParsedAnswer, wanted: Sequence[str], question: str | None) -> bool:
    """Whether the answer names the accepted one only because the question does."""
    if not question:
        return False
    parsed_question = parse_question(question)
    return parsed_question.gives(wanted, parsed.words) or parsed_question.prefers_another(wanted, parsed.words)


def _marks(text: str) -> list[str]:
    return _MARKS.findall(text)


def _contains(parsed: ParsedAnswer, alias: str, first: str) -> bool:
    """Whether the words of an accepted answer stand in the answer; `first` is the first of them."""
    if first not in parsed.vocabulary and is_read_as_written(first):  # so it is for nearly all accepted answers
        return False
    read = alias_readings(alias)
    for index, haystacks in enumerate(parsed.haystacks):
        needle = f" {' '.join(read[min(index, len(read) - 1)])} "
        if any(needle in haystack for haystack in haystacks):
            return True
    # An accepted answer with an article of its own ("Vitamin A") may have lost another one before it.
    return not ARTICLES.isdisjoint(read[0]) and any(True for _ in occurrences(read[0], parsed.words))


def _by_numbers(parsed: ParsedAnswer, alias: str, wanted: Sequence[str], question: str | None) -> bool | None:
    """What dates and numbers decide; None where they say nothing."""
    if not parsed.has_digits or not any(word[0].isdigit() for word in wanted):
        return None
    dates = as_date(alias)
    if any(one.gives(date) for one in dates_in(parsed.text) for date in dates):
        return not denies(parsed, wanted) and not any(only_in_a_span(parsed.text, date) for date in dates)
    if any(date.month is not None or (date.year or 0) < 0 for date in dates):
        return None
    known = FILLERS | parse_question(question).words if question else FILLERS
    return compare(numbers_in(parsed.text), numbers_in(alias), known)


def _resembles(parsed: ParsedAnswer, wanted: Sequence[str]) -> bool:
    """Whether the two have enough in common to be compared with care: a word, all letters, or the first ones."""
    core = parsed.core
    if not parsed.core_words.isdisjoint(wanted) or core[-1][:3] == wanted[-1][:3]:
        return True
    if parsed.core_joined == "".join(wanted):
        return True
    return 1 in (len(core), len(wanted)) and core[0][0] == wanted[0][0]


def _relaxed(parsed: ParsedAnswer, alias: str, question: str | None) -> bool:
    """Whether the whole answer is the accepted one written in another way; nothing very long is a name."""
    if max(len(parsed.text), len(alias)) > LONGEST_NAME:
        return False
    parsed_question = parse_question(question) if question else None
    if parsed_question is not None:
        if not parsed_question.offers_choice and parsed_question.words.issuperset(parsed.core):
            return False
        if parsed_question.is_another_option(words(alias), parsed.core):
            return False
    return same_name(parsed.text, parsed.core, alias, parsed_question)
