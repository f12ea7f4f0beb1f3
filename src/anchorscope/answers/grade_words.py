"""Words that a reader takes for the same: "Henry VIII" and "Henry the Eighth", "Saint Louis" and "St. Louis", "cats".

The words come from `datasets.text`; here they get the further readings that only a grader wants. A Roman numeral after
a name may be an ordinal ("Henry VIII") or a count ("Rocky IV", "World War II"), so there are two readings of it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from anchorscope.datasets.text import word_tuple

_SHORTENED = {
    "saint": "st", "mount": "mt", "fort": "ft", "doctor": "dr", "mister": "mr", "professor": "prof", "versus": "vs",
    "junior": "jr", "senior": "sr", "brothers": "bros", "corporation": "corp", "incorporated": "inc", "limited": "ltd",
}  # fmt: skip
_SMALL_ORDINALS = """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"""
_TENS_ORDINALS = "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth"
_ORDINALS = {word: value for value, word in enumerate(_SMALL_ORDINALS.split(), start=1)}
_ORDINALS |= {word: value for value, word in zip(range(20, 100, 10), _TENS_ORDINALS.split(), strict=True)}
_DIGIT_ORDINAL = re.compile(r"([0-9]+)(?:st|nd|rd|th)")
_ROMAN = re.compile(r"(?=.)m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_ROMAN_ALONE = ("i", "v", "x")  # "C", "D", "L" and "M" alone are letters: "Vitamin C"

SPACING_LENGTH = 5
"""So many letters are needed before "pingpong" and "ping pong" are taken for the same."""


def ordinal_value(word: str) -> int | None:
    """8 for "eighth" and "8th"; None for any other word."""
    written = _DIGIT_ORDINAL.fullmatch(word)
    return int(written.group(1)) if written else _ORDINALS.get(word)


def roman_value(word: str) -> int | None:
    """8 for "viii"; None where the word is no Roman numeral or a single letter that is hardly one."""
    if (len(word) == 1 and word not in _ROMAN_ALONE) or not _ROMAN.fullmatch(word):
        return None
    values = [_ROMAN_VALUES[letter] for letter in word]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def numerals(own: Sequence[str], roman_ending: str | None = None) -> tuple[str, ...]:
    """The words with ordinals as "8th" and Roman numerals after the first word as numbers with that ending, if any."""
    read: list[str] = []
    for at, word in enumerate(own):
        ordinal, roman = ordinal_value(word), roman_value(word) if at and roman_ending is not None else None
        if ordinal is not None:
            tens = read and read[-1].isascii() and read[-1].isdigit() and int(read[-1]) % 10 == 0 and ordinal < 10
            if tens and 20 <= int(read[-1]) < 100:  # "twenty first" was read "20 first"
                ordinal += int(read.pop())
            read.append(f"{ordinal}th")
        else:
            read.append(word if roman is None else f"{roman}{roman_ending}")
    return tuple(read)


def readings(own: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The words as they are, with Roman numerals as ordinals, and with Roman numerals as counts; no repeats at the end.

    Two texts are the same if they are so in the same reading; one with fewer readings is the same in all of them.
    """
    plain = tuple(map(_SHORTENED.get, own, own))
    if not any(map(_may_be_numeral, plain)):
        return (plain,)
    ordinals, counts = numerals(plain, "th"), numerals(plain, "")
    return (plain,) if plain == ordinals == counts else (plain, ordinals, counts)


@lru_cache(maxsize=1 << 16)  # accepted answers have most words in common
def _may_be_numeral(word: str) -> bool:
    return ordinal_value(word) is not None or roman_value(word) is not None


@lru_cache(maxsize=1 << 16)
def is_read_as_written(word: str) -> bool:
    """Whether a text that begins with this word does so in every reading."""
    return word.isalpha() and word not in _SHORTENED and word not in _ORDINALS


@lru_cache(maxsize=1 << 16)  # an accepted answer is read once for every question that accepts it
def alias_readings(alias: str) -> tuple[tuple[str, ...], ...]:
    """The readings of an accepted answer's words, without articles."""
    return readings(word_tuple(alias))


def singular(word: str) -> str:
    """A plural's singular by the regular rules; any other word stays."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def same_noun(one: str, other: str) -> bool:
    """Whether two words are one noun, in whichever number."""
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) > 2 and (long in (f"{short}s", f"{short}es") or singular(long) == short))


def same_but_spacing(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two texts differ only in where words are joined: "ping pong" and "pingpong", not "19 84" and "1984"."""
    joined = "".join(one)
    return len(joined) >= SPACING_LENGTH and joined.isalpha() and joined == "".join(other)


def stands_in(needle: Sequence[str], haystack: Sequence[str]) -> bool:
    """Whether the words of `needle` stand together in `haystack`."""
    size = len(needle)
    return any(tuple(haystack[at : at + size]) == tuple(needle) for at in range(len(haystack) - size + 1))
