"""The exact words of all questions of a dataset: by the rules of `question_spans`, or named by the model itself.

The model is shown three questions with their key words, then asked. What it names counts only where it stands in the
question; where it names nothing of the question, or has no room for it beside the examples, the dataset and the rules
speak instead. It is there to see how much the result hangs on who chooses the words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.answers.prompt import build_prompts, prefix_length
from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.engine.decode import Decoded
from anchorscope.models.language_model import decode_exactly
from anchorscope.spans.char_spans import Span, is_clear, merged, phrase_spans, subtract_spans, words_as_written
from anchorscope.spans.function_words import EMPTY_WORDS
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words

Write = Callable[[Sequence[tuple[int, ...]], tuple[int, ...], int], Sequence[Decoded]]
"""Lets the model go on with prompts that share a prefix, by so many tokens at most."""


@dataclass(frozen=True)
class Asker:
    """How the model is asked for key words."""

    tokenizer: Any
    first_token: int | None
    """What every prompt begins with; None for nothing."""
    context: int | None
    """How many tokens the model reads at once; None for no limit."""
    write: Write


def question_words(exact_tokens: str, questions: Sequence[Question], asker: Callable[[], Asker]) -> list[QuestionSpans]:
    """One per question; the model is only needed where it is asked. A user's own spans are never overruled by it."""
    if exact_tokens != "model":
        return [locate_question_words(question, use_metadata=exact_tokens == "auto") for question in questions]
    found = [locate_question_words(question) for question in questions]
    asked = [index for index, words in enumerate(found) if words.rule != "own" and words.spans]
    if asked:
        named = ask_for_key_words(asker(), [questions[index] for index in asked])
        for index, words in zip(asked, named, strict=True):
            found[index] = words
    return found


_SHOWN = (
    ("What is the capital of Japan?", "capital, Japan"),
    ("Who wrote Romeo and Juliet?", "wrote, Romeo and Juliet"),
    ("In what year was the company that makes the iPhone founded?", "year, company, makes, iPhone, founded"),
)
_LONGEST = 24  # tokens; a list that does not end by then is used as far as it goes


def ask_for_key_words(asker: Asker, questions: Sequence[Question]) -> list[QuestionSpans]:
    """The exact words of every question, as the model names them."""
    head = "".join(f"Question: {question}\nKey words: {words}\n" for question, words in _SHOWN)
    asking = replace(FEW_SHOT_TEMPLATE, head=f"{head}Question: ", tail="\nKey words:", first_token=asker.first_token)
    built = build_prompts(asker.tokenizer, questions, asking)
    fits = [asker.context is None or len(prompt.ids) + _LONGEST <= asker.context for prompt in built]
    asked = [prompt for prompt, fit in zip(built, fits, strict=True) if fit]
    prompts = [prompt.ids for prompt in asked]
    if not prompts:
        return [locate_question_words(question) for question in questions]
    named = iter(asker.write(prompts, prompts[0][: prefix_length(asked)], _LONGEST))
    return [
        named_words(question, decode_exactly(asker.tokenizer, next(named).ids) if fit else "")
        for question, fit in zip(questions, fits, strict=True)
    ]


def named_words(question: Question, named: str) -> QuestionSpans:
    """The words of a question that a list names; those of the rules if it names none."""
    ruled = locate_question_words(question)
    text = question.question
    words = words_as_written(text)
    phrases = [phrase for part in named.split(",") if (phrase := part.strip(" .;\"'"))]
    named_spans = [span for phrase in phrases for span in phrase_spans(phrase, text, words)]
    kept = merged(span for span in named_spans if not _is_empty(text, span))
    if not kept:
        return ruled
    subject = [span for span in kept if not is_clear(*span, ruled.subject)] or list(kept)
    asked = subtract_spans(kept, merged(subject), words)
    content = merged([*kept, *ruled.content])
    return QuestionSpans(kept, merged(subject), merged(asked), content, "model")


def _is_empty(text: str, span: Span) -> bool:
    return all(word.text in EMPTY_WORDS for word in words_as_written(text[span[0] : span[1]]))
