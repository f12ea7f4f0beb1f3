"""When two written forms are the same words: "The Café Bogotá", "cafe bogota"; "U.S.A.", "USA"; "twenty-one", "21".

Each letter is folded by itself (compatibility form, no accents, no case), so that a word keeps its position in the raw
text. Number words become digits, ordinals don't; articles are dropped. `normalise` is idempotent.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

ARTICLES = frozenset(("a", "an", "the"))

# Letters that Unicode does not decompose into a base letter and an accent, though readers take them for accented ones.
_LETTERS = dict(
    zip(
        "øłđðıħŧŋĸəɛɔɑƀȼɇǥɨɉɍʉɏƶɖɓɗɠƙƥƭʋƴȷ",
        "olddihtnkeeoabcegijruyzdbdgkptvyj",
        strict=True,
    )
)
_LETTERS |= {"æ": "ae", "œ": "oe", "þ": "th"}
_APOSTROPHES = "'’‘‛`´＇′"
_MODIFIER_APOSTROPHES = (
    "ʻʼʽʾʿʹˈ"  # letters to Unicode, but "Hawaiʻi" is "Hawaii" to everybody else
)
_KEPT = ".,&"  # separators that mean something between certain neighbours

_WORD_CHAR = r"[^ '.,&]"
_LETTER = r"[^ '.,&0-9]"
_LAST = rf"(?:{_LETTER}(?!{_WORD_CHAR}))"
_SCAN = re.compile(
    rf"(?P<initials>(?<![^ ,&]){_LETTER}\.(?:(?: ?{_LETTER}\.)+{_LAST}?|{_LAST}))"
    rf"|(?P<word>(?:(?<![.,0-9])[0-9]{{1,3}}(?:,[0-9]{{3}})+(?!,?[0-9])|{_WORD_CHAR})"
    rf"(?:{_WORD_CHAR}|'+(?={_WORD_CHAR})|(?<=[0-9])\.(?=[0-9]))*)"
    r"|(?P<and>&)"
)
_INITIALS = str.maketrans("", "", ". ")
_GROUPING = str.maketrans("", "", "',")

Span = tuple[int, int]
"""Characters [start, end) of a text."""


class Word(NamedTuple):
    """A folded word (a composed number in digits) and its characters [start, end) in the raw text."""

    text: str
    start: int
    end: int


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, with overlapping spans merged; spans that only touch stay two."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def _fold_character(character: str) -> str:
    """Word characters, a space, one of `_KEPT`, an apostrophe, or nothing."""
    if character in _APOSTROPHES:
        return "'"
    if character in _KEPT:
        return character
    if character in _MODIFIER_APOSTROPHES or "\ufe00" <= character <= "\ufe0f":
        return ""
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    # Accents have combining class 1 or at least 10; 7 to 9 (nukta, voicing mark, virama) and 0 carry the word itself.
    combining = unicodedata.combining(character)
    if category == "Cf" or combining == 1 or combining >= 10:
        return ""
    lowered = unicodedata.normalize("NFKD", character).casefold()
    lowered = _LETTERS.get(lowered, lowered)
    if lowered != character:
        return "".join(_fold_character(part) for part in lowered)
    return character if category[0] in "LNM" else " "


class _Folding(dict[int, str]):
    """A translation table, filled when a character first occurs."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_character(chr(code))
        return folded


_FOLDING = _Folding()


def _scan(folded: str) -> list[Word]:
    words = []
    for match in _SCAN.finditer(folded):
        text = match.group()
        if not text.isalnum():
            kind = match.lastgroup
            text = (
                "and"
                if kind == "and"
                else text.translate(_INITIALS if kind == "initials" else _GROUPING)
            )
        words.append(Word(text, *match.span()))
    return words


def _split_possessives(words: list[Word], folded: str) -> list[Word]:
    """The same words with a final "'s" as a word of its own."""
    if "'s" not in folded:
        return words
    split: list[Word] = []
    for text, start, end in words:
        if end - start > 2 and folded.endswith("'s", start, end):
            split += [Word(text[:-1], start, end - 2), Word("'s", end - 2, end)]
        else:
            split.append(Word(text, start, end))
    return split


def _locate_in_raw_text(words: list[Word], text: str) -> list[Word]:
    places = [at for at, character in enumerate(text) for _ in _FOLDING[ord(character)]]
    placed: list[Word] = []
    for word, start, end in words:
        raw_end = places[end - 1] + 1
        while raw_end < len(text) and not _FOLDING[ord(text[raw_end])]:
            # an accent that is a character of its own belongs to its letter
            raw_end += 1
        if (
            word == "'s"
        ):  # an owner ends where this begins, also where one character became both
            placed[-1] = placed[-1]._replace(end=places[start])
        placed.append(Word(word, places[start], raw_end))
    return placed


