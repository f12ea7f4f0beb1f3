"""Places in a text: spans of characters, the words between them, and where a phrase is said."""

from collections.abc import Iterable, Sequence

from anchorscope.datasets.text import Word, located_words, occurrences, without_articles

Span = tuple[int, int]
"""Characters [start, end)."""


def words_as_written(text: str) -> list[Word]:
    """Words as they stand in the text: numbers as written, a possessive apart from its owner."""
    return located_words(text, numbers=False, split_possessive=True)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, with overlapping spans made one; spans that only touch stay two."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def outside(spans: Iterable[Span], taken: Sequence[Span]) -> list[Span]:
    """Those of the spans that share no character with the taken ones."""
    return [(start, end) for start, end in spans if not any(start < after and first < end for first, after in taken)]


def less(spans: Iterable[Span], taken: Sequence[Span], words: Sequence[Word]) -> list[Span]:
    """The spans without what is taken; of a span that is taken in part, the other words stay."""
    whole = list(spans)
    parts = [span for span in whole if span not in outside([span], taken)]
    inside = [(word.start, word.end) for word in words if outside([(word.start, word.end)], parts) == []]
    return sorted([*outside(whole, taken), *outside(inside, taken)])


def phrase_places(phrase: str, text: str, words: Sequence[Word]) -> list[Span]:
    """Every occurrence of a phrase in the text as whole words, less its leading article; `words` are the text's."""
    wanted = without_articles([word.text for word in words_as_written(phrase)])
    if not wanted:  # a name made of symbols ("!!!") can only be found as it is written
        start = text.find(phrase.strip()) if phrase.strip() else -1
        return [(start, start + len(phrase.strip()))] if start >= 0 else []
    texts = [word.text for word in words]
    return [(words[first].start, words[after - 1].end) for first, after in occurrences(wanted, texts)]
