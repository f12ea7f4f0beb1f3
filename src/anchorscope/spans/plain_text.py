"""The exact words of a question of which nothing is known but its text.

What stands out (quotations, names, numbers, dates; `names`) and rare words are the subject. Where names or quotations
stand out, the common content words beside them say what is asked; where they do not, as in a text in lower case, the
order of words decides (`asked_by_order`). If that leaves no subject, the rarest word is it.

How common an English word is comes from the counts of the `wordfreq` library (books, subtitles, news, the web). Its
small list is used: the 29,000 words that are said at least once in a million. What is not on it is rare; names of
people, works and technical terms mostly are not. Words are looked up folded, as `datasets.text` reads them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log10

from anchorscope.datasets.text import ARTICLES, Word
from anchorscope.spans.char_spans import Span, is_clear, merged, words_as_written
from anchorscope.spans.function_words import (
    AUXILIARIES,
    BARE_WORDS,
    EMPTY_WORDS,
    FUNCTION_WORDS,
    KINDS,
    PREPOSITIONS,
    QUESTION_WORDS,
    word_set,
)
from anchorscope.spans.names import name_spans, number_spans, quotation_spans

RARE = 3.0
"""Zipf values (ten times more common: one more) below this are not on the list."""


@cache
def _frequencies() -> dict[str, float]:
    """Each word's share of all words; read when it is first needed."""
    from wordfreq import get_frequency_dict  # only here: it takes a quarter of a second

    return get_frequency_dict("en", wordlist="small")


def zipf(word: str) -> float:
    """Logarithm of how often the word is said in a thousand million words: "the" 7.7, "capital" 5.0, rare words 0."""
    share = _frequencies().get(word, 0.0)
    return log10(share) + 9 if share else 0.0


def is_rare(word: str) -> bool:
    """Whether the word is said less than once in a million."""
    return zipf(word) < RARE


COMMON = 4.0
"""Zipf value from which a word without a capital letter may be the property; rarer ones are rather names."""

_CIRCUMSTANCES = word_set("when where why how")
_DOING = word_set("do does did")
_BEING = AUXILIARIES - _DOING
_PARTICIPLE = re.compile(r"(ed|en|wn|built|made|held|set|won|sung|found|born|shot|left|taught|spent)$")
_STOPS = PREPOSITIONS | AUXILIARIES | QUESTION_WORDS


def asked_by_order(words: Sequence[Word]) -> set[int]:
    """Indices of the words that say what is asked, by their order alone: for texts in which nothing stands out.

    English puts the property beside the question word ("what sport does", "how many seasons of"), between a form of
    "be" and the first preposition ("what is the largest organ of", "lima is the capital of which"), behind an owner
    ("lima's first mayor"), or makes it the verb: after "who", and last in what "did" or "was" begins. Only common words
    are taken.
    """
    texts = [word.text for word in words]
    asking = next((index for index, text in enumerate(texts) if text in QUESTION_WORDS), None)
    if asking is None:
        return set()
    after_first = range(1, len(texts))
    owners = [index for index in after_first if texts[index] == "'s" and texts[index - 1] not in FUNCTION_WORDS]
    asked = {*_beside(texts, asking), *_before(texts, asking), *_last_verb(texts, asking)}
    asked -= {one for index in owners for one in _run(texts, index - 1, -1)}
    asked |= {one for index in owners for one in _run(texts, index + 1, 1)}
    asked = {index for index in asked if texts[index] not in EMPTY_WORDS and zipf(texts[index]) >= COMMON}
    return asked | {index for index in _verb_of_who(texts, asking) if not is_rare(texts[index])}


def _run(texts: Sequence[str], index: int, step: int) -> Iterator[int]:
    """Indices from `index` on, up to the next word of grammar."""
    while 0 <= index < len(texts) and texts[index] not in FUNCTION_WORDS:
        yield index
        index += step


