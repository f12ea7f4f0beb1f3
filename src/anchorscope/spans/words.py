"""Words and spans of characters in a text, where a phrase stands, and the words that carry no content.

Words are read as `datasets.text` reads them: folded, without apostrophes, "'s" a word of its own.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter

from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences, without_articles

Span = tuple[int, int]


@lru_cache(maxsize=16)  # several rules read the same question and answer, one after the other
def words_as_written(text: str) -> tuple[Word, ...]:
    """Words as they stand in the text: numbers as written, a possessive apart from its owner."""
    return tuple(located_words(text, numbers=False, split_possessive=True))


FEW_SPANS = 16
"""Spans up to which comparing with each of them is faster than a search."""


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
    if len(taken) > FEW_SPANS:
        place = bisect_right(taken, start, key=itemgetter(1))
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


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written with spaces."""
    return frozenset(text.split())


QUESTION_WORDS = word_set("what which who whom whose when where why how whats whos wheres")
PREPOSITIONS = word_set(
    """of in on at by for from to with without within into onto over under above below between among through across
    along around near behind beside beyond during before after since until about against as than via per out up off
    down"""
)
"""Words after which something is named."""
AUXILIARIES = word_set(
    """is are was were be been being am do does did done doing has have had having can could will would shall should
    might must isnt arent wasnt werent dont doesnt didnt hasnt havent hadnt cant couldnt wont wouldnt"""
)
"""Forms of be, do and have, and modal verbs; not "may", more often a month in questions."""
PRONOUNS = word_set(
    """i me my we our you your he him his she her hers it its they them their theirs this that these those there
    here such one ones some any each every both either neither other another anyone someone im ive hes shes theyre"""
)
"""Words that stand for something else; not "us", more often a country in questions."""

_CONJUNCTIONS = "and or but nor if so because while whereas although though"
_HOLDING = "all not no also just only very much many more most ever please 's s"

BARE_WORDS = ARTICLES | QUESTION_WORDS
"""What is left out even where a question says little else."""
FUNCTION_WORDS = BARE_WORDS | PREPOSITIONS | AUXILIARIES | PRONOUNS | word_set(f"{_CONJUNCTIONS} {_HOLDING}")
"""Words of grammar."""
FRAME_WORDS = word_set(
    """tell name names called known following given said however then else still yet too even now currently recently
    originally particularly especially usually often"""
)
"""Words of content that only frame a question ("What is the name of …") or set its tone."""
KINDS = word_set("kind type sort")
"""Words that frame a question where "of" follows them ("what kind of")."""
EMPTY_WORDS = FUNCTION_WORDS | FRAME_WORDS
"""Words that are never by themselves what a question is about."""

NAME_PARTICLES = word_set("de da di du del della dos das von van der den ter la le al el bin ibn ben bint abu")
"""Particles inside names of people, of other languages."""
_FOREIGN_LINKS = """les l des d et y e los las lo do delle degli dei die dem ein eine und vom zu zum zur ten te het een
    en og och pa av af o na ve i"""
NAME_LINKS = ARTICLES | NAME_PARTICLES | word_set(f"of 's {_FOREIGN_LINKS}")
"""Lower-case words inside a name: "The Lord of the Rings", "Juan de la Cruz"."""
TITLE_LINKS = NAME_LINKS | word_set("in on at by for from to with without into over under between and")
"""Also those that stand inside titles, but as often between two names ("Bell in Boston", "Lima and Quito")."""
