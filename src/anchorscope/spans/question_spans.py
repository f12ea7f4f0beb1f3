"""The exact question words E_Q, as places in the question's text: the subject, and the property asked for.

What the dataset says comes first: every occurrence of the subject (less a leading article; case and accents do not
matter, and "Rankin" is found in "Rankin's") and of the property words. Only if both are known and found is the rule
called "metadata". Otherwise the content words of the question are added, by a hand-written list of words that carry no
content in a question, and the rule is called "rules". Punctuation is never part of E_Q, unless it is the subject.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import ARTICLES, Word, located_words, occurrences, without_articles

Span = tuple[int, int]
"""Characters [start, end)."""

_QUESTION = "what which who whom whose when where why how whats whos wheres"
# Not among them: "us" and "may", which in questions are more often a country and a month.
_LINKS = """of in on at by for from to with without within into onto over under above below between among through across
    along around near behind beside beyond during before after since until about against as than via per out up off down
    and or but nor if so because while although though"""
_AUXILIARIES = """is are was were be been being am do does did done doing has have had having can could will would shall
    should might must isnt arent wasnt werent dont doesnt didnt hasnt havent hadnt cant couldnt wont wouldnt"""
_PRONOUNS = """i me my we our you your he him his she her hers it its they them their theirs this that these those there
    here such one ones some any each every both either neither other another anyone someone"""
_HOLDING = "not no also just only very much many more most ever please tell name called known 's s"
_QUESTION_WORDS = ARTICLES | frozenset(_QUESTION.split())
_EMPTY_WORDS = _QUESTION_WORDS.union(_LINKS.split(), _AUXILIARIES.split(), _PRONOUNS.split(), _HOLDING.split())


@dataclass(frozen=True)
class QuestionSpans:
    """Where the exact question words are."""

    spans: tuple[Span, ...]
    """Characters [start, end) of the question, sorted, not overlapping; empty only for a question without any word."""
    rule: Literal["metadata", "rules"]
    """What found them: the dataset's own subject and property words, or (also) the list of words without content."""


def _words(text: str) -> list[Word]:
    """Words as they stand in the text: numbers as written, a possessive apart from its owner."""
    return located_words(text, numbers=False, split_possessive=True)


def _places(phrase: str, text: str, words: Sequence[Word]) -> list[Span]:
    """Every occurrence of a phrase in the text, as whole words."""
    wanted = without_articles([word.text for word in _words(phrase)])
    if not wanted:  # a name made of symbols ("!!!") can only be found as it is written
        start = text.find(phrase.strip()) if phrase.strip() else -1
        return [(start, start + len(phrase.strip()))] if start >= 0 else []
    texts = [word.text for word in words]
    found = [(words[first].start, words[after - 1].end) for first, after in occurrences(wanted, texts)]
    # A subject such as "What" or "It" is also a word of the template; only its last occurrence can be the name.
    return found[-1:] if _EMPTY_WORDS.issuperset(wanted) else found


def _content_places(words: Sequence[Word]) -> Iterator[Span]:
    """The content words; where a question has none, what is left without the articles; else everything."""
    for empty in (_EMPTY_WORDS, _QUESTION_WORDS, frozenset[str]()):
        kept = [word for word in words if word.text not in empty]
        if kept:
            return ((word.start, word.end) for word in kept)
    return iter(())


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Sorted, with overlapping spans made one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def locate_question_words(question: Question) -> QuestionSpans:
    """The exact question words, and the rule that found them."""
    text = question.question
    words = _words(text)
    subject = _places(question.subject, text, words) if question.subject else []
    # A relation's name is the next best thing to property words: "capital" is also how the question puts it.
    phrases = question.property_words or ((question.relation,) if question.relation else ())
    places = [_places(phrase, text, words) for phrase in phrases]
    from_metadata = [*subject, *(span for found in places for span in found)]
    if subject and places and all(places):
        return QuestionSpans(_merged(from_metadata), "metadata")
    return QuestionSpans(_merged([*from_metadata, *_content_places(words)]), "rules")


def exact_question_spans(question: Question) -> list[Span]:
    """Characters [start, end) of the exact question words."""
    return list(locate_question_words(question).spans)
