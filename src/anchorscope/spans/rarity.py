"""How common an English word is, by the counts of the `wordfreq` library (books, subtitles, news, the web).

Its small list is used: the 29,000 words that are said at least once in a million. What is not on it is rare; names of
people, works and technical terms mostly are not. Words are looked up folded, as `datasets.text` reads them.
"""

from functools import cache
from math import log10

from wordfreq import get_frequency_dict

RARE = 3.0
"""Zipf values (ten times more common: one more) below this are not on the list."""


@cache
def _frequencies() -> dict[str, float]:
    """Each word's share of all words; read when it is first needed."""
    return get_frequency_dict("en", wordlist="small")


def zipf(word: str) -> float:
    """Logarithm of how often the word is said in a thousand million words: "the" 7.7, "capital" 5.0, rare words 0."""
    share = _frequencies().get(word, 0.0)
    return log10(share) + 9 if share else 0.0


def is_rare(word: str) -> bool:
    """Whether the word is said less than once in a million."""
    return zipf(word) < RARE
