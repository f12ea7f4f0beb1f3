"""An answered item as the engine and the interventions need it: token ids, exact tokens, and where probes read."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from typing import Any

from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.answers.prompt import Prompt, build_prompts, prefix_length
from anchorscope.answers.template import Template
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import decode_all_exactly, decode_exactly
from anchorscope.spans.answer_span import answer_entity
from anchorscope.spans.char_spans import Span
from anchorscope.spans.question_spans import QuestionSpans
from anchorscope.spans.tokens import WINDOW, Offsets, offsets_by_decoding, offsets_from_prefixes, tokens_in_spans

_WORD = re.compile(r"\S+")
_DECODED_TOGETHER = 64  # answers: all prefixes of theirs are in memory at once


@dataclass(frozen=True)
class QuestionParts:
    """The question's tokens by what they say, as indices into the item's ids; a part may be empty."""

    subject: tuple[int, ...]
    property: tuple[int, ...]
    content: tuple[int, ...]


@dataclass(frozen=True)
class ItemTokens:
    """Tokens of one item; all indices are into `input_ids`."""

    input_ids: tuple[int, ...]
    answer_start: int
    question_tokens: tuple[int, ...]
    """Exact question tokens E_Q."""
    answer_tokens: tuple[int, ...]
    """Exact answer tokens E_A."""
    positions: tuple[int, ...]
    """One index per name in `catalogue.POSITIONS`."""
    rule: str
    """How E_Q was found: `own`, `metadata`, `rules` or `model`."""
    parts: QuestionParts
    """E_Q by its parts, and all content words."""
    words: QuestionSpans | None = None
    """The same as places in the question's text."""
    prefix_length: int = 0
    """Leading tokens that all items of the dataset share: their keys and values are computed once."""


def locate(tokenizer: Any, question: Question, words: QuestionSpans, prompt: Prompt, answer: Answer) -> ItemTokens:
    """Finds the exact tokens of an answered item; `words` are the question's."""
    return _located(question, words, prompt, answer, next(_decoded(tokenizer, [answer])))


def _located(
    question: Question, words: QuestionSpans, prompt: Prompt, answer: Answer, decoded: tuple[str, Offsets]
) -> ItemTokens:
    """The same for an answer whose text and tokens' offsets in it are known (`decoded`)."""
    start = len(prompt.ids) + len(answer.before)
    answer_tokens = [start + index for index in _answer_tokens(question, answer, *decoded)]
    return ItemTokens(
        input_ids=prompt.ids + answer.before + answer.ids,
        answer_start=start,
        question_tokens=question_tokens(question, words.spans, prompt),
        answer_tokens=tuple(answer_tokens),
        positions=(start + len(answer.ids) - 1, answer_tokens[-1], answer_tokens[0] - 1),
        rule=words.rule,
        parts=QuestionParts(
            question_tokens(question, words.subject, prompt),
            question_tokens(question, words.property_spans, prompt),
            question_tokens(question, words.content, prompt),
        ),
        words=words,
    )


def locate_all(
    tokenizer: Any,
    questions: Sequence[Question],
    words: Sequence[QuestionSpans],
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
) -> list[ItemTokens | None]:
    """Exact tokens of every item; None where there is no answer to use."""
    decoded = _decoded(tokenizer, [answer for answer in answers if answer.status == "answered"])
    shared = prefix_length(prompts) if prompts else 0
    return [
        replace(_located(*item, next(decoded)), prefix_length=shared) if item[-1].status == "answered" else None
        for item in zip(questions, words, prompts, answers, strict=True)
    ]


def locate_fitting(
    tokenizer: Any,
    template: Template,
    questions: Sequence[Question],
    words: Callable[[Sequence[Question]], Sequence[QuestionSpans]],
    answers: Sequence[Answer],
    prompts: Sequence[Prompt] | None = None,
) -> list[ItemTokens | None]:
    """The same from the template; nobody looks at questions that do not fit the model's context, however long.

    `prompts` are the template's for these questions, where they were built already.
    """
    fitting = [index for index, answer in enumerate(answers) if answer.status != TOO_LONG]
    asked = [questions[index] for index in fitting]
    own = build_prompts(tokenizer, asked, template) if prompts is None else [prompts[index] for index in fitting]
    located = locate_all(tokenizer, asked, words(asked), own, [answers[index] for index in fitting])
    by_index = dict(zip(fitting, located, strict=True))
    return [by_index.get(index) for index in range(len(questions))]


def question_tokens(question: Question, spans: Sequence[Span], prompt: Prompt) -> tuple[int, ...]:
    """Tokens of a prompt that hold these places of its question."""
    flat = " ".join(question.question.split())  # the prompt holds the question on one line
    placed = spans if flat == question.question else on_one_line(question.question, spans)
    shifted = [(start + prompt.question_start, end + prompt.question_start) for start, end in placed]
    own = prompt.own_start
    return tuple([own + index for index in tokens_in_spans(prompt.offsets[own:], shifted, prompt.text)])


def _decoded(tokenizer: Any, answers: Sequence[Answer]) -> Iterator[tuple[str, Offsets]]:
    """The text of every answer and the characters of each of its tokens; many short answers are decoded in one call."""
    for first in range(0, len(answers), _DECODED_TOGETHER):
        batch = [answer.ids for answer in answers[first : first + _DECODED_TOGETHER]]
        prefixes = [ids[:end] for ids in batch if len(ids) <= WINDOW for end in range(1, len(ids) + 1)]
        texts = iter(decode_all_exactly(tokenizer, prefixes))
        for ids in batch:
            if len(ids) <= WINDOW:
                yield offsets_from_prefixes(list(islice(texts, len(ids))))
            else:
                yield offsets_by_decoding(partial(decode_exactly, tokenizer), ids)


def _answer_tokens(question: Question, answer: Answer, text: str, offsets: Offsets) -> list[int]:
    found = tokens_in_spans(offsets, [answer_entity(text, question.question)], text)
    return found or list(range(len(answer.ids)))  # an answer without a visible character keeps all its tokens


def on_one_line(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans of a text, moved to where they are once every run of white space has become one space."""

    if " ".join(text.split()) == text:
        return list(spans)

    words = [match.span() for match in _WORD.finditer(text)]
    lengths = [0, *accumulate(end - start for start, end in words)]  # of the words alone

    def moved(index: int) -> int:
        before = bisect_left(words, (index,))  # words that begin before the place
        cut = max(0, words[before - 1][1] - index) if before else 0
        gap = index < len(text) and index > 0 and text[index - 1].isspace() and before > 0
        return lengths[before] - cut + max(0, before - 1) + int(gap)

    return [(moved(start), moved(end)) for start, end in spans]
