"""The exact answer E_A, as a place in the model's answer: the entity, without what is said around it.

Where the grader finds an accepted answer, that is the entity (the longest one found, the first of equals), read from
the same words and therefore never in disagreement with the grade. A wrong answer has no such help: it is taken without
leading articles, quotes and closing punctuation; a long one is a sentence, and only its first clause is taken.
"""

import re
from collections.abc import Sequence

from anchorscope.answers.grade import is_short
from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences, without_articles, words

LONGEST_ENTITY = 5
"""Answers of more words than this are read as sentences; "The Lord of the Rings" and "Paris, France" are not."""

_AROUND = " \t\r\n\v\f\u00a0.,;:!?…\"'“”„‘’«»`*_()[]{}-–—"
_CLAUSE_END = re.compile(r"[.,;:!?](?=\s)|\s(?=[(\[–—])")
# A period after these ends no clause: "St. Louis", "J. Smith".
_ABBREVIATIONS = "st dr mr mrs ms jr sr mt ft no vs prof gen lt col rev hon sgt capt"


def _accepted_place(heard: Sequence[Word], accepted: Sequence[str]) -> tuple[int, int] | None:
    """The longest accepted answer that the grader would find."""
    texts = [word.text for word in heard]
    whole = list(without_articles(texts))
    best: tuple[int, int] | None = None
    for alias in accepted:
        wanted = words(alias)
        if is_short(wanted) and wanted != whole:
            continue
        for first, after in occurrences(wanted, texts):
            start, end = heard[first].start, heard[after - 1].end
            if best is None or (end - start, -start) > (best[1] - best[0], -best[0]):
                best = (start, end)
    return best


def _trimmed(answer: str, start: int, end: int) -> tuple[int, int]:
    """[start, end) without white space, quotes and punctuation at its ends; empty if there is nothing else."""
    part = answer[start:end]
    start += len(part) - len(part.lstrip(_AROUND))
    return start, max(start, start + len(part.strip(_AROUND)))


def _first_clause_end(answer: str, start: int, heard: Sequence[Word]) -> int:
    """Where the first clause ends that holds a word."""
    for match in _CLAUSE_END.finditer(answer, start):
        before = [word for word in heard if word.end <= match.end() and word.start >= start]
        if not before or any(word.start < match.start() < word.end for word in heard):
            continue  # nothing said yet, or inside a word such as "J. R. R."
        abbreviated = before[-1].text in _ABBREVIATIONS.split() or len(before[-1].text) == 1
        if not (match.group() == "." and abbreviated):
            return match.start()
    return len(answer)


def exact_answer_span(answer: str, accepted: Sequence[str]) -> tuple[int, int]:
    """Characters [start, end) of the entity in the answer; never empty unless the answer is."""
    heard = located_words(answer)
    place = _accepted_place(heard, accepted)
    if place is not None:
        return place
    start, end = _trimmed(answer, 0, len(answer))
    named = [word for word in heard if word.text not in ARTICLES]
    if named and heard[0].text in ARTICLES:
        start = max(start, named[0].start)
    if len(heard) > LONGEST_ENTITY:
        end = min(end, _first_clause_end(answer, start, heard))
    start, end = _trimmed(answer, start, end)
    if start < end:
        return start, end
    # Nothing but punctuation or white space: what there is.
    stripped = answer.strip()
    start = answer.find(stripped) if stripped else 0
    return start, start + len(stripped or answer)
