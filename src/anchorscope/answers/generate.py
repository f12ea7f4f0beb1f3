"""The model's answers, greedy or sampled, and where they end; and supplied answers.

In a conversation some models begin with a blank line, or with a thinking block although that is switched off. Both are
part of what the model sees, not of its answer, which begins at its first visible character.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anchorscope.answers.template import (
    CLOSE,
    OPEN,
    Prompt,
    Template,
    after_thinking,
    decode_all_exactly,
    decode_exactly,
)
from anchorscope.datasets.question import Question

if TYPE_CHECKING:
    from anchorscope.engine.decode import Decoded
    from anchorscope.models.language_model import LanguageModel

LINE, CHAT, TEXT = "line", "chat", "text"
"""One line; one in a conversation; a text of any number of lines, up to an end token."""


class Ending:
    """Which tokens end a text: line breaks, the model's end tokens, and special tokens.

    A line break ends a chat answer only after a visible character and outside a thinking block.
    """

    def __init__(self, lm: "LanguageModel", kind: str) -> None:
        self.tokenizer, self.chat, self.breaks = (
            lm.tokenizer,
            kind == CHAT,
            kind != TEXT,
        )
        eos = (
            lm.model.generation_config.eos_token_id
            if lm.model.generation_config is not None
            else None
        )
        ends = [
            *(eos if isinstance(eos, list) else [eos]),
            lm.tokenizer.eos_token_id,
            *lm.tokenizer.all_special_ids,
        ]
        special = [
            token
            for token, added in lm.tokenizer.added_tokens_decoder.items()
            if added.special
        ]
        self.certain = {int(end) for end in [*ends, *special] if end is not None}
        if self.chat or not self.breaks:
            self.certain = {
                end
                for end in self.certain
                if decode_exactly(lm.tokenizer, [end]) not in (OPEN, CLOSE)
            }
        self.texts: dict[int, str] = {}

    def is_end(self, token: int, so_far: Sequence[int] = ()) -> bool:
        if token in self.certain:
            return True
        if not self.breaks:
            return False
        if token not in self.texts:
            self.texts[token] = decode_exactly(self.tokenizer, [token])
        line, has_break, _ = self.texts[token].partition("\n")
        if not has_break or not self.chat:
            return bool(has_break)
        visible = after_thinking(decode_exactly(self.tokenizer, so_far))
        return visible is not None and bool((visible + line).strip())


TOO_LONG = "too_long"
"""A question that doesn't fit the model's context together with its longest answer."""
EXTRA_BLANK_TOKENS = 4
"""Blank tokens that a chat answer may begin with, beyond the longest answer."""
EXTRA_THINKING_TOKENS = 1024
"""Tokens of a thinking block, beyond the longest answer; longer ones are truncated."""


@dataclass(frozen=True)
class Answer:
    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    """None for a supplied answer."""
    status: str
    """`answered`, `empty`, `truncated` or `too_long`; only the first is used."""
    before: tuple[int, ...] = ()
    """What the model wrote before its answer: blank lines, a thinking block."""
    needs: int = 0
    """Tokens of prompt and longest answer, if `too_long`."""


def known_answers(
    tokenizer: Any,
    template: Template,
    questions: Sequence[Question],
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    context: int | None,
) -> dict[int, Answer]:
    """What is known before any pass, by question: supplied answers, and which questions don't fit.

    A prompt must leave room for the longest answer, greedy or sampled, and for the supplied one.
    """
    given = [
        index
        for index, own in enumerate(questions)
        if own.model_answer is not None and prompts[index].ids
    ]
    texts = [questions[index].model_answer or "" for index in given]
    answers = given_answers(
        tokenizer, template, [prompts[index] for index in given], texts
    )
    answers_by_index, room = (
        dict(zip(given, answers, strict=True)),
        longest_answer(template, max_new_tokens),
    )
    for index, (question, prompt) in enumerate(zip(questions, prompts, strict=True)):
        needs = prompt.left_out + len(prompt.ids) + room
        if index in answers_by_index:
            needs = max(needs, len(prompt.ids) + len(answers_by_index[index].ids))
        if context is not None and needs > context:
            answers_by_index[index] = Answer(
                (question.model_answer or "").strip(), (), None, TOO_LONG, needs=needs
            )
    return answers_by_index


def do_not_fit(answers: Iterable[Answer], context: int | None) -> str:
    """How many questions don't fit the model's context; empty if all fit."""
    every = list(answers)
    needs = [answer.needs for answer in every if answer.status == TOO_LONG]
    if not needs or context is None:
        return ""
    return (
        f"{len(needs):,} of {len(every):,} questions do not fit the model's context of {context:,} tokens together "
        f"with the longest answer: they are left out (the shortest of them needs {min(needs):,} tokens, the longest "
        f"{max(needs):,})"
    )


def longest_answer(template: Template, max_new_tokens: int) -> int:
    """Tokens that may follow a prompt, blank ones included."""
    return max_new_tokens + (EXTRA_BLANK_TOKENS if template.kind == "chat" else 0)


def with_thinking(max_new_tokens: int) -> int:
    """Tokens that may follow a prompt where the model thinks first."""
    return max_new_tokens + EXTRA_THINKING_TOKENS


def thinkers(
    tokenizer: Any,
    prompts: Sequence[tuple[int, ...]],
    decoded: "Sequence[Decoded]",
    max_new_tokens: int,
    context: int | None,
) -> list[int]:
    """Which chat answers begin with a thinking block: they are asked again, with room for it if the context has any."""
    room = with_thinking(max_new_tokens)
    return [
        at
        for at, answer in enumerate(decoded)
        if _thinks(decode_exactly(tokenizer, answer.ids))
        and (context is None or len(prompts[at]) + room <= context)
    ]


def spoken_answers(
    tokenizer: Any,
    template: Template,
    decoded: "Sequence[Decoded]",
    max_new_tokens: int,
) -> list[Answer]:
    """What the model wrote, as answers."""
    answers = []
    for answer in decoded:
        start = tokens_before(tokenizer, answer.ids) if template.kind == "chat" else 0
        ids, log_probs = (
            answer.ids[start : start + max_new_tokens],
            answer.log_probs[start : start + max_new_tokens],
        )
        finished = answer.finished and len(answer.ids) <= start + max_new_tokens
        answers.append(
            Answer(
                "",
                ids,
                log_probs,
                "answered" if finished else "truncated",
                answer.ids[:start],
            )
        )
    return _add_texts(tokenizer, answers)


def _add_texts(tokenizer: Any, answers: Sequence[Answer]) -> list[Answer]:
    """The answers with the text of their tokens; one without text is empty."""
    texts = [
        text.strip()
        for text in decode_all_exactly(tokenizer, [answer.ids for answer in answers])
    ]
    return [
        replace(
            answer,
            text=text,
            status=answer.status if text or answer.status == "truncated" else "empty",
        )
        for answer, text in zip(answers, texts, strict=True)
    ]


def given_answers(
    tokenizer: Any, template: Template, prompts: Sequence[Prompt], texts: Sequence[str]
) -> list[Answer]:
    """Supplied answers, as the model would see each after its prompt."""
    tokens = template.answer_ids(
        tokenizer, [(prompt.text, prompt.ids) for prompt in prompts], texts
    )
    return _add_texts(tokenizer, [Answer("", ids, None, "answered") for ids in tokens])


def _thinks(text: str) -> bool:
    return text.lstrip().startswith(OPEN)


def tokens_before(tokenizer: Any, ids: tuple[int, ...]) -> int:
    """How many tokens precede the answer's first visible character; all, if a thinking block is still open."""
    closed = 0
    if _thinks(decode_exactly(tokenizer, ids)):
        closed = bisect_left(
            range(len(ids)),
            True,
            key=lambda n: CLOSE in decode_exactly(tokenizer, ids[:n]),
        )
    visible = (
        n
        for n in range(closed, len(ids))
        if decode_exactly(tokenizer, ids[closed : n + 1]).strip()
    )
    return next(visible, len(ids))
