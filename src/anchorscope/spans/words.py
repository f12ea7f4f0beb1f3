"""Words and spans of characters in a text: where a phrase stands, what stands out, and words without content.

Words are those of `datasets.text`, with "'s" as a word of its own. What stands out are quotations, numbers, dates and
names: runs of capitalised words, with the small words inside them ("Juan de la Cruz").
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from operator import itemgetter

from anchorscope.datasets.text import (
    ARTICLES,
    Span,
    Word,
    located_words,
    occurrences,
    without_articles,
)


# several rules read the same question and answer, one after the other
@lru_cache(maxsize=16)
def words_as_written(text: str) -> tuple[Word, ...]:
    """Words as written: numbers not composed, possessives apart."""
    return tuple(located_words(text, numbers=False, split_possessive=True))


def is_clear(start: int, end: int, taken: Sequence[Span]) -> bool:
    """Whether [start, end) is disjoint from the taken spans, which are sorted and don't overlap."""
    following = bisect_right(taken, start, key=itemgetter(1))
    return following == len(taken) or taken[following][0] >= end


def subtract_spans(
    spans: Iterable[Span], taken: Sequence[Span], words: Sequence[Word]
) -> list[Span]:
    """The spans without what is taken; of a partly taken span, the other words stay."""
    clear: list[Span] = []
    parts: list[Span] = []
    for span in spans:
        (clear if is_clear(*span, taken) else parts).append(span)
    if parts:
        for _, start, end in words:
            if not is_clear(start, end, parts) and is_clear(start, end, taken):
                clear.append((start, end))
    return sorted(clear)


def phrase_spans(phrase: str, text: str, words: Sequence[Word]) -> list[Span]:
    """Every occurrence of a phrase in the text as whole words, less its leading article; `words` are the text's."""
    wanted = without_articles([word.text for word in words_as_written(phrase)])
    if not wanted:  # a name made of symbols ("!!!") can only be found as it is written
        start = text.find(phrase.strip()) if phrase.strip() else -1
        return [(start, start + len(phrase.strip()))] if start >= 0 else []
    texts = [word.text for word in words]
    return [
        (words[first].start, words[after - 1].end)
        for first, after in occurrences(wanted, texts)
    ]


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LISTS = tomllib.loads(
    (files("anchorscope.spans") / "words.toml").read_text(encoding="utf-8")
)
PHRASES = {
    name: [phrase.split() for phrase in text.split("|")]
    for name, text in _LISTS["phrases"].items()
}
_WORDS = {name: word_set(text) for name, text in _LISTS["words"].items()}
QUESTION_WORDS, PREPOSITIONS, AUXILIARIES = (
    _WORDS["question_words"],
    _WORDS["prepositions"],
    _WORDS["auxiliaries"],
)
PRONOUNS, KINDS, NAME_PARTICLES = (
    _WORDS["pronouns"],
    _WORDS["kinds"],
    _WORDS["name_particles"],
)
BARE_WORDS = ARTICLES | QUESTION_WORDS
"""Left out even where a question says little else."""
FUNCTION_WORDS = (
    BARE_WORDS | PREPOSITIONS | AUXILIARIES | PRONOUNS | _WORDS["other_function_words"]
)
EMPTY_WORDS = FUNCTION_WORDS | _WORDS["frame_words"]
"""Never by themselves what a question is about."""
NAME_LINKS = ARTICLES | NAME_PARTICLES | _WORDS["name_links"]
"""Lower-case words inside a name: "The Lord of the Rings", "Juan de la Cruz"."""
TITLE_LINKS = NAME_LINKS | _WORDS["title_links"]
"""Also those inside titles, which as often stand between two names ("Bell in Boston", "Lima and Quito")."""
LONGEST_LINK = 3
"""Small words between two capitalised ones of a name, at most."""

# At most 1,000 characters: the end of an unclosed quotation would else be sought in the whole text, each time.
_QUOTATIONS = re.compile(
    r"\"[^\"]{1,1000}\"|“[^”]{1,1000}”|„[^“”]{1,1000}[“”]|«[^»]{1,1000}»"
    r"|(?<![\w'])'(?=\S)[^\"]{1,300}?(?<=\S)'(?!\w)|(?<![\w‘])‘(?=\S)[^\"]{1,300}?(?<=\S)’(?!\w)"
)
_LONGEST_TITLE = 50  # words; a title that ends the text is not looked for farther away
_SENTENCE_END = re.compile(r"[.?!][\"'”’)]*\s")
_INSIDE_NAME = re.compile(r"\s*|\s*[-‐‑–—/&+:]\s*|[.!]\s*")
_HYPHEN = re.compile(r"[-‐‑]")
_NAME_GOES_ON = NAME_PARTICLES | {"'s"}
_ALWAYS_LARGE = word_set(
    "i im ive id ill"
)  # pronouns, unless a name goes on beside them
_TWO_NAMES = word_set(
    "both between either same common share shared"
)  # "and" is then in neither name
_NO_SENTENCE_END = word_set(
    "st dr mr mrs ms jr sr mt ft no vs vol prof gen lt col rev hon sgt capt"
)
_MONTHS = word_set(
    "january february march april may june july august september october november december"
)


