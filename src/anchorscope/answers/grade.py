"""Is a short answer right: does it name one of the accepted answers? The rules, with examples: docs/grading.md.

All of them read the words that `datasets.text` reads (case, accents, punctuation, articles and number words folded).
An accepted answer counts where its words stand together in the answer as whole words; one of one or two characters must
be the whole answer. Numbers, dates and yes/no have rules of their own; a name may also be written in other ways.
"""

import re
from collections.abc import Sequence

from anchorscope.answers.grade_answer import Said, denies, guesses, listen, polar
from anchorscope.answers.grade_dates import as_date, dates_in, only_in_a_span
from anchorscope.answers.grade_lists import FILLERS
from anchorscope.answers.grade_names import same_name
from anchorscope.answers.grade_numbers import compare, numbers_in
from anchorscope.answers.grade_question import ask
from anchorscope.answers.grade_words import alias_readings, is_read_as_written
from anchorscope.datasets.text import ARTICLES, occurrences, word_tuple, words

SHORT = 2
"""An accepted answer of at most so many characters must be the whole answer."""

_MARKS = re.compile(r"(?<=[A-Za-z])[+#]+")  # "C", "C++" and "C#" are three things, though symbols are no words


def is_short(alias_words: Sequence[str]) -> bool:
    """Whether a normalised accepted answer is too short to be looked for inside a longer answer."""
    return len(alias_words) <= SHORT and sum(map(len, alias_words)) <= SHORT


def grade(answer: str, accepted: Sequence[str], question: str | None = None) -> bool:
    """Whether the answer names one of the accepted ones; the question, where known, makes more answers clear."""
    said = listen(answer)
    if not said.words:
        stripped = answer.strip().casefold()
        return bool(stripped) and any(stripped == alias.strip().casefold() for alias in accepted)
    offered = guesses(answer)
    if offered:
        chosen = [alias for alias in accepted if "or" in word_tuple(alias) or word_tuple(alias) == said.whole]
        return any(_names(said, alias, question) for alias in chosen) or all(
            grade(part, accepted, question) for part in offered
        )
    return any(_names(said, alias, question) for alias in accepted)


def _names(said: Said, alias: str, question: str | None) -> bool:
    """Whether the answer names this accepted one."""
    wanted = word_tuple(alias)
    short = is_short(wanted)
    if not wanted or (short and _marks(said.text) != _marks(alias)):
        return False
    if wanted in (("yes",), ("no",)):
        return polar(said) == wanted[0] or wanted == said.whole
    numeric = _by_numbers(said, alias, wanted, question)
    if numeric is not None:
        return numeric
    if wanted == said.whole:
        return not _repeats(said, wanted, question)
    if not short and _contains(said, alias, wanted[0]):
        return not _repeats(said, wanted, question) and not denies(said, wanted)
    return _resembles(said, wanted) and _relaxed(said, alias, question)


def _repeats(said: Said, wanted: Sequence[str], question: str | None) -> bool:
    """Whether the answer names the accepted one only because the question does."""
    if not question:
        return False
    asked = ask(question)
    return asked.gives(wanted, said.words) or asked.prefers_another(wanted, said.words)


def _marks(text: str) -> list[str]:
    return _MARKS.findall(text)


def _contains(said: Said, alias: str, first: str) -> bool:
    """Whether the words of an accepted answer stand in the answer; `first` is the first of them."""
    if first not in said.vocabulary and is_read_as_written(first):  # so it is for nearly all accepted answers
        return False
    read = alias_readings(alias)
    for at, haystacks in enumerate(said.haystacks):
        needle = f" {' '.join(read[min(at, len(read) - 1)])} "
        if any(needle in haystack for haystack in haystacks):
            return True
    # An accepted answer with an article of its own ("Vitamin A") may have lost another one before it.
    return not ARTICLES.isdisjoint(read[0]) and any(True for _ in occurrences(read[0], said.words))


def _by_numbers(said: Said, alias: str, wanted: Sequence[str], question: str | None) -> bool | None:
    """What dates and numbers decide; None where they say nothing."""
    if not said.has_digits or not any(word[0].isdigit() for word in wanted):
        return None
    dates = as_date(alias)
    if any(one.gives(date) for one in dates_in(said.text) for date in dates):
        return not denies(said, wanted) and not any(only_in_a_span(said.text, date) for date in dates)
    if any(date.month is not None or (date.year or 0) < 0 for date in dates):
        return None
    known = FILLERS | ask(question).words if question else FILLERS
    return compare(numbers_in(said.text), numbers_in(alias), known)


def _resembles(said: Said, wanted: Sequence[str]) -> bool:
    """Whether the two have enough in common to be compared with care: a word, all letters, or the first ones."""
    core = said.core
    if not said.core_words.isdisjoint(wanted) or core[-1][:3] == wanted[-1][:3] or said.core_joined == "".join(wanted):
        return True
    return 1 in (len(core), len(wanted)) and core[0][0] == wanted[0][0]


def _relaxed(said: Said, alias: str, question: str | None) -> bool:
    """Whether the whole answer is the accepted one written in another way."""
    asked = ask(question) if question else None
    if asked is not None and not asked.choice and asked.words.issuperset(said.core):
        return False
    if asked is not None and asked.is_another_option(words(alias), said.core):
        return False
    return same_name(said.text, said.core, alias, asked)
