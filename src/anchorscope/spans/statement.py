"""What an answer states, less what is said around it: hedges, later sentences, and what only repeats the question.

"Well, I think the capital of France is Paris. It is large." states "Paris". A form of "be" has two sides, and one of
them is the answer: the other one repeats the question, is a pronoun, or describes ("Lyon is a city in the south"). All
of this is read from the answer and the question alone, never from the accepted answers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from anchorscope.datasets.text import ARTICLES, Word
from anchorscope.spans.char_spans import words_as_written
from anchorscope.spans.function_words import FUNCTION_WORDS, PRONOUNS, word_set

Part = tuple[int, int]
"""Words [first, after) of an answer."""

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)]*\s")
# A period after these ends no sentence: "St. Louis", "J. Smith".
_ABBREVIATIONS = word_set("st dr mr mrs ms jr sr mt ft no vs prof gen lt col rev hon sgt capt")
_COPULAS = word_set("is are was were be became remains")
_RELATIVES = word_set("who which that whom where")
_META_WORDS = word_set("answer correct guess mistaken recall remember response sources")  # said of any answer
_BEFORE = """the answer is|the correct answer is|the right answer is|the final answer is|my answer is|answer is
    |my guess is|i think that|i think|i believe that|i believe|i guess|i suppose|i would say|id say|i am sure|im sure
    |i am not sure but|im not sure but|i am not certain but|i dont know but|as far as i know|in my opinion|it seems that
    |if i am not mistaken|if im not mistaken|if i remember correctly|most likely|maybe|probably|possibly|perhaps"""
_BEFORE_WITH_MARK = "well|yes|no|sure|okay|ok|hmm|oh|sorry|actually|answer|a|of course|certainly"
_BEHIND = """i think|i believe|i guess|i suppose|i would say|id say|im sure|i am sure|of course|as far as i know
    |in my opinion|if i remember correctly|if i recall correctly|but im not sure|but i am not sure|im not sure
    |i am not sure|for sure"""
_BEHIND_WITH_MARK = "probably|maybe|perhaps|possibly|right|actually|most likely|thanks"


def _phrases(listed: str) -> list[list[str]]:
    """Phrases as words, the longest first."""
    return sorted((phrase.split() for phrase in listed.split("|")), key=len, reverse=True)


_PHRASES_BEFORE = [(phrase, False) for phrase in _phrases(_BEFORE)]
_PHRASES_BEFORE += [(phrase, True) for phrase in _phrases(_BEFORE_WITH_MARK)]
_PHRASES_BEHIND = [(phrase, False) for phrase in _phrases(_BEHIND)]
_PHRASES_BEHIND += [(phrase, True) for phrase in _phrases(_BEHIND_WITH_MARK)]
_FIRST_WORDS_BEFORE = frozenset(phrase[0] for phrase, _ in _PHRASES_BEFORE)
_LAST_WORDS_BEHIND = frozenset(phrase[-1] for phrase, _ in _PHRASES_BEHIND)


@dataclass(frozen=True)
class AnswerWords:
    """An answer as words, and the content words of the question that it answers."""

    text: str
    words: Sequence[Word]
    asked: frozenset[str]

    def word(self, index: int) -> str:
        """A word, folded."""
        return self.words[index].text

    def gap_after(self, index: int) -> str:
        """What stands between a word and the next one."""
        following = self.words[index + 1].start if index + 1 < len(self.words) else len(self.text)
        return self.text[self.words[index].end : following]

    def is_lower(self, index: int) -> bool:
        """Whether a word is written without a capital letter or digit."""
        return self.text[self.words[index].start : self.words[index].end].islower()

    def is_new(self, index: int) -> bool:
        """Whether a word has content that is not in the question."""
        return not any(self.word(index) in known for known in (FUNCTION_WORDS, self.asked, _META_WORDS))

    def says_something_new(self, part: Part) -> bool:
        """Whether any word of a part does."""
        first, after = part
        return first < after and self._new_before[after] > self._new_before[first]

    @cached_property
    def _new_before(self) -> list[int]:
        """How many words before each place have new content; asked for many parts of a long answer."""
        return [0, *accumulate(map(self.is_new, range(len(self.words))))]

    @cached_property
    def texts(self) -> list[str]:
        """All words, folded."""
        return [word.text for word in self.words]

    @cached_property
    def is_upper(self) -> bool:
        """Whether all is written in capital letters."""
        return self.text.isupper()


def read_answer(answer: str, question: str | None) -> AnswerWords:
    """The words of an answer, beside those of its question."""
    asked = (word.text for word in words_as_written(question or ""))
    return AnswerWords(answer, words_as_written(answer), frozenset(asked) - FUNCTION_WORDS)


def _sentence_end(parsed: AnswerWords, first: int) -> int:
    """The index after the last word of the sentence that begins at a word."""
    for index in range(first, len(parsed.words) - 1):
        takes_period = parsed.word(index) in _ABBREVIATIONS or len(parsed.word(index)) == 1
        abbreviated = takes_period and parsed.gap_after(index).startswith(".")
        goes_on = abbreviated and parsed.word(index + 1) not in FUNCTION_WORDS
        if _SENTENCE_END.search(parsed.gap_after(index)) and not goes_on:
            return index + 1
    return len(parsed.words)


def _without_hedges(parsed: AnswerWords, part: Part) -> Part:
    """A part without what is said before and behind the answer; never empty."""
    first, after = part
    hedged = parsed.word(first) in _FIRST_WORDS_BEFORE or parsed.word(after - 1) in _LAST_WORDS_BEHIND
    if not hedged:  # so it is for most answers
        return part
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


def _copula(parsed: AnswerWords, part: Part) -> int | None:
    """The form of "be" that parts a sentence: not one inside a title ("This Is It") or after "who"."""
    first, after = part
    for index in range(first + 1, after - 1):
        short = parsed.word(index) == "'s" and parsed.word(index - 1) in PRONOUNS
        plain = parsed.word(index) in _COPULAS and parsed.word(index - 1) not in _RELATIVES
        if short or (plain and (parsed.is_lower(index) or parsed.is_upper)):
            return index
    return None


def _describes(parsed: AnswerWords, part: Part) -> bool:
    """Whether a part is a pronoun, or an article with a common noun: "it", "the capital of France"."""
    first, after = part
    if parsed.word(first) in PRONOUNS:
        return True
    return parsed.word(first) in ARTICLES and after - first > 1 and parsed.is_lower(first + 1)


def _answering_side(parsed: AnswerWords, left: Part, right: Part) -> Part:
    """The side of a form of "be" that answers."""
    new_left, new_right = parsed.says_something_new(left), parsed.says_something_new(right)
    if new_left != new_right:
        return left if new_left else right
    return left if parsed.word(right[0]) in ARTICLES and not _describes(parsed, left) else right


def statement(parsed: AnswerWords) -> Part:
    """The words of the answer that state something; empty only for an answer without words."""
    first = 0
    while True:
        part = _without_hedges(parsed, (first, _sentence_end(parsed, first)))
        more = part[1] < len(parsed.words)
        if not (more and _is_only_a_hedge(parsed, part)):
            break
        first = part[1]
    part = _after_heading(parsed, part)
    copula = _copula(parsed, part)
    if copula is None:
        return part
    return _without_hedges(parsed, _answering_side(parsed, (part[0], copula), (copula + 1, part[1])))


def _after_heading(parsed: AnswerWords, part: Part) -> Part:
    """A part without a heading that only repeats the question: "Capital of France: Paris"."""
    first, after = part
    for index in range(first, after - 1):
        headed = parsed.gap_after(index).strip().startswith(":") and not parsed.says_something_new((first, index + 1))
        if headed and parsed.asked and parsed.says_something_new((index + 1, after)):
            return index + 1, after
    return part


def _is_only_a_hedge(parsed: AnswerWords, part: Part) -> bool:
    """Whether a first sentence says nothing: "Sure!", "Hmm."."""
    texts = [parsed.word(index) for index in range(*part)]
    return any(texts == phrase for phrase, _ in [*_PHRASES_BEFORE, *_PHRASES_BEHIND])
