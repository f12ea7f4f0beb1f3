"""An answered item as the engine and the interventions need it: token ids, exact tokens, and where probes read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.generate import Answer
from anchorscope.answers.prompt import Prompt
from anchorscope.datasets.question import Question
from anchorscope.models.language_model import decode_exactly
from anchorscope.spans.answer_span import exact_answer_span
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.spans.tokens import offsets_by_decoding, tokens_in_spans


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
    """How E_Q was found: `metadata` or `rules`."""


def locate(tokenizer: Any, question: Question, prompt: Prompt, answer: Answer) -> Located:
    """Finds the exact tokens of an answered item."""
    words = locate_question_words(question)
    flat = " ".join(question.question.split())  # the prompt holds the question on one line
    spans = words.spans if flat == question.question else _on_one_line(question.question, words.spans)
    shifted = [(start + prompt.question_start, end + prompt.question_start) for start, end in spans]
    question_tokens = tokens_in_spans(prompt.offsets, shifted, prompt.text)
    start = len(prompt.ids)
    answer_tokens = [start + index for index in _answer_tokens(tokenizer, answer, question.answers)]
    final = start + len(answer.ids) - 1
    return Located(
        input_ids=prompt.ids + answer.ids,
        answer_start=start,
        question_tokens=tuple(question_tokens),
        answer_tokens=tuple(answer_tokens),
        positions=(final, answer_tokens[-1], answer_tokens[0] - 1),
        rule=words.rule,
    )


def locate_all(
    tokenizer: Any, questions: Sequence[Question], prompts: Sequence[Prompt], answers: Sequence[Answer]
) -> list[Located | None]:
    """Exact tokens of every item; None where there is no answer to use."""
    return [
        locate(tokenizer, question, prompt, answer) if answer.status == "answered" else None
        for question, prompt, answer in zip(questions, prompts, answers, strict=True)
    ]


def _answer_tokens(tokenizer: Any, answer: Answer, accepted: Sequence[str]) -> list[int]:
    text, offsets = offsets_by_decoding(lambda ids: decode_exactly(tokenizer, ids), answer.ids)
    found = tokens_in_spans(offsets, [exact_answer_span(text, accepted)], text)
    return found or list(range(len(answer.ids)))  # an answer without a visible character keeps all its tokens


def _on_one_line(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of a text, moved to where they are once every run of white space has become one space."""

    def moved(at: int) -> int:
        before = " ".join(text[:at].split())
        gap = at < len(text) and at > 0 and text[at - 1].isspace() and bool(before)
        return len(before) + int(gap)

    return [(moved(start), moved(end)) for start, end in spans]
