"""When two written forms are the same words: "The Café Bogotá", "cafe bogota"; "U.S.A.", "USA"; "twenty-one", "21".

Every letter is folded by itself (compatibility form, accents and case away), so that each word still knows its place in
the raw text; the grader and the span finders share this one reading, and can never disagree about what a word is.
- An apostrophe inside a word is dropped, any other punctuation or symbol separates words; "&" reads "and".
- Dotted initials are one word ("J. R. R." = "jrr"), "1,000" is "1000", and "3.5" stays one word.
- Number words become digits: "twenty one" is 21, "two hundred and five" 205, "3.5 million" 3500000. Addends ("five",
  "twenty") make a group below 1000, "hundred" multiplies the group, a scale closes it; ordinals stay words.
- Articles are dropped, but never down to nothing, and a last "a" is a name ("vitamin A").
`normalise` is idempotent. Scripts written without spaces have words as long as their unbroken runs.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

ARTICLES = frozenset(("a", "an", "the"))

# Letters that Unicode does not decompose into a base letter and an accent, though readers take them for accented ones.
_LETTERS = dict(zip("øłđðıħŧŋĸəɛɔɑƀȼɇǥɨɉɍʉɏƶɖɓɗɠƙƥƭʋƴȷ", "olddihtnkeeoabcegijruyzdbdgkptvyj", strict=True))
_LETTERS |= {"æ": "ae", "œ": "oe", "þ": "th"}
_APOSTROPHES = "'’‘‛`´＇′"
_MODIFIER_APOSTROPHES = "ʻʼʽʾʿʹˈ"  # letters to Unicode, but "Hawaiʻi" is "Hawaii" to everybody else
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
_MARKS = re.compile(r"['.,&]")  # without any of these, words are what stands between spaces
_BETWEEN_SPACES = re.compile(r"[^ ]+")
_INITIALS = str.maketrans("", "", ". ")
_GROUPING = str.maketrans("", "", "',")


class Word(NamedTuple):  # no dataclass: a run makes millions of words, and a tuple is made three times as fast
    """One word of a text."""

    text: str
    """The folded word; a composed number in digits."""
    start: int
    """Index of its first character in the raw text."""
    end: int
    """Index after its last character in the raw text."""


def _fold_character(character: str) -> str:
    """What one character becomes: word characters, a space, one of `_KEPT`, an apostrophe, or nothing."""
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
    """A translation table that learns every character when it first meets it."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_character(chr(code))
        return folded


_FOLDING = _Folding()


def _scan(folded: str) -> list[Word]:
    """The words of a folded text with their places in it."""
    if not _MARKS.search(folded):
        return [Word(match.group(), *match.span()) for match in _BETWEEN_SPACES.finditer(folded)]
    found = []
    for match in _SCAN.finditer(folded):
        text = match.group()
        if not text.isalnum():
            kind = match.lastgroup
            text = "and" if kind == "and" else text.translate(_INITIALS if kind == "initials" else _GROUPING)
        found.append(Word(text, *match.span()))
    return found


def _with_numbers(words: list[Word]) -> list[Word]:
    """The same words with number words composed into digits."""
    texts = [word.text for word in words]
    if NUMBER_WORDS.isdisjoint(texts):
        return words
    return [Word(text, words[first].start, words[after - 1].end) for text, first, after in compose(texts)]


def _with_possessives(words: list[Word], folded: str) -> list[Word]:
    """The same words with "'s" at the end of one made a word of its own."""
    if "'s" not in folded:
        return words
    found = []
    for word in words:
        text, start, end = word
        if end - start > 2 and folded.endswith("'s", start, end):
            found += [Word(text[:-1], start, end - 2), Word("'s", end - 2, end)]
        else:
            found.append(word)
    return found


def _raw_places(words: list[Word], text: str) -> list[Word]:
    """The words of a folded text with their places in the raw one, whose letters became none, one or several."""
    places = [at for at, character in enumerate(text) for _ in _FOLDING[ord(character)]]
    found: list[Word] = []
    for word, start, end in words:
        raw_end = places[end - 1] + 1
        while raw_end < len(text) and not _FOLDING[ord(text[raw_end])]:
            raw_end += 1  # an accent that is a character of its own belongs to its letter
        if word == "'s":  # an owner ends where this begins, also where one character became both
            found[-1] = found[-1]._replace(end=places[start])
        found.append(Word(word, places[start], raw_end))
    return found


def located_words(text: str, *, numbers: bool = True, split_possessive: bool = False) -> list[Word]:
    """Every word of `text`, articles included, with its place in it.

    `numbers` composes number words. `split_possessive` makes "'s" a word of its own, so that "France" is a whole word
    of "France's"; the grader does not, because "McDonald's" is "McDonalds".
    """
    folded = text.translate(_FOLDING)
    found = _scan(folded)
    if split_possessive:
        found = _with_possessives(found, folded)
    if not text.isascii():  # an ASCII character is folded into one character, so that places stay
        found = _raw_places(found, text)
    return _with_numbers(found) if numbers else found


