"""Exact tokens: from characters to tokens, and an answered item as the engine and the interventions need it.

A token belongs to a span if one of its visible characters lies in it: " France?" belongs to "France". Offsets of
generated ids come from decoding longer and longer prefixes, since tokenising the text again may give other tokens.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from os.path import commonprefix
from typing import Any

from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.answers.template import (
    Prompt,
    Template,
    build_prompts,
    decode_all_exactly,
    decode_exactly,
    prefix_length,
)
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import Span, merged
from anchorscope.spans.answer_span import answer_entity
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words

Offsets = list[tuple[int, int]]
"""Characters [start, end) of a text for each token."""
UNFINISHED = "\ufffd"
"""What a decoder writes for incomplete characters."""
_DECODED_TOGETHER, _SHORT = (
    64,
    256,
)  # answers in one call, of at most this many tokens; longer ones prefix by prefix


def tokens_in_spans(
    offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], text: str
) -> list[int]:
    """Indices of the tokens with a visible character inside a span of `text`."""
    spans = merged(span for span in spans if span[0] < span[1])
    if not spans:
        return []
    first, last = spans[0][0], spans[-1][1]
    indices = []
    for index, (start, end) in enumerate(offsets):
        if start < last and first < end:
            # no more spans than characters can touch a token
            near = bisect_right(spans, start, key=itemgetter(1))
            shared = (
                text[max(start, begin) : min(end, stop)]
                for begin, stop in spans[near : near + end - start]
            )
            if any(map(str.strip, shared)):
                indices.append(index)
    return indices


def offsets_by_decoding(
    decode: Callable[[list[int]], str], ids: Sequence[int]
) -> tuple[str, Offsets]:
    """The text of generated ids, and the characters [start, end) of each."""
    return offsets_from_prefixes(
        decode(list(ids[:end])) for end in range(1, len(ids) + 1)
    )


def offsets_from_prefixes(prefixes: Iterable[str]) -> tuple[str, Offsets]:
    """Text and offsets from the texts of ids[:1], ids[:2] and so on; ids that share a character all get it."""
    text, settled = (
        "",
        0,
    )  # the text so far, and how much of it later ids cannot change any more
    offsets: Offsets = []
    waiting: list[int] = []  # ids whose last character is not finished yet
    for index, longer in enumerate(prefixes):
        if longer == text and not waiting:
            offsets.append((len(text), len(text)))
            continue
        # Nearly every id only adds text; comparing character by character is for those that change some.
        if longer.startswith(text):
            same = len(text)
        else:
            same = len(commonprefix((text, longer)))  # noqa: RUF071
        finished = len(longer.rstrip(UNFINISHED))
        if finished > settled:
            # bytes that turned out to be no character keep their marks
            for earlier in waiting:
                offsets[earlier] = (offsets[earlier][0], max(offsets[earlier][1], same))
            waiting = []
        if finished < len(longer):
            # How many marks an unfinished character has depends on the decoder; it will be one character.
            offsets.append((min(same, finished), finished + 1))
            waiting.append(index)
        else:
            offsets.append((same, finished))
        text, settled = longer, finished
    for earlier in waiting:
        offsets[earlier] = (offsets[earlier][0], len(text))
    # A decoder that tidies up spaces may take back characters that it gave before.
    return text, [
        (min(start, len(text)), min(end, len(text))) for start, end in offsets
    ]


@dataclass(frozen=True)
class QuestionParts:
    """The question's tokens by part, as indices into the item's ids; a part may be empty."""

    subject: tuple[int, ...]
    property: tuple[int, ...]
    content: tuple[int, ...]


@dataclass(frozen=True)
class ItemTokens:
    """Tokens of one item; all indices are into `input_ids`."""

    input_ids: tuple[int, ...]
    answer_start: int
    question_tokens: tuple[int, ...]
    answer_tokens: tuple[int, ...]
    positions: tuple[int, ...]
    """One index per name in `catalogue.POSITIONS`."""
    rule: str
    """How E_Q was found: `own`, `metadata` or `rules`."""
    parts: QuestionParts
    """E_Q by its parts, and all content words."""
    words: QuestionSpans | None = None
    """The same as characters of the question's text."""
    prefix_length: int = 0
    """Leading tokens shared by all items of the dataset: their keys and values are computed once."""
    sources: tuple[tuple[str, int, int], ...] = ()
    """Name, first token and the token after the last of every source that stands in the text, in order."""

    def source_tokens(self, name: str) -> tuple[int, ...]:
        """The tokens of a source; `context` are those of all passages. Empty where the item has no such source."""
        return tuple(
            token
            for own, start, end in self.sources
            if own.partition("[")[0] == name or own == name
            for token in range(start, end)
        )


