"""The exact words of a question of which nothing is known but its text.

What stands out (quotations, names, numbers, dates; `names`) and rare words are the subject. Where names or quotations
stand out, the common content words beside them say what is asked; where they do not, as in a text in lower case, the
order of words decides (`word_order`). If that leaves no subject, the rarest word is it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anchorscope.datasets.text import Word
from anchorscope.spans.empty_words import BARE_WORDS, EMPTY_WORDS, FUNCTION_WORDS, KINDS
from anchorscope.spans.names import name_spans, number_spans, quotation_spans
from anchorscope.spans.places import Span, is_clear, merged, words_as_written
from anchorscope.spans.rarity import is_rare, zipf
from anchorscope.spans.word_order import asked_by_order


@dataclass(frozen=True)
class PlainReading:
    """What rules read in a question; spans are sorted and do not overlap."""

    subject: tuple[Span, ...]
    """What the question is about; empty only for a text without words."""
    property_spans: tuple[Span, ...]
    """What is asked of it; shares no character with the subject."""
    content: tuple[Span, ...]
    """Every content word, subject and property among them."""


def _places(words: Sequence[Word], chosen: Iterable[int]) -> list[Span]:
    return [(words[at].start, words[at].end) for at in sorted(chosen)]


def _frames(words: Sequence[Word], at: int) -> bool:
    """Whether a content word only frames the question: "the name of", "what kind of"."""
    of_kind = words[at].text in KINDS and at + 1 < len(words) and words[at + 1].text == "of"
    return words[at].text in EMPTY_WORDS or of_kind


def read_plain_text(text: str) -> PlainReading:
    """The exact words of a question by rules alone."""
    words = words_as_written(text)
    named = merged([*quotation_spans(text, words), *name_spans(text, words)])
    marked = merged([*named, *number_spans(text, words)])
    beside = [at for at, word in enumerate(words) if is_clear(word.start, word.end, marked)]
    content = {at for at in beside if words[at].text not in FUNCTION_WORDS}
    said = {at for at in content if not _frames(words, at)}
    if not said and not marked:
        return _bare(words)
    if named:
        asked = {at for at in said if not is_rare(words[at].text)}
    else:
        asked = asked_by_order(words) & said
        if asked == said and not marked:
            asked = asked - {min(sorted(said), key=lambda at: zipf(words[at].text))}
    return PlainReading(
        subject=merged([*marked, *_places(words, said - asked)]),
        property_spans=tuple(_places(words, asked)),
        content=merged([*marked, *_places(words, content)]),
    )


def _bare(words: Sequence[Word]) -> PlainReading:
    """A question without content words: what is left without question words and articles; else everything."""
    for empty in (FUNCTION_WORDS, BARE_WORDS, frozenset[str]()):
        kept = tuple(_places(words, (at for at, word in enumerate(words) if word.text not in empty)))
        if kept:
            return PlainReading(kept, (), kept)
    return PlainReading((), (), ())