def without_articles(words: Sequence[str]) -> tuple[str, ...]:
    """The words less their articles; all of them if there is nothing else, and a last "a" stays."""
    if ARTICLES.isdisjoint(words):
        return tuple(words)
    last = len(words) - 1
    kept = tuple(word for i, word in enumerate(words) if word not in ARTICLES or (word == "a" and i == last))
    return tuple(words) if ARTICLES.issuperset(kept) else kept


def words_once(text: str) -> tuple[str, ...]:
    """`words` without its memory, for texts that are seen once: a million questions, say."""
    folded = text.translate(_FOLDING)
    found = [word.text for word in _scan(folded)] if _MARKS.search(folded) else folded.split()
    if not NUMBER_WORDS.isdisjoint(found):
        found = [word for word, _, _ in compose(found)]
    return without_articles(found)


_kept_words = lru_cache(maxsize=1 << 18)(words_once)  # an alias is looked up once per question that accepts it
_LONGEST_KEPT = 48  # letters: longer texts seldom come again, and a quarter of a million of them would fill the memory


def word_tuple(text: str) -> tuple[str, ...]:
    """`words`, kept where they are few: 100,000 aliases cost some tens of megabytes."""
    return _kept_words(text) if len(text) <= _LONGEST_KEPT else words_once(text)


def words(text: str) -> list[str]:
    """The normalised words of a text; empty if it has no letter and no digit."""
    return list(word_tuple(text))


def normalise(text: str) -> str:
    """The normalised words of a text, joined by single spaces."""
    return " ".join(word_tuple(text))


def question_key(text: str) -> str:
    """What makes two questions the same question; a text of symbols alone stands for itself."""
    return normalise(text) or " ".join(text.split())


def occurrences(needle: Sequence[str], haystack: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where `needle` (normalised words) occurs in `haystack` (words with their articles), as [first, after) indices.

    Articles of the haystack may be passed over between two words of the needle, but are matched where it names them.
    """
    for first, word in enumerate(haystack):
        if not needle or word != needle[0]:
            continue
        at = first + 1
        for wanted in needle[1:]:
            while at < len(haystack) and haystack[at] != wanted and haystack[at] in ARTICLES:
                at += 1
            if at == len(haystack) or haystack[at] != wanted:
                break
            at += 1
        else:
            yield first, at


_SMALL = """zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ADDENDS = dict(zip(_SMALL.split() + _TENS.split(), (*range(20), *range(20, 100, 10)), strict=True))
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = frozenset((*_ADDENDS, *_SCALES, "hundred"))
"""Words without which no number is composed."""
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")  # exact in a Decimal, whatever the scale after it


def _value(words: Sequence[str], first: int) -> tuple[int, int]:
    """The value of the number that begins at word `first`, and the index after its last word; (0, first) if none does.

    `limit` is the bound below which the next addend must stay: 10 after "twenty", 100 after "hundred", 0 after "five".
    """
    total, group, limit, scale = 0, Decimal(0), 1000, 10**15
    at = first
    if words[first] not in NUMBER_WORDS:  # digits begin a number only where a scale follows: "3.5 million"
        follower = words[first + 1] if first + 1 < len(words) else ""
        factor = 100 if follower == "hundred" else _SCALES.get(follower, 0)
        if not factor or not _NUMBER.fullmatch(words[first]):
            return 0, first
        group, limit, at = Decimal(words[first]), 0, first + 1
        if not group or group * factor % 1 or (factor == 100 and group >= 100):
            return 0, first
    while at < len(words):
        word = words[at]
        if word == "and" and at > first and words[at - 1] not in _ADDENDS and at + 1 < len(words):
            follower = words[at + 1]
            at, word = (at + 1, follower) if 0 < _ADDENDS.get(follower, 0) < limit else (at, word)
        addend = _ADDENDS.get(word)
        if addend is not None and addend < limit and (addend or at == first):
            group, limit = group + addend, 10 if addend >= 20 else 0
            if not addend:
                return 0, at + 1
        elif word == "hundred" and (0 < group < 100 or at == first):
            group, limit = (group or Decimal(1)) * 100, 100
        elif _SCALES.get(word, scale) < scale and (group or at == first):
            scale = _SCALES[word]
            total, group, limit = total + int((group or Decimal(1)) * scale), Decimal(0), 1000
        else:
            break
        at += 1
    return total + int(group), at


def compose(words: Sequence[str]) -> list[tuple[str, int, int]]:
    """The words with numbers in digits, each with the indices [first, after) of the words that it was made from."""
    if NUMBER_WORDS.isdisjoint(words):
        return [(word, at, at + 1) for at, word in enumerate(words)]
    composed: list[tuple[str, int, int]] = []
    at = 0
    while at < len(words):
        value, after = _value(words, at)
        composed.append((str(value), at, after) if after > at else (words[at], at, at + 1))
        at = max(after, at + 1)
    return composed


def small_hash(text: str, seed: int = 0) -> int:
    """The text as a number of 64 bits: the same on every machine, and as good as drawn at random by the seed.

    To know a million texts again, and to draw from them, without keeping them.
    """
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=str(seed).encode()).digest(), "big")