def quotation_spans(text: str, words: Sequence[Word]) -> Iterator[Span]:
    for match in _QUOTATIONS.finditer(text):
        first = bisect_right(words, match.start(), key=lambda word: word.start)
        after = bisect_right(words, match.end(), key=lambda word: word.end)
        if first < after:
            yield words[first].start, min(words[after - 1].end, match.end() - 1)


def _is_large(text: str, word: Word) -> bool:
    """Whether a word is written as a name: with a capital letter, or in a script without any."""
    raw = text[word.start : word.end]
    if raw.isascii():
        return raw != raw.lower()
    return any(
        character.isupper()
        or (character.isalpha() and character.lower() == character.upper())
        for character in raw
    )


def _capitals_tell(words: Sequence[Word], large: Sequence[bool]) -> bool:
    if all(large[1:]):
        return False
    title_case = (
        words[0].text in QUESTION_WORDS and large[1] and words[1].text in FUNCTION_WORDS
    )
    return not (title_case and sum(large) > len(large) / 2)


def _starts(text: str, words: Sequence[Word]) -> Iterator[int]:
    yield 0
    for index in range(1, len(words)):
        before = words[index - 1]
        if words[index].start - before.end < 2:  # no room for a mark and a space
            continue
        ended = (
            _SENTENCE_END.search(text, before.end, words[index].start + 1) is not None
        )
        if ended and before.text not in _NO_SENTENCE_END and len(before.text) > 1:
            yield index


def _joined(text: str, word: Word, following: Word) -> bool:
    gap = text[word.end : following.start]
    if gap == " ":
        return True
    if (
        gap.startswith((".", "!"))
        and len(gap) > 1
        and len(word.text) > 1
        and word.text not in _NO_SENTENCE_END
    ):
        return False
    return _INSIDE_NAME.fullmatch(gap) is not None


def _name_words(text: str, words: Sequence[Word], large: Sequence[bool]) -> list[bool]:
    starts = set(_starts(text, words))
    asking = next(
        (index for index, word in enumerate(words) if word.text in QUESTION_WORDS), -1
    )
    named = list(large)
    for index, word in enumerate(words):
        goes_on = index + 1 < len(words) and _joined(text, word, words[index + 1])
        if index == asking:
            named[index] = (
                large[index] and index > 0 and words[index - 1].text in ARTICLES
            )
        elif index in starts:
            initials = len(word.text) > 1 and text[word.start : word.end].isupper()
            named_after = initials or (
                goes_on and (large[index + 1] or words[index + 1].text in _NAME_GOES_ON)
            )
            named[index] = large[index] and word.text not in EMPTY_WORDS and named_after
        elif word.text in _ALWAYS_LARGE and index + 1 < len(words):
            named[index] = large[index] and (
                named[index - 1] or (goes_on and large[index + 1])
            )
    return named


def _has_digit(word: Word) -> bool:
    return not word.text.isalpha() and any(
        character.isdigit() for character in word.text
    )


def name_spans(text: str, words: Sequence[Word]) -> Iterator[Span]:
    """Names by their capital letters, with the small words and the numbers inside them."""
    large = [_is_large(text, word) for word in words]
    if len(words) < 2 or not _capitals_tell(words, large):
        return
    named = _name_words(text, words, large)
    two_names = not _TWO_NAMES.isdisjoint(word.text for word in words)
    index = 0
    while index < len(words):
        if not named[index]:
            index += 1
            continue
        last = _name_end(text, words, named, index, NAME_LINKS)
        # a title may end the text: "Who wrote Death in Venice?"
        if last + 2 < len(words) <= index + _LONGEST_TITLE:
            longer = _name_end(text, words, named, index, TITLE_LINKS)
            if longer == len(words) - 1 and not (
                any(word.text == "and" for word in words[last:longer])
                and ((index > 0 and named[index - 1]) or two_names)
            ):
                last = longer
        yield words[index].start, words[last].end
        index = last + 1


def _name_end(
    text: str,
    words: Sequence[Word],
    named: Sequence[bool],
    first: int,
    links: frozenset[str],
) -> int:
    last, look = first, first + 1
    while look < len(words) and _joined(text, words[look - 1], words[look]):
        beside = look == last + 1
        hyphened = (
            beside
            and _HYPHEN.fullmatch(text[words[last].end : words[look].start]) is not None
        )
        if named[look] or hyphened or (beside and _has_digit(words[look])):
            last = look
        elif look - last > LONGEST_LINK or words[look].text not in links:
            break
        look += 1
    return last


def number_spans(text: str, words: Sequence[Word]) -> Iterator[Span]:
    """Numbers in digits, with the month beside them."""
    for index, word in enumerate(words):
        if not _has_digit(word):
            continue
        first = last = index
        if index > 0 and words[index - 1].text in _MONTHS:
            first = index - 1
        elif index + 1 < len(words) and words[index + 1].text in _MONTHS:
            last = index + 1
        yield words[first].start, words[last].end
