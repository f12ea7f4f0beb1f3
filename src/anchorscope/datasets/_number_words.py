"""Number words as digits: "twenty one" is 21, "two hundred and five" 205, "3.5 million" 3500000.

Addends ("five", "twenty") make a group below 1000, "hundred" multiplies the group, a scale closes it; ordinals stay
words. Every number word ends up in some number, so that composing twice changes nothing.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

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

    `room` is the bound below which the next addend must stay: 10 after "twenty", 100 after "hundred", 0 after "five".
    """
    total, group, room, scale = 0, Decimal(0), 1000, 10**15
    at = first
    if words[first] not in NUMBER_WORDS:  # digits begin a number only where a scale follows: "3.5 million"
        follower = words[first + 1] if first + 1 < len(words) else ""
        factor = 100 if follower == "hundred" else _SCALES.get(follower, 0)
        if not factor or not _NUMBER.fullmatch(words[first]):
            return 0, first
        group, room, at = Decimal(words[first]), 0, first + 1
        if not group or group * factor % 1 or (factor == 100 and group >= 100):
            return 0, first
    while at < len(words):
        word = words[at]
        if word == "and" and at > first and words[at - 1] not in _ADDENDS and at + 1 < len(words):
            follower = words[at + 1]
            at, word = (at + 1, follower) if 0 < _ADDENDS.get(follower, 0) < room else (at, word)
        addend = _ADDENDS.get(word)
        if addend is not None and addend < room and (addend or at == first):
            group, room = group + addend, 10 if addend >= 20 else 0
            if not addend:
                return 0, at + 1
        elif word == "hundred" and (0 < group < 100 or at == first):
            group, room = (group or Decimal(1)) * 100, 100
        elif _SCALES.get(word, scale) < scale and (group or at == first):
            scale = _SCALES[word]
            total, group, room = total + int((group or Decimal(1)) * scale), Decimal(0), 1000
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
