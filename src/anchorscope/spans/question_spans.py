"""The exact question words E_Q, as spans of the question's text: the subject, and the property asked for.

Three sources, in the order in which they are trusted:
- `own`: spans that the user has marked. They are E_Q, all of it; which of them is the subject is not known, so they
  count as the subject.
- `metadata`: what the dataset says. Every occurrence of the subject (less a leading article; case and accents do not
  matter, and "Marlow" is found in "Marlow's") and of the property words.
- `rules`: the text alone (`plain_text`). Where the dataset knows only the subject or only the property, or names one
  that the text does not say, the rules add the missing half, and the rule is called "rules".
Punctuation at the ends of a name is never part of E_Q, unless the name is nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Word
from anchorscope.errors import UserError
from anchorscope.spans.char_spans import Span, merged, phrase_spans, subtract_spans, words_as_written
from anchorscope.spans.function_words import EMPTY_WORDS
from anchorscope.spans.plain_text import read_plain_text

Rule = Literal["own", "metadata", "rules", "model"]
"""What found the exact words."""


@dataclass(frozen=True)
class QuestionSpans:
    """Where the exact question words are: characters [start, end), sorted, not overlapping."""

    spans: tuple[Span, ...]
    """E_Q, the subject and the property together; empty only for a question without any word."""
    subject: tuple[Span, ...]
    """What the question is about ("France"); never empty where `spans` is not."""
    property_spans: tuple[Span, ...]
    """What is asked of it ("capital"); shares no character with the subject; empty where nothing else is said."""
    content: tuple[Span, ...]
    """Every content word of the question; E_Q is a part of it."""
    rule: Rule
    """What found E_Q: the user's own spans, the dataset's subject and property words, or (also) rules for the text."""


def _subject_spans(subject: str, text: str, words: Sequence[Word]) -> list[Span]:
    """Every occurrence of the dataset's subject."""
    found = phrase_spans(subject, text, words)
    # A subject such as "What" or "It" is also a word of the template; only its last occurrence can be the name.
    return found[-1:] if all(word.text in EMPTY_WORDS for word in words_as_written(subject)) else found


def _own_spans(question: Question) -> tuple[Span, ...]:
    """The user's own spans, checked."""
    text = question.question
    for start, end in question.exact_spans:
        if not (0 <= start < end <= len(text)) or not text[start:end].strip():
            raise UserError(
                f"question {question.item_id}: the exact span [{start}, {end}) is no visible part of its "
                f"{len(text)} characters; give [start, end) with 0 <= start < end <= {len(text)}"
            )
    return merged(question.exact_spans)


def locate_question_words(question: Question, use_metadata: bool = True) -> QuestionSpans:
    """The exact question words, and what found them; without `use_metadata`, only the rules for plain text speak."""
    text = question.question
    words = words_as_written(text)
    read = read_plain_text(text)

    def found(subject: Sequence[Span], asked: Sequence[Span], rule: Rule) -> QuestionSpans:
        core = merged(subject)
        rest = merged(subtract_spans(merged(asked), core, words))
        return QuestionSpans(merged([*core, *rest]), core, rest, merged([*core, *rest, *read.content]), rule)

    if not use_metadata:
        return found(read.subject, read.property_spans, "rules")
    own = _own_spans(question)
    if own:
        return found(own, (), "own")
    subject = _subject_spans(question.subject, text, words) if question.subject else []
    # A relation's name is the next best thing to property words: "capital" is also how the question puts it.
    phrases = question.property_words or ((question.relation,) if question.relation else ())
    spans_by_phrase = [phrase_spans(phrase, text, words) for phrase in phrases]
    asked = [span for spans in spans_by_phrase for span in spans]
    if subject and spans_by_phrase and all(spans_by_phrase):
        return found(subject, asked, "metadata")
    if subject:  # whatever else is said may be the property
        return found(subject, [*asked, *read.subject, *read.property_spans], "rules")
    about = subtract_spans(read.subject, asked, words) or read.subject or asked
    return found(about, [*asked, *read.property_spans], "rules")


def exact_question_spans(question: Question) -> list[Span]:
    """Characters [start, end) of the exact question words."""
    return list(locate_question_words(question).spans)
