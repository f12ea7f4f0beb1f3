"""What a question asks for, by the order of its words alone: for texts in which nothing stands out.

English puts the property beside the question word ("what sport does", "how many seasons of"), between a form of "be"
and the first preposition ("what is the largest organ of", "lima is the capital of which"), behind an owner ("lima's
first mayor"), or makes it the verb: after "who", and last in what "did" or "was" begins. Only common words are taken.
"""

import re
from collections.abc import Iterator, Sequence

from anchorscope.datasets.text import ARTICLES, Word
from anchorscope.spans.empty_words import (
    AUXILIARIES,
    EMPTY_WORDS,
    FUNCTION_WORDS,
    KINDS,
    PREPOSITIONS,
    QUESTION_WORDS,
    word_set,
)
from anchorscope.spans.rarity import is_rare, zipf

COMMON = 4.0
"""Zipf value from which a word without a capital letter may be the property; rarer ones are rather names."""

_CIRCUMSTANCES = word_set("when where why how")
_DOING = word_set("do does did")
_BEING = AUXILIARIES - _DOING
_PARTICIPLE = re.compile(r"(ed|en|wn|built|made|held|set|won|sung|found|born|shot|left|taught|spent)$")
_STOPS = PREPOSITIONS | AUXILIARIES | QUESTION_WORDS


def asked_by_order(words: Sequence[Word]) -> set[int]:
    """Indices of the words that say what is asked."""
    texts = [word.text for word in words]
    asking = next((at for at, text in enumerate(texts) if text in QUESTION_WORDS), None)
    if asking is None:
        return set()
    owners = [at for at, text in enumerate(texts) if text == "'s" and at > 0 and texts[at - 1] not in FUNCTION_WORDS]
    asked = {*_beside(texts, asking), *_before(texts, asking), *_last_verb(texts, asking)}
    asked -= {one for at in owners for one in _run(texts, at - 1, -1)}
    asked |= {one for at in owners for one in _run(texts, at + 1, 1)}
    asked = {at for at in asked if texts[at] not in EMPTY_WORDS and zipf(texts[at]) >= COMMON}
    return asked | {at for at in _verb_of_who(texts, asking) if not is_rare(texts[at])}


def _run(texts: Sequence[str], at: int, step: int) -> Iterator[int]:
    """Indices from `at` on, up to the next word of grammar."""
    while 0 <= at < len(texts) and texts[at] not in FUNCTION_WORDS:
        yield at
        at += step


def _beside(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What follows the question word; where that is a form of "be", what follows this."""
    if [*_verb_of_who(texts, asking)]:
        return
    content = 0
    for at in range(asking + 1, len(texts)):
        if texts[at] == "of" and texts[at - 1] in KINDS:
            content = 0  # "what type of animal": the animal is asked for
        elif texts[at] in _STOPS:
            helped = at == asking + 1 and texts[at] in _BEING and texts[asking] not in _CIRCUMSTANCES
            if content or not helped:
                return
        elif texts[at] not in FUNCTION_WORDS:
            yield at
            content += 1


def _verb_of_who(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after "who": "who wrote", "who has climbed"."""
    at = asking + 1
    if texts[asking] not in ("who", "whom") or (at < len(texts) and texts[at] in _DOING):
        return
    while at < len(texts) and texts[at] in AUXILIARIES:
        at += 1
    if at < len(texts) and texts[at] not in EMPTY_WORDS:
        yield at


def _before(texts: Sequence[str], asking: int) -> Iterator[int]:
    """What stands between a form of "be" and a late question word, if something is named before both."""
    helper = next((at for at in range(asking) if texts[at] in AUXILIARIES), asking)
    if any(text not in FUNCTION_WORDS for text in texts[:helper]):
        yield from (at for at in range(helper + 1, asking) if texts[at] not in FUNCTION_WORDS)


def _last_verb(texts: Sequence[str], asking: int) -> Iterator[int]:
    """The verb after what it is said of: "did the wall go up", "when was the declaration of independence signed"."""
    helper = next((at for at in range(asking + 1, len(texts)) if texts[at] in AUXILIARIES), None)
    if helper is None:
        return
    said = [at for at in range(helper + 1, len(texts)) if texts[at] not in FUNCTION_WORDS]
    for at in said:
        following = texts[at + 1] if at + 1 < len(texts) else None
        ends = following is None or (following in PREPOSITIONS and following != "of") or following in ARTICLES
        whose = texts[at - 1] not in FUNCTION_WORDS  # the verb comes after its subject
        if texts[at - 1] in ("be", "been", "being") or (
            ends and whose and (texts[helper] in _DOING or _PARTICIPLE.search(texts[at]))
        ):
            yield at
            return
