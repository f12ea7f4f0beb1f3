"""Is a short answer right: does it name one of the accepted answers?

The rules, on the words that `datasets.text` reads (case, accents, punctuation, articles and number words folded):
- An accepted answer counts where its words stand together in the answer as whole words: "Paris" in "It is Paris.", but
  "12" not in "112", "art" not in "Bart", and "France" not in "Frances".
- An accepted answer of one or two characters ("C", "Au", "5", "twelve" = "12") must be the whole answer: "carbon" and
  "Co" are wrong for the symbol "C", and "a C major chord" does not name it either.
- An accepted answer without any letter or digit (an emoji) never counts.
Negation, hedging, lists of guesses and symbols are not looked at: "not Paris" is right for "Paris", "C++" for "C".
"""

from collections.abc import Sequence

from anchorscope.datasets.text import located_words, occurrences, without_articles, words

SHORT = 2
"""An accepted answer of at most so many characters must be the whole answer."""


def is_short(alias_words: Sequence[str]) -> bool:
    """Whether a normalised accepted answer is too short to be looked for inside a longer answer."""
    return sum(map(len, alias_words)) <= SHORT


def grade(answer: str, accepted: Sequence[str]) -> bool:
    """Whether the answer names one of the accepted ones."""
    spoken = [word.text for word in located_words(answer)]
    whole = list(without_articles(spoken))
    present = set(spoken)
    for alias in accepted:
        wanted = words(alias)
        if not wanted or wanted[0] not in present:
            continue
        if wanted == whole:
            return True
        if not is_short(wanted) and any(True for _ in occurrences(wanted, spoken)):
            return True
    return False
