"""The exact answer E_A, as a span of the model's answer: the entity, without the words around it.

The rule never sees the accepted answers: otherwise a probe could tell right answers by position alone. The rules:
docs/exact-tokens.md.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from anchorscope.datasets.text import ARTICLES, Span, Word, merged
from anchorscope.spans.words import (
    FUNCTION_WORDS,
    PHRASES,
    PREPOSITIONS,
    PRONOUNS,
    QUESTION_WORDS,
    TITLE_LINKS,
    name_spans,
    number_spans,
    quotation_spans,
    word_set,
    words_as_written,
)

Part = tuple[int, int]
"""Words [first, after) of an answer."""

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)]*\s")
# A period after these ends no sentence: "St. Louis", "J. Smith".
_ABBREVIATIONS = word_set(
    "st dr mr mrs ms jr sr mt ft no vs prof gen lt col rev hon sgt capt"
)
_COPULAS = word_set("is are was were be became remains")
_RELATIVES = word_set("who which that whom where")
_META_WORDS = word_set(
    "answer correct guess mistaken recall remember response sources"
)  # said of any answer


def _phrases(name: str) -> list[tuple[list[str], bool]]:
    """Phrases, the longest first, and whether punctuation must set them off."""
    kinds = ((name, False), (f"{name}_with_mark", True))
    return [
        (phrase, mark)
        for kind, mark in kinds
        for phrase in sorted(PHRASES[kind], key=len, reverse=True)
    ]


_PHRASES_BEFORE, _PHRASES_BEHIND = _phrases("before"), _phrases("behind")


@dataclass(frozen=True)
class AnswerWords:
    """An answer as words, and the content words of the question that it answers."""

    text: str
    words: Sequence[Word]
    asked: frozenset[str]

    def word(self, index: int) -> str:
        return self.words[index].text

    def gap_after(self, index: int) -> str:
        """The characters between a word and the next one."""
        following = (
            self.words[index + 1].start
            if index + 1 < len(self.words)
            else len(self.text)
        )
        return self.text[self.words[index].end : following]

    def is_lower(self, index: int) -> bool:
        """Whether a word has no capital letter or digit."""
        return self.text[self.words[index].start : self.words[index].end].islower()

    def is_new(self, index: int) -> bool:
        """Whether a word has content that isn't in the question."""
        return not any(
            self.word(index) in empty
            for empty in (FUNCTION_WORDS, self.asked, _META_WORDS)
        )

    def says_something_new(self, part: Part) -> bool:
        first, after = part
        return first < after and self._new_before[after] > self._new_before[first]

    @cached_property
    def _new_before(self) -> list[int]:
        """How many words before each index have new content, for many parts of a long answer."""
        return [0, *accumulate(map(self.is_new, range(len(self.words))))]

    @cached_property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]


def _sentence_end(parsed: AnswerWords, first: int) -> int:
    for index in range(first, len(parsed.words) - 1):
        takes_period = (
            parsed.word(index) in _ABBREVIATIONS or len(parsed.word(index)) == 1
        )
        abbreviated = takes_period and parsed.gap_after(index).startswith(".")
        goes_on = abbreviated and parsed.word(index + 1) not in FUNCTION_WORDS
        if _SENTENCE_END.search(parsed.gap_after(index)) and not goes_on:
            return index + 1
    return len(parsed.words)


def _strip_hedges(parsed: AnswerWords, part: Part) -> Part:
    """A part without hedges before and after the answer; never empty."""
    first, after = part
    texts = parsed.texts
    changed = True
    while changed:
        changed = False
        for phrase, needs_mark in _PHRASES_BEFORE:
            end = first + len(phrase)
            if end < after and texts[first:end] == phrase:
                if needs_mark and not parsed.gap_after(end - 1).strip(" '\""):
                    continue
                first, changed = end, True
        for phrase, needs_mark in _PHRASES_BEHIND:
            start = after - len(phrase)
            if first < start and texts[start:after] == phrase:
                if needs_mark and not parsed.gap_after(start - 1).strip():
                    continue
                after, changed = start, True
    return first, after


def _find_copula(parsed: AnswerWords, part: Part) -> int | None:
    """The form of "be" that divides a sentence: not one inside a title ("This Is It") or after "who"."""
    first, after = part
    for index in range(first + 1, after - 1):
        short = parsed.word(index) == "'s" and parsed.word(index - 1) in PRONOUNS
        plain = (
            parsed.word(index) in _COPULAS and parsed.word(index - 1) not in _RELATIVES
        )
        if short or (plain and (parsed.is_lower(index) or parsed.text.isupper())):
            return index
    return None


def _describes(parsed: AnswerWords, part: Part) -> bool:
    """Whether a part is a pronoun, or an article with a common noun: "it", "the capital of France"."""
    first, after = part
    if parsed.word(first) in PRONOUNS:
        return True
    return (
        parsed.word(first) in ARTICLES
        and after - first > 1
        and parsed.is_lower(first + 1)
    )