def _beside(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What follows the question word; where that is a form of "be", what follows this."""
    if [*_verb_of_who(texts, asking)]:
        return
    content = 0
    for index in range(asking + 1, len(texts)):
        if texts[index] == "of" and texts[index - 1] in KINDS:
            content = 0  # "what type of animal": the animal is asked for
        elif texts[index] in _STOPS:
            helped = index == asking + 1 and texts[index] in _BEING and texts[asking] not in _CIRCUMSTANCES
            if content or not helped:
                return
        elif texts[index] not in FUNCTION_WORDS:
            yield index
            content += 1


def _verb_of_who(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after "who": "who wrote", "who has climbed"."""
    index = asking + 1
    if texts[asking] not in ("who", "whom") or (index < len(texts) and texts[index] in _DOING):
        return
    while index < len(texts) and texts[index] in AUXILIARIES:
        index += 1
    if index < len(texts) and texts[index] not in EMPTY_WORDS:
        yield index


def _before(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What stands between a form of "be" and a late question word, if something is named before both."""
    helper = next((index for index in range(asking) if texts[index] in AUXILIARIES), asking)
    if any(text not in FUNCTION_WORDS for text in texts[:helper]):
        yield from (index for index in range(helper + 1, asking) if texts[index] not in FUNCTION_WORDS)


def _last_verb(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after what it is said of: "did the wall go up", "when was the declaration of independence signed"."""
    helper = next((index for index in range(asking + 1, len(texts)) if texts[index] in AUXILIARIES), None)
    if helper is None:
        return
    telling = [index for index in range(helper + 1, len(texts)) if texts[index] not in FUNCTION_WORDS]
    for index in telling:
        following = texts[index + 1] if index + 1 < len(texts) else None
        ends = following is None or (following in PREPOSITIONS and following != "of") or following in ARTICLES
        whose = texts[index - 1] not in FUNCTION_WORDS  # the verb comes after its subject
        if texts[index - 1] in ("be", "been", "being") or (
            ends and whose and (texts[helper] in _DOING or _PARTICIPLE.search(texts[index]))
        ):
            yield index
            return


@dataclass(frozen=True)
class PlainReading:
    """What rules read in a question; spans are sorted and do not overlap."""

    subject: tuple[Span, ...]
    """What the question is about; empty only for a text without words."""
    property_spans: tuple[Span, ...]
    """What is asked of it; shares no character with the subject."""
    content: tuple[Span, ...]
    """Every content word, subject and property among them."""


def _word_spans(words: Sequence[Word], chosen: Iterable[int]) -> list[Span]:
    return [(words[index].start, words[index].end) for index in sorted(chosen)]


def _frames(words: Sequence[Word], index: int) -> bool:
    """Whether a content word only frames the question: "the name of", "what kind of"."""
    of_kind = words[index].text in KINDS and index + 1 < len(words) and words[index + 1].text == "of"
    return words[index].text in EMPTY_WORDS or of_kind


def read_plain_text(text: str) -> PlainReading:
    """The exact words of a question by rules alone."""
    words = words_as_written(text)
    named = merged([*quotation_spans(text, words), *name_spans(text, words)])
    marked = merged([*named, *number_spans(text, words)])
    beside = [index for index, word in enumerate(words) if is_clear(word.start, word.end, marked)]
    content = {index for index in beside if words[index].text not in FUNCTION_WORDS}
    telling = {index for index in content if not _frames(words, index)}
    if not telling and not marked:
        return _bare(words)
    if named:
        asked = {index for index in telling if not is_rare(words[index].text)}
    else:
        asked = asked_by_order(words) & telling
        if asked == telling and not marked:
            asked = asked - {min(sorted(telling), key=lambda index: zipf(words[index].text))}
    return PlainReading(
        subject=merged([*marked, *_word_spans(words, telling - asked)]),
        property_spans=tuple(_word_spans(words, asked)),
        content=merged([*marked, *_word_spans(words, content)]),
    )


def _bare(words: Sequence[Word]) -> PlainReading:
    """A question without content words: what is left without question words and articles; else everything."""
    for empty in (FUNCTION_WORDS, BARE_WORDS, frozenset[str]()):
        kept = tuple(_word_spans(words, (index for index, word in enumerate(words) if word.text not in empty)))
        if kept:
            return PlainReading(kept, (), kept)
    return PlainReading((), (), ())
