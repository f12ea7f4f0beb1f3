"""The exact question words E_Q, as spans of the question's text: the subject, and the property asked for.

Sources, in order of trust. `own`: spans marked by the user. `metadata`: every occurrence of the dataset's subject and
property words. `rules`: quotations, names, numbers and rare words are the subject, common content words the property;
without names, word order decides.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log10
from typing import Literal, NamedTuple

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import ARTICLES, Span, Word, merged
from anchorscope.spans.words import (
    AUXILIARIES,
    BARE_WORDS,
    EMPTY_WORDS,
    FUNCTION_WORDS,
    KINDS,
    PREPOSITIONS,
    QUESTION_WORDS,
    is_clear,
    name_spans,
    number_spans,
    phrase_spans,
    quotation_spans,
    subtract_spans,
    word_set,
    words_as_written,
)

# Zipf value (ten times more common: one more) of a word said once in a million
RARE = 3.0


@cache
def _frequencies() -> dict[str, float]:
    from wordfreq import get_frequency_dict  # only here: it takes a quarter of a second

    return get_frequency_dict("en", wordlist="small")


def zipf(word: str) -> float:
    """log10 of the word's frequency per thousand million words: "the" 7.7, "capital" 5.0, rare words 0."""
    share = _frequencies().get(word, 0.0)
    return log10(share) + 9 if share else 0.0


def is_rare(word: str) -> bool:
    return zipf(word) < RARE


COMMON = 4.0  # Zipf value from which a word without a capital letter may be the property; rarer ones are rather names

_CIRCUMSTANCES = word_set("when where why how")
_DOING = word_set("do does did")
_BEING = AUXILIARIES - _DOING
_PARTICIPLE = re.compile(
    r"(ed|en|wn|built|made|held|set|won|sung|found|born|shot|left|taught|spent)$"
)
_STOPS = PREPOSITIONS | AUXILIARIES | QUESTION_WORDS


def asked_by_order(words: Sequence[Word]) -> set[int]:
    """Indices of the words that say what is asked, by word order alone.

    English puts the property beside the question word ("what sport does"), between a form of "be" and the first
    preposition ("what is the largest organ of"), after an owner ("lima's first mayor"), or makes it the verb: after
    "who", and last after "did" or "was". Only common words are taken.
    """
    texts = [word.text for word in words]
    asking = next(
        (index for index, text in enumerate(texts) if text in QUESTION_WORDS), None
    )
    if asking is None:
        return set()
    after_first = range(1, len(texts))
    owners = [
        index
        for index in after_first
        if texts[index] == "'s" and texts[index - 1] not in FUNCTION_WORDS
    ]
    asked = {
        *_beside(texts, asking),
        *_before(texts, asking),
        *_last_verb(texts, asking),
    }
    asked -= {
        word_index for index in owners for word_index in _run(texts, index - 1, -1)
    }
    asked |= {
        word_index for index in owners for word_index in _run(texts, index + 1, 1)
    }
    asked = {
        index
        for index in asked
        if texts[index] not in EMPTY_WORDS and zipf(texts[index]) >= COMMON
    }
    return asked | {
        index for index in _verb_of_who(texts, asking) if not is_rare(texts[index])
    }


def _run(texts: Sequence[str], index: int, step: int) -> Iterator[int]:
    while 0 <= index < len(texts) and texts[index] not in FUNCTION_WORDS:
        yield index
        index += step