def _answering_side(parsed: AnswerWords, left: Part, right: Part) -> Part:
    new_left, new_right = (
        parsed.says_something_new(left),
        parsed.says_something_new(right),
    )
    if new_left != new_right:
        return left if new_left else right
    return (
        left
        if parsed.word(right[0]) in ARTICLES and not _describes(parsed, left)
        else right
    )


def statement(parsed: AnswerWords) -> Part:
    """The words of the answer that state something; empty only without words."""
    first = 0
    while True:
        part = _strip_hedges(parsed, (first, _sentence_end(parsed, first)))
        more = part[1] < len(parsed.words)
        if not (more and _is_only_a_hedge(parsed, part)):
            break
        first = part[1]
    part = _strip_heading(parsed, part)
    copula = _find_copula(parsed, part)
    if copula is None:
        return part
    return _strip_hedges(
        parsed, _answering_side(parsed, (part[0], copula), (copula + 1, part[1]))
    )


def _strip_heading(parsed: AnswerWords, part: Part) -> Part:
    """A part without a heading that only repeats the question: "Capital of France: Paris"."""
    first, after = part
    for index in range(first, after - 1):
        headed = parsed.gap_after(index).strip().startswith(
            ":"
        ) and not parsed.says_something_new((first, index + 1))
        if headed and parsed.asked and parsed.says_something_new((index + 1, after)):
            return index + 1, after
    return part


def _is_only_a_hedge(parsed: AnswerWords, part: Part) -> bool:
    """Whether a first sentence says nothing: "Sure!", "Hmm."."""
    texts = [parsed.word(index) for index in range(*part)]
    return any(texts == phrase for phrase, _ in [*_PHRASES_BEFORE, *_PHRASES_BEHIND])


LONGEST_ENTITY = 5
"""Longer answers are read as sentences; "The Lord of the Rings" and "Paris, France" aren't."""

_AROUND = " \t\r\n\v\f\u00a0.,;:!?…\"'“”„‘’«»`*_()[]{}-–—"
_CLAUSE_MARK = re.compile(r"[,;:!?…]+[\"'”’]?\s|\s[(\[–—]")
_ASKS_FOR_NAME = word_set("who whom whose where")
_ASKS_FOR_NUMBER = word_set("when many much year old long tall far date")
_PLACE_PREPOSITIONS = word_set("in at on near from by around about during")
_CONTRASTS = word_set("but while although though because so")
_PARTICIPLES = word_set("found made known set built born held written sung")


def answer_entity(answer: str, question: str | None = None) -> Span:
    """Characters [start, end) of the entity; never empty unless the answer is."""
    asked = frozenset(word.text for word in words_as_written(question or ""))
    parsed = AnswerWords(answer, words_as_written(answer), asked - FUNCTION_WORDS)
    if parsed.words:
        first, after = _find_entity(
            parsed, statement(parsed), _classify_question(question)
        )
        start, end = _trim(
            answer, parsed.words[first].start, parsed.words[after - 1].end
        )
        # a whole answer keeps its symbols: "C++"
        if first == 0 and after == len(parsed.words):
            start, end = _trim(answer, parsed.words[first].start, len(answer))
        if start < end:
            return start, end
    start, end = _trim(answer, 0, len(answer))
    if start < end:
        return start, end
    # Nothing but punctuation or white space: what there is.
    stripped = answer.strip()
    start = answer.find(stripped) if stripped else 0
    return start, start + len(stripped or answer)


def _trim(answer: str, start: int, end: int) -> Span:
    """[start, end) without white space, quotes and punctuation at its ends; may be empty."""
    part = answer[start:end]
    start += len(part) - len(part.lstrip(_AROUND))
    return start, max(start, start + len(part.strip(_AROUND)))


def _classify_question(question: str | None) -> str:
    """The kind of thing asked for: a `name`, a `number`, or `any`."""
    texts = [word.text for word in words_as_written(question or "")]
    asking = next(
        (index for index, text in enumerate(texts) if text in QUESTION_WORDS), None
    )
    if asking is None:
        return "any"
    if not _ASKS_FOR_NUMBER.isdisjoint(texts[asking : asking + 2]):
        return "number"
    return "name" if texts[asking] in _ASKS_FOR_NAME else "any"


def _find_entity(parsed: AnswerWords, part: Part, wanted: str) -> Part:
    part = _strip_lead(parsed, (part[0], _find_contrast(parsed, part)), wanted != "any")
    # A title of many words ("In the Heat of the Night") is no sentence: nothing in it is written small but its links.
    title = not any(
        parsed.is_lower(index) and parsed.word(index) not in TITLE_LINKS
        for index in range(*part)
    )
    clause = part[0], _clause_end(parsed, part, title)
    if wanted == "any" and part[0] > 0 and parsed.word(part[0] - 1) in ("a", "an"):
        return _noun_phrase(parsed, clause)
    few = clause[1] - clause[0] <= LONGEST_ENTITY
    if (title and wanted != "number") or (few and wanted == "any"):
        return clause
    candidate = _first_candidate(parsed, part if wanted == "name" else clause, wanted)
    return candidate or _strip_asked_tail(parsed, clause)