def locate(
    tokenizer: Any,
    question: Question,
    words: QuestionSpans,
    prompt: Prompt,
    answer: Answer,
) -> ItemTokens:
    """The exact tokens of an answered item; `words` are the question's."""
    return _locate_decoded(
        question, words, prompt, answer, next(_decode_answers(tokenizer, [answer]))
    )


def _locate_decoded(
    question: Question,
    words: QuestionSpans,
    prompt: Prompt,
    answer: Answer,
    decoded: tuple[str, Offsets],
) -> ItemTokens:
    """The same for an answer whose text and offsets are known (`decoded`)."""
    start, (text, offsets) = len(prompt.ids) + len(answer.before), decoded
    exact = tokens_in_spans(offsets, [answer_entity(text, question.question)], text)
    # An answer without a visible character keeps all its tokens.
    answer_tokens = [start + index for index in exact or range(len(answer.ids))]
    return ItemTokens(
        input_ids=prompt.ids + answer.before + answer.ids,
        answer_start=start,
        question_tokens=question_tokens(words.spans, prompt),
        answer_tokens=tuple(answer_tokens),
        positions=(
            start + len(answer.ids) - 1,
            answer_tokens[-1],
            answer_tokens[0] - 1,
        ),
        rule=words.rule,
        parts=QuestionParts(
            question_tokens(words.subject, prompt),
            question_tokens(words.property_spans, prompt),
            question_tokens(words.content, prompt),
        ),
        words=words,
        sources=(*prompt_sources(prompt), ("answer", start, start + len(answer.ids))),
    )


def prompt_sources(prompt: Prompt) -> list[tuple[str, int, int]]:
    """Name, first token and the token after the last of every source of a prompt."""
    located = []
    for name, span in prompt.sources:
        tokens = tokens_in_spans(prompt.offsets, [span], prompt.text)
        if tokens:
            located.append((name, tokens[0], tokens[-1] + 1))
    return located


def locate_all(
    tokenizer: Any,
    questions: Sequence[Question],
    words: Sequence[QuestionSpans],
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
) -> list[ItemTokens | None]:
    """Exact tokens of every item; None if there is no answer to use."""
    decoded = _decode_answers(
        tokenizer, [answer for answer in answers if answer.status == "answered"]
    )
    shared = prefix_length(prompts) if prompts else 0
    return [
        replace(_locate_decoded(*item, next(decoded)), prefix_length=shared)
        if item[-1].status == "answered"
        else None
        for item in zip(questions, words, prompts, answers, strict=True)
    ]


def locate_fitting(
    tokenizer: Any,
    template: Template,
    questions: Sequence[Question],
    exact_tokens: str,
    answers: Sequence[Answer],
    prompts: Sequence[Prompt] | None = None,
) -> list[ItemTokens | None]:
    """The same from the template; questions that don't fit the model's context are skipped."""
    fitting = [
        index for index, answer in enumerate(answers) if answer.status != TOO_LONG
    ]
    asked = [questions[index] for index in fitting]
    own = (
        build_prompts(tokenizer, asked, template)
        if prompts is None
        else [prompts[index] for index in fitting]
    )
    words = [
        locate_question_words(question, use_metadata=exact_tokens == "auto")
        for question in asked
    ]
    located = locate_all(
        tokenizer, asked, words, own, [answers[index] for index in fitting]
    )
    by_index = dict(zip(fitting, located, strict=True))
    return [by_index.get(index) for index in range(len(questions))]


def question_tokens(spans: Sequence[Span], prompt: Prompt) -> tuple[int, ...]:
    """Tokens of a prompt that overlap these spans of its question."""
    shifted = [
        (start + prompt.question_start, end + prompt.question_start)
        for start, end in spans
    ]
    own = prompt.own_start
    return tuple(
        [
            own + index
            for index in tokens_in_spans(prompt.offsets[own:], shifted, prompt.text)
        ]
    )


def _decode_answers(
    tokenizer: Any, answers: Sequence[Answer]
) -> Iterator[tuple[str, Offsets]]:
    """Text and offsets of every answer; many short answers are decoded in one call."""
    for first in range(0, len(answers), _DECODED_TOGETHER):
        batch = [answer.ids for answer in answers[first : first + _DECODED_TOGETHER]]
        prefixes = [
            ids[:end]
            for ids in batch
            if len(ids) <= _SHORT
            for end in range(1, len(ids) + 1)
        ]
        texts = iter(decode_all_exactly(tokenizer, prefixes))
        for ids in batch:
            if len(ids) <= _SHORT:
                yield offsets_from_prefixes(list(islice(texts, len(ids))))
            else:
                yield offsets_by_decoding(partial(decode_exactly, tokenizer), ids)
