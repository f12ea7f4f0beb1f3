"""Spans of characters in a text: merging and subtracting them, the words of a text, and where a phrase stands in it."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter

from anchorscope.datasets.text import Word, located_words, occurrences, without_articles

Span = tuple[int, int]
"""Characters [start, end)."""


@lru_cache(maxsize=16)  # several rules read the same question and answer, one after the other
def words_as_written(text: str) -> tuple[Word, ...]:
    """Words as they stand in the text: numbers as written, a possessive apart from its owner."""
    return tuple(located_words(text, numbers=False, split_possessive=True))


_FEW = 16  # spans up to which looking at all of them is faster than a search
_end_of = itemgetter(1)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, with overlapping spans made one; spans that only touch stay two."""
    ordered = sorted(spans)
    if len(ordered) < 2:
        return tuple(ordered)
    result: list[Span] = []
    for start, end in ordered:
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def is_clear(start: int, end: int, taken: Sequence[Span]) -> bool:
    """Whether [start, end) shares no character with the taken spans, which are sorted and do not overlap."""
    if len(taken) > _FEW:
        place = bisect_right(taken, start, key=_end_of)
        return place == len(taken) or taken[place][0] >= end
    for first, after in taken:  # noqa: SIM110 - asked for every word of every question, and `all` takes twice as long
        if start < after and first < end:
            return False
    return True


def subtract_spans(spans: Iterable[Span], taken: Sequence[Span], words: Sequence[Word]) -> list[Span]:
    """The spans without what is taken; of a span that is taken in part, the other words stay."""
    kept: list[Span] = []
    parts: list[Span] = []
    for span in spans:
        (kept if is_clear(*span, taken) else parts).append(span)
    if parts:
        for _, start, end in words:
            if not is_clear(start, end, parts) and is_clear(start, end, taken):
                kept.append((start, end))
    return sorted(kept)


def phrase_spans(phrase: str, text: str, words: Sequence[Word]) -> list[Span]:
    """Every occurrence of a phrase in the text as whole words, less its leading article; `words` are the text's."""
    wanted = without_articles([word.text for word in words_as_written(phrase)])
    if not wanted:  # a name made of symbols ("!!!") can only be found as it is written
        start = text.find(phrase.strip()) if phrase.strip() else -1
        return [(start, start + len(phrase.strip()))] if start >= 0 else []
    texts = [word.text for word in words]
    return [(words[first].start, words[after - 1].end) for first, after in occurrences(wanted, texts)]