def _beside(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What follows the question word, or a form of "be" after it."""
    if [*_verb_of_who(texts, asking)]:
        return
    content = 0
    for index in range(asking + 1, len(texts)):
        if texts[index] == "of" and texts[index - 1] in KINDS:
            content = 0  # "what type of animal": the animal is asked for
        elif texts[index] in _STOPS:
            helped = (
                index == asking + 1
                and texts[index] in _BEING
                and texts[asking] not in _CIRCUMSTANCES
            )
            if content or not helped:
                return
        elif texts[index] not in FUNCTION_WORDS:
            yield index
            content += 1


def _verb_of_who(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after "who": "who wrote", "who has climbed"."""
    index = asking + 1
    if texts[asking] not in ("who", "whom") or (
        index < len(texts) and texts[index] in _DOING
    ):
        return
    while index < len(texts) and texts[index] in AUXILIARIES:
        index += 1
    if index < len(texts) and texts[index] not in EMPTY_WORDS:
        yield index


def _before(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What stands between a form of "be" and a late question word, if something is named before both."""
    helper = next(
        (index for index in range(asking) if texts[index] in AUXILIARIES), asking
    )
    if any(text not in FUNCTION_WORDS for text in texts[:helper]):
        yield from (
            index
            for index in range(helper + 1, asking)
            if texts[index] not in FUNCTION_WORDS
        )


def _last_verb(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after its subject: "did the wall go up", "when was the declaration of independence signed"."""
    helper = next(
        (
            index
            for index in range(asking + 1, len(texts))
            if texts[index] in AUXILIARIES
        ),
        None,
    )
    if helper is None:
        return
    telling = [
        index
        for index in range(helper + 1, len(texts))
        if texts[index] not in FUNCTION_WORDS
    ]
    for index in telling:
        following = texts[index + 1] if index + 1 < len(texts) else None
        ends = (
            following is None
            or (following in PREPOSITIONS and following != "of")
            or following in ARTICLES
        )
        # the verb comes after its subject
        whose = texts[index - 1] not in FUNCTION_WORDS
        if texts[index - 1] in ("be", "been", "being") or (
            ends
            and whose
            and (texts[helper] in _DOING or _PARTICIPLE.search(texts[index]))
        ):
            yield index
            return


class PlainReading(NamedTuple):
    """What rules read in a question; spans are sorted and don't overlap."""

    subject: tuple[Span, ...]
    property_spans: tuple[Span, ...]
    content: tuple[Span, ...]


def _word_spans(words: Sequence[Word], chosen: Iterable[int]) -> list[Span]:
    return [(words[index].start, words[index].end) for index in sorted(chosen)]


def _frames(words: Sequence[Word], index: int) -> bool:
    """Whether a content word only frames the question: "the name of", "what kind of"."""
    of_kind = (
        words[index].text in KINDS
        and index + 1 < len(words)
        and words[index + 1].text == "of"
    )
    return words[index].text in EMPTY_WORDS or of_kind


def read_plain_text(text: str) -> PlainReading:
    """The exact words of a question by rules alone."""
    words = words_as_written(text)
    named = merged([*quotation_spans(text, words), *name_spans(text, words)])
    marked = merged([*named, *number_spans(text, words)])
    beside = [
        index
        for index, word in enumerate(words)
        if is_clear(word.start, word.end, marked)
    ]
    content = {index for index in beside if words[index].text not in FUNCTION_WORDS}
    telling = {index for index in content if not _frames(words, index)}
    if not telling and not marked:
        return _bare(words)
    if named:
        asked = {index for index in telling if not is_rare(words[index].text)}
    else:
        asked = asked_by_order(words) & telling
        if asked == telling and not marked:
            asked = asked - {
                min(sorted(telling), key=lambda index: zipf(words[index].text))
            }
    return PlainReading(
        subject=merged([*marked, *_word_spans(words, telling - asked)]),
        property_spans=tuple(_word_spans(words, asked)),
        content=merged([*marked, *_word_spans(words, content)]),
    )


def _bare(words: Sequence[Word]) -> PlainReading:
    for empty in (FUNCTION_WORDS, BARE_WORDS, frozenset[str]()):
        spans = tuple(
            _word_spans(
                words,
                (index for index, word in enumerate(words) if word.text not in empty),
            )
        )
        if spans:
            return PlainReading(spans, (), spans)
    return PlainReading((), (), ())


Rule = Literal["own", "metadata", "rules"]
RULES: dict[str, str] = {
    "own": "your spans",
    "metadata": "the dataset's words",
    "rules": "rules",
}
"""How key words are found, in words."""


@dataclass(frozen=True)
class QuestionSpans:
    """The exact question words: characters [start, end), sorted, not overlapping."""

    spans: tuple[Span, ...]
    """E_Q: subject and property together; empty only for a question without words."""
    subject: tuple[Span, ...]
    """What the question is about ("France"); never empty unless `spans` is."""
    property_spans: tuple[Span, ...]
    """What is asked of it ("capital"); disjoint from the subject."""
    content: tuple[Span, ...]
    """Every content word of the question, E_Q included."""
    rule: Rule


def _subject_spans(subject: str, text: str, words: Sequence[Word]) -> list[Span]:
    spans = phrase_spans(subject, text, words)
    # A subject such as "What" or "It" is also a word of the template; only its last occurrence can be the name.
    return (
        spans[-1:]
        if all(word.text in EMPTY_WORDS for word in words_as_written(subject))
        else spans
    )


def locate_question_words(
    question: Question, use_metadata: bool = True
) -> QuestionSpans:
    """The exact question words, and their source; without `use_metadata`, by rules alone."""
    text = question.question
    words = words_as_written(text)
    read = read_plain_text(text)

    def spans_of(
        subject: Sequence[Span], asked: Sequence[Span], rule: Rule
    ) -> QuestionSpans:
        core = merged(subject)
        rest = merged(subtract_spans(merged(asked), core, words))
        return QuestionSpans(
            merged([*core, *rest]),
            core,
            rest,
            merged([*core, *rest, *read.content]),
            rule,
        )

    if not use_metadata:
        return spans_of(read.subject, read.property_spans, "rules")
    if question.exact_spans:
        return spans_of(question.exact_spans, (), "own")
    subject = _subject_spans(question.subject, text, words) if question.subject else []
    # A relation's name is the next best thing to property words: "capital" is also how the question puts it.
    phrases = question.property_words or (
        (question.relation,) if question.relation else ()
    )
    spans_by_phrase = [phrase_spans(phrase, text, words) for phrase in phrases]
    asked = [span for spans in spans_by_phrase for span in spans]
    if subject and spans_by_phrase and all(spans_by_phrase):
        return spans_of(subject, asked, "metadata")
    if subject:  # whatever else is said may be the property
        return spans_of(subject, [*asked, *read.subject, *read.property_spans], "rules")
    about = subtract_spans(read.subject, asked, words) or read.subject or asked
    return spans_of(about, [*asked, *read.property_spans], "rules")