def located_words(
    text: str, *, numbers: bool = True, split_possessive: bool = False
) -> list[Word]:
    """Every word of `text`, articles included, with its position.

    `numbers` composes number words. `split_possessive` makes "'s" a word of its own; to the grader "McDonald's" is one.
    """
    folded = text.translate(_FOLDING)
    words = _scan(folded)
    if split_possessive:
        words = _split_possessives(words, folded)
    # an ASCII character is folded into one character, so that places stay
    if not text.isascii():
        words = _locate_in_raw_text(words, text)
    if not numbers:
        return words
    composed = compose([word.text for word in words])
    return [
        Word(written, words[first].start, words[after - 1].end)
        for written, first, after in composed
    ]


def without_articles(words: Sequence[str]) -> tuple[str, ...]:
    """The words without articles; all of them if there is nothing else, and a last "a" stays."""
    if ARTICLES.isdisjoint(words):
        return tuple(words)
    last = len(words) - 1
    others = tuple(
        word
        for i, word in enumerate(words)
        if word not in ARTICLES or (word == "a" and i == last)
    )
    return tuple(words) if ARTICLES.issuperset(others) else others


@lru_cache(maxsize=1 << 16)  # an alias is read once per question that accepts it
def words(text: str) -> tuple[str, ...]:
    """The normalised words of a text; empty if it has no letter and no digit."""
    composed = compose([word.text for word in _scan(text.translate(_FOLDING))])
    return without_articles([word for word, _, _ in composed])


def normalise(text: str) -> str:
    """The normalised words of a text, joined by single spaces."""
    return " ".join(words(text))


def question_key(text: str) -> str:
    """What makes two questions the same; a text of symbols stands for itself."""
    return normalise(text) or " ".join(text.split())


def occurrences(
    needle: Sequence[str], haystack: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Where `needle` occurs in `haystack`, as [first, after) indices, ignoring articles of the haystack."""
    for first, word in enumerate(haystack):
        if not needle or word != needle[0]:
            continue
        at = first + 1
        for wanted in needle[1:]:
            while (
                at < len(haystack)
                and haystack[at] != wanted
                and haystack[at] in ARTICLES
            ):
                at += 1
            if at == len(haystack) or haystack[at] != wanted:
                break
            at += 1
        else:
            yield first, at


_SMALL = """zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ADDENDS = dict(
    zip(_SMALL.split() + _TENS.split(), (*range(20), *range(20, 100, 10)), strict=True)
)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = frozenset((*_ADDENDS, *_SCALES, "hundred"))
_NUMBER = re.compile(
    r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
)  # exact in a Decimal, whatever the scale after it


def _value(words: Sequence[str], first: int) -> tuple[int, int]:
    """The value of the number at word `first`, and the index after its last word; (0, first) if none.

    `limit` bounds the next addend: 10 after "twenty", 100 after "hundred", 0 after "five".
    """
    total, group, limit, scale = 0, Decimal(0), 1000, 10**15
    at = first
    # digits begin a number only where a scale follows: "3.5 million"
    if words[first] not in NUMBER_WORDS:
        follower = words[first + 1] if first + 1 < len(words) else ""
        factor = 100 if follower == "hundred" else _SCALES.get(follower, 0)
        if not factor or not _NUMBER.fullmatch(words[first]):
            return 0, first
        group, limit, at = Decimal(words[first]), 0, first + 1
        if not group or group * factor % 1 or (factor == 100 and group >= 100):
            return 0, first
    while at < len(words):
        word = words[at]
        if (
            word == "and"
            and at > first
            and words[at - 1] not in _ADDENDS
            and at + 1 < len(words)
        ):
            follower = words[at + 1]
            at, word = (
                (at + 1, follower)
                if 0 < _ADDENDS.get(follower, 0) < limit
                else (at, word)
            )
        addend = _ADDENDS.get(word)
        if addend is not None and addend < limit and (addend or at == first):
            group, limit = group + addend, 10 if addend >= 20 else 0
            if not addend:
                return 0, at + 1
        elif word == "hundred" and (0 < group < 100 or at == first):
            group, limit = (group or Decimal(1)) * 100, 100
        elif _SCALES.get(word, scale) < scale and (group or at == first):
            scale = _SCALES[word]
            total, group, limit = (
                total + int((group or Decimal(1)) * scale),
                Decimal(0),
                1000,
            )
        else:
            break
        at += 1
    return total + int(group), at


def compose(words: Sequence[str]) -> list[tuple[str, int, int]]:
    """The words with numbers in digits, each with the indices [first, after) of its source words."""
    if NUMBER_WORDS.isdisjoint(words):
        return [(word, at, at + 1) for at, word in enumerate(words)]
    composed: list[tuple[str, int, int]] = []
    at = 0
    while at < len(words):
        value, after = _value(words, at)
        composed.append(
            (str(value), at, after) if after > at else (words[at], at, at + 1)
        )
        at = max(after, at + 1)
    return composed


def small_hash(text: str, seed: int = 0) -> int:
    """A seeded 64-bit hash, to recognise and sample a million texts without keeping them."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(
        hashlib.blake2b(raw, digest_size=8, key=str(seed).encode()).digest(), "big"
    )
