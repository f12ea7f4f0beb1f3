"""What an answer says: its words in every reading, the answer without what is said around it, what it denies.

"It is Paris, I think" says "Paris"; "not Paris" denies it; "Paris or London" guesses, and is right only if both are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.answers.grade_lists import (
    AFTER_POLAR,
    CLOSINGS,
    NEGATIONS,
    NO,
    NO_NEGATION_BEFORE,
    OPENINGS,
    TURNS,
    YES,
)
from anchorscope.answers.grade_words import readings
from anchorscope.datasets.text import Word, located_words, occurrences, without_articles

_CLAUSE_END = re.compile(r"[,;:.!?—–]")
_DENIALS = re.compile(
    r"\s*,?\s*(?:(?:is|was|are|were|did|does|do|has|had|would|could|can)\s+not\b|(?:is|was|are|were|did|does|do)n['’]t\b|"
    r"(?:is|was|are|were)\s+(?:wrong|incorrect|false)\b)(?!\s+(?:only|just)\b)",
    re.I,
)
_OR = re.compile(r"\bor\b", re.I)
_POSSESSIVE = re.compile(r"['’]s?\b")
_REACH = 4
"""A negation speaks of what follows within so many words of the same clause."""


@dataclass(frozen=True)
class Said:
    """One answer."""

    text: str
    heard: tuple[Word, ...]
    words: tuple[str, ...]
    """All words, articles included."""
    whole: tuple[str, ...]
    """Without articles."""
    core: tuple[str, ...]
    """Without what is said around the answer, either."""
    haystacks: tuple[tuple[str, ...], ...]
    """For every reading of numerals, one string each: all words, none of the articles, possessives apart."""
    vocabulary: frozenset[str]
    """Every word that stands in any of them."""
    core_words: frozenset[str]
    """The words of the core."""
    core_joined: str
    """The core without spaces."""
    has_digits: bool
    """Whether any word holds a digit."""


def _padded(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def listen(answer: str) -> Said:
    """Reads an answer."""
    heard = tuple(located_words(answer))
    words = tuple(word.text for word in heard)
    whole = without_articles(words)
    variants = [words, whole]
    if _POSSESSIVE.search(answer):
        variants.append(tuple(word.text for word in located_words(answer, split_possessive=True)))
    read = [readings(variant) for variant in dict.fromkeys(variants)]
    haystacks = tuple(
        tuple(dict.fromkeys(_padded(one[min(at, len(one) - 1)]) for one in read)) for at in range(max(map(len, read)))
    )
    core = _core(whole)
    return Said(
        answer, heard, words, whole, core, haystacks,
        vocabulary=frozenset(word for one in read for reading in one for word in reading),
        core_words=frozenset(core),
        core_joined="".join(core),
        has_digits=any(character.isdigit() for word in words for character in word),
    )  # fmt: skip


_OPENINGS_BY_FIRST = {one[:1]: [phrase for phrase in OPENINGS if phrase[:1] == one[:1]] for one in OPENINGS}


def _core(whole: tuple[str, ...]) -> tuple[str, ...]:
    """The words without openings ("it is") and closings ("I think"), but never down to nothing."""
    core = whole
    while True:
        for opening in _OPENINGS_BY_FIRST.get(core[:1], ()):
            if core[: len(opening)] == opening and len(core) > len(opening):
                core = core[len(opening) :]
                break
        else:
            break
    for closing in CLOSINGS:
        if core[-len(closing) :] == closing and len(core) > len(closing):
            return core[: -len(closing)]
    return core


def denies(said: Said, wanted: Sequence[str]) -> bool:
    """Whether the answer names the words only to say that they are not the answer."""
    places = list(occurrences(wanted, said.words))
    return bool(places) and all(_denied(said, first, after) for first, after in places)


def _denied(said: Said, first: int, after: int) -> bool:
    if _DENIALS.match(said.text, said.heard[after - 1].end):
        return True
    for at in range(first - 1, max(first - 1 - _REACH, -1), -1):
        following = said.words[at + 1]
        if _CLAUSE_END.search(said.text, said.heard[at].end, said.heard[at + 1].start):
            return False
        if said.words[at] in NEGATIONS:
            return following not in NO_NEGATION_BEFORE
        if said.words[at] == "than" and not following[0].isdigit():  # "larger than Jupiter", but "more than 300"
            return True
        if said.words[at] in TURNS:
            return False
    return False


def guesses(answer: str) -> list[str]:
    """The parts of an answer that offers several: "Paris or London"; empty for one that commits itself."""
    if not _OR.search(answer):
        return []
    parts = [part.strip(" ,;?") for part in _OR.split(answer)]
    offered = [part for part in parts if located_words(part)]
    return offered if len(offered) > 1 else []


def polar(said: Said) -> str | None:
    """`yes` or `no` where the answer begins by saying so; None otherwise ("No Doubt")."""
    if not said.words or said.words[0] not in YES | NO:
        return None
    if len(said.words) > 1:
        between = said.text[said.heard[0].end : said.heard[1].start]
        if not between.strip() and said.words[1] not in AFTER_POLAR:
            return None
    return "yes" if said.words[0] in YES else "no"