def _find_contrast(parsed: AnswerWords, part: Part) -> int:
    """The index of "but" or the like in a part, or its end."""
    contrasts = (
        index + 1
        for index in range(part[0], part[1] - 1)
        if parsed.gap_after(index).strip() and parsed.word(index + 1) in _CONTRASTS
    )
    return next(contrasts, part[1])


def _strip_lead(parsed: AnswerWords, part: Part, names_place: bool) -> Part:
    """A part without leading articles, pronouns, prepositions, and "born in"; never empty.

    "In" with a capital letter may begin a title, unless the question asks who, where or when (`names_place`).
    """
    first, after = part
    while after - first > 1 and parsed.gap_after(first).isspace():
        text, following = parsed.word(first), parsed.word(first + 1)
        small = parsed.is_lower(first)
        phrase = (
            small
            and text not in FUNCTION_WORDS
            and following in PREPOSITIONS
            and after - first > 2
        )
        verb = (
            phrase
            and following != "of"
            and first > 0
            and parsed.word(first - 1) not in ARTICLES
        )
        if phrase and (
            text in parsed.asked
            or (verb and not parsed.is_lower(_next_content(parsed, first + 2, after)))
        ):
            first += 2
            continue
        is_preposition = text in (
            PREPOSITIONS if small else _PLACE_PREPOSITIONS if names_place else ()
        )
        if not (
            text in ARTICLES
            or is_preposition
            or (text in PRONOUNS and after - first > 2)
        ):
            break
        first += 1
    return first, after


def _next_content(parsed: AnswerWords, first: int, after: int) -> int:
    return next(
        (index for index in range(first, after) if parsed.word(index) not in ARTICLES),
        after - 1,
    )


def _clause_end(parsed: AnswerWords, part: Part, title: bool) -> int:
    """The index after the first clause: it ends at a mark, unless a name continues ("Paris, France").

    Inside a name or title no mark ends it, unless what follows only repeats the question.
    """
    first, after = part
    # words inside a name, found when the first mark asks for them
    whole: set[int] | None = None
    for index in range(first, after - 1):
        if not _CLAUSE_MARK.search(
            parsed.gap_after(index) + parsed.text[parsed.words[index + 1].start]
        ):
            continue
        if whole is None:
            whole = {
                inside
                for start, stop in _candidates(parsed, "any")
                for inside in range(start, stop - 1)
            }
        small = parsed.is_lower(index + 1) or parsed.word(index + 1) in FUNCTION_WORDS
        goes_on = title or index in whole or not small
        if not goes_on or not parsed.says_something_new((index + 1, after)):
            return index + 1
    return after


def _noun_phrase(parsed: AnswerWords, part: Part) -> Part:
    """Words up to a function word, less a participle before it ("candle used in")."""
    first, after = part
    end = first + 1
    while end < after and parsed.word(end) not in FUNCTION_WORDS:
        end += 1
    last = parsed.word(end - 1)
    participle = (
        end < after
        and end - first > 1
        and (last.endswith("ed") or last in _PARTICIPLES)
    )
    return first, end - 1 if participle else end


def _candidates(parsed: AnswerWords, wanted: str) -> Iterator[Part]:
    named = [
        *quotation_spans(parsed.text, parsed.words),
        *name_spans(parsed.text, parsed.words),
    ]
    numbers = list(number_spans(parsed.text, parsed.words))
    spans = {"name": named, "number": numbers, "any": [*named, *numbers]}[wanted]
    for start, end in merged(spans):
        first = bisect_left(parsed.words, start, key=lambda word: word.start)
        after = bisect_right(parsed.words, end, key=lambda word: word.end)
        if first < after:
            yield first, after


def _first_candidate(parsed: AnswerWords, part: Part, wanted: str) -> Part | None:
    """The first name, quotation or number of a part that isn't in the question; one that only describes comes last."""
    describing: Part | None = None
    for candidate in _candidates(parsed, wanted):
        first, after = max(candidate[0], part[0]), min(candidate[1], part[1])
        if first >= after or not parsed.says_something_new((first, after)):
            continue
        if wanted == "name" and _only_describes(parsed, (first, after), part[1]):
            describing = describing or (
                first,
                _noun_phrase(parsed, (after - 1, part[1]))[1],
            )
            continue
        return first, after
    return describing


def _only_describes(parsed: AnswerWords, name: Part, end: int) -> bool:
    """Whether a name stands before a common noun: "the American director"; a verb may be: "Stoker wrote"."""
    first, after = name
    if after >= end or parsed.gap_after(after - 1).strip():
        return False
    if not parsed.is_lower(after) or parsed.word(after) in FUNCTION_WORDS:
        return False
    return parsed.word(after) not in parsed.asked or (
        first > 0 and parsed.word(first - 1) in ARTICLES
    )


def _strip_asked_tail(parsed: AnswerWords, part: Part) -> Part:
    """A part without final words of the question, some in lower case: "Stoker wrote Dracula"; never empty."""
    first, after = part
    end = after
    while end > first + 1 and not parsed.is_new(end - 1):
        end -= 1
    small = any(parsed.is_lower(index) for index in range(end, after))
    return (first, end) if small and parsed.says_something_new((first, end)) else part
