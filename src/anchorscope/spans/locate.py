"""An answered item as the engine and the interventions need it: token ids, exact tokens, and where probes read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.generate import Answer
from anchorscope.answers.prompt import Prompt
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import decode_exactly
from anchorscope.spans.answer_span import answer_entity
from anchorscope.spans.places import Span
from anchorscope.spans.question_spans import QuestionSpans
from anchorscope.spans.tokens import offsets_by_decoding, tokens_in_spans


@dataclass(frozen=True)
class QuestionParts:
    """The question's tokens by what they say, as indices into the item's ids; a part may be empty."""

    subject: tuple[int, ...]
    property: tuple[int, ...]
    content: tuple[int, ...]


@dataclass(frozen=True)
class Located:
    """Tokens of one item; all indices are into `input_ids`."""

    input_ids: tuple[int, ...]
    answer_start: int
    question_tokens: tuple[int, ...]
    """Exact question tokens E_Q."""
    answer_tokens: tuple[int, ...]
    """Exact answer tokens E_A."""
    positions: tuple[int, ...]
    """One index per name in `spans.positions.POSITIONS`."""
    rule: str
    """How E_Q was found: `own`, `metadata`, `rules` or `model`."""
    parts: QuestionParts
    """E_Q by its parts, and all content words."""


def locate(tokenizer: Any, question: Question, words: QuestionSpans, prompt: Prompt, answer: Answer) -> Located:
    """Finds the exact tokens of an answered item; `words` are the question's."""
    start = len(prompt.ids) + len(answer.before)
    answer_tokens = [start + index for index in _answer_tokens(tokenizer, question, answer)]
    return Located(
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
    )


def locate_all(
    tokenizer: Any,
    questions: Sequence[Question],
    words: Sequence[QuestionSpans],
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
) -> list[Located | None]:
    """Exact tokens of every item; None where there is no answer to use."""
    return [
        locate(tokenizer, *item) if item[-1].status == "answered" else None
        for item in zip(questions, words, prompts, answers, strict=True)
    ]


def question_tokens(question: Question, spans: Sequence[Span], prompt: Prompt) -> tuple[int, ...]:
    """Tokens of a prompt that hold these places of its question."""
    flat = " ".join(question.question.split())  # the prompt holds the question on one line
    placed = spans if flat == question.question else _on_one_line(question.question, spans)
    shifted = [(start + prompt.question_start, end + prompt.question_start) for start, end in placed]
    return tuple(tokens_in_spans(prompt.offsets, shifted, prompt.text))


def _answer_tokens(tokenizer: Any, question: Question, answer: Answer) -> list[int]:
    text, offsets = offsets_by_decoding(lambda ids: decode_exactly(tokenizer, ids), answer.ids)
    found = tokens_in_spans(offsets, [answer_entity(text, question.question)], text)
    return found or list(range(len(answer.ids)))  # an answer without a visible character keeps all its tokens


def _on_one_line(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans of a text, moved to where they are once every run of white space has become one space."""

    def moved(at: int) -> int:
        before = " ".join(text[:at].split())
        gap = at < len(text) and at > 0 and text[at - 1].isspace() and bool(before)
        return len(before) + int(gap)

    return [(moved(start), moved(end)) for start, end in spans]
