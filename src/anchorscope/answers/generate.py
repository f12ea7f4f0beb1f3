"""The model's own answers: greedy or sampled, up to the end of the line; or the user's, where the dataset brings them.

In a conversation some models begin with a blank line, or with a thinking block although that is switched off. Both are
part of what the model sees and not of its answer, which begins at its first visible character.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.answers.prompt import Prompt
from anchorscope.answers.template import CLOSE, FEW_SHOT_TEMPLATE, OPEN, Template, after_thinking
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget, plan_batches
from anchorscope.engine.decode import Decoded, decode, decoded_lengths
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sampling import Sampling
from anchorscope.models.language_model import LanguageModel, decode_all_exactly, decode_exactly
from anchorscope.progress import Progress
from anchorscope.stats.streams import priorities

TOO_LONG = "too_long"
"""The status of a question that does not fit the model's context together with its longest answer."""
EXTRA_BLANK_TOKENS = 4
"""Blank tokens that a chat answer may begin with, beyond the longest answer."""
EXTRA_THINKING_TOKENS = 1024
"""Tokens that a thinking block may take, beyond the longest answer; an item that thinks longer, or for whose
thinking the model's context has no room, is truncated."""


@dataclass(frozen=True)
class Answer:
    """An answer to one question, as tokens."""

    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    """Log-probability of each token; None for an answer that was given elsewhere."""
    status: str
    """`answered`, `empty`, `truncated` or `too_long`; only the first is used."""
    before: tuple[int, ...] = ()
    """What the model wrote between the prompt and its answer: blank lines, a thinking block."""
    needs: int = 0
    """Tokens that prompt and answer may take, where these do not fit the model's context (`too_long`)."""


def known_answers(
    tokenizer: Any, template: Template, questions: Sequence[Question], prompts: Sequence[Prompt], max_new_tokens: int,
    context: int | None,
) -> dict[int, Answer]:  # fmt: skip
    """What can be said before any pass, by question: the answers that come with them, and which do not fit.

    A prompt has to leave room for the longest answer that may be asked for, greedy or sampled, and for the given one.
    """
    found, room = {}, max_new_tokens + (EXTRA_BLANK_TOKENS if template.kind == "chat" else 0)
    for index, (question, prompt) in enumerate(zip(questions, prompts, strict=True)):
        needs = prompt.left_out + len(prompt.ids) + room
        if question.model_answer is not None and prompt.ids:
            found[index] = given_answer(tokenizer, template, prompt, question.model_answer)
            needs = max(needs, len(prompt.ids) + len(found[index].ids))
        if context is not None and needs > context:
            found[index] = Answer((question.model_answer or "").strip(), (), None, TOO_LONG, needs=needs)
    return found


def do_not_fit(answers: Iterable[Answer], context: int | None) -> str:
    """How many questions are left out because they do not fit the model's context; empty where all fit."""
    every = list(answers)
    needs = [answer.needs for answer in every if answer.status == TOO_LONG]
    if not needs or context is None:
        return ""
    return (
        f"{len(needs):,} of {len(every):,} questions do not fit the model's context of {context:,} tokens together "
        f"with the longest answer: they are left out (the shortest of them needs {min(needs):,} tokens, the longest "
        f"{max(needs):,})"
    )


def answer_questions(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    known: Mapping[int, Answer],
    prefix: Prefix,
    budget: Budget,
    max_new_tokens: int,
    progress: Progress | None = None,
    template: Template = FEW_SHOT_TEMPLATE,
) -> list[Answer]:
    """An answer to every prompt, in order, but for those that are known; `prompts` are those of the template."""
    asked = [index for index in range(len(prompts)) if index not in known]
    speaker = _Speaker(lm, prefix, budget, max_new_tokens, progress, template)
    spoken = dict(zip(asked, speaker.answers([prompts[index].ids for index in asked]), strict=True))
    return [spoken[index] if index in spoken else known[index] for index in range(len(prompts))]


def sample_answers(
    lm: LanguageModel,
    questions: Sequence[Question],
    prompts: Sequence[Prompt],
    prefix: Prefix,
    budget: Budget,
    max_new_tokens: int,
    n_samples: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
    template: Template = FEW_SHOT_TEMPLATE,
) -> list[list[Answer]]:
    """So many sampled answers to every question, in order, whatever answer a question brings.

    What is drawn hangs on the seed, on the question's `item_id` and on the sample's number: neither other questions nor
    more samples change it.
    """
    if n_samples < 1:
        raise ValueError(f"{n_samples} samples of each answer are asked for; at least one is wanted")
    names = [question.item_id for question in questions]
    seeds = [priorities(seed, f"sampled answer {sample}", names) for sample in range(n_samples)]
    sampling = Sampling(np.stack(seeds, axis=1).reshape(-1), temperature, top_p)  # a question's samples side by side
    speaker = _Speaker(lm, prefix, budget, max_new_tokens, progress, template)
    spoken = speaker.answers([prompt.ids for prompt in prompts for _ in range(n_samples)], sampling)
    return [spoken[first : first + n_samples] for first in range(0, len(spoken), n_samples)]


@dataclass(frozen=True)
class _Speaker:
    """Lets the model answer prompts."""

    lm: LanguageModel
    prefix: Prefix
    budget: Budget
    max_new_tokens: int
    progress: Progress | None
    template: Template

    def answers(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling | None = None) -> list[Answer]:
        """An answer to each of the prompts, greedy or drawn."""
        chat = self.template.kind == "chat"
        ends = _Ends(self.lm, chat)
        decoded = self._decode(prompts, self.max_new_tokens + (EXTRA_BLANK_TOKENS if chat else 0), ends, sampling)
        if chat:  # few models think when told not to, so only theirs are asked again, with room for it
            room, context = self.max_new_tokens + EXTRA_THINKING_TOKENS, self.lm.context
            thinks = [at for at, one in enumerate(decoded) if _thinks(decode_exactly(self.lm.tokenizer, one.ids))
                      and (context is None or len(prompts[at]) + room <= context)]  # fmt: skip
            again = None if sampling is None else sampling.take(thinks)
            others = self._decode([prompts[at] for at in thinks], room, ends, again)
            for at, one in zip(thinks, others, strict=True):
                decoded[at] = one
        tokens = [_split_answer(self.lm.tokenizer, one, self.max_new_tokens, chat) for one in decoded]
        texts = decode_all_exactly(self.lm.tokenizer, [one.ids for one in tokens])
        return [one.answer(text) for one, text in zip(tokens, texts, strict=True)]

    def _decode(
        self, prompts: Sequence[tuple[int, ...]], most: int, ends: "_Ends", sampling: Sampling | None
    ) -> list[Decoded]:
        if not prompts:
            return []
        batches = plan_batches(decoded_lengths(prompts, self.prefix, most), self.budget.tokens)
        title = "answers" if sampling is None else "sampled answers"
        return decode(
            self.lm, prompts, self.prefix, batches, most, ends.is_end, self.progress, self.budget, title, sampling
        )


def given_answer(tokenizer: Any, template: Template, prompt: Prompt, text: str) -> Answer:
    """An answer that was given elsewhere, as the model would see it after the prompt."""
    ids = template.answer_ids(tokenizer, prompt.text, prompt.ids, text)
    return _AnswerTokens(ids, None, True, ()).answer(decode_exactly(tokenizer, ids))


@dataclass(frozen=True)
class _AnswerTokens:
    """An answer's tokens, not yet text."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    finished: bool
    before: tuple[int, ...]

    def answer(self, text: str) -> Answer:
        """The answer, with the text of its tokens."""
        visible = text.strip()
        status = "truncated" if not self.finished else "answered" if visible else "empty"
        return Answer(text=visible, ids=self.ids, log_probs=self.log_probs, status=status, before=self.before)


def _split_answer(tokenizer: Any, decoded: Decoded, max_tokens: int, chat: bool) -> _AnswerTokens:
    """What the model said, apart from what it wrote before."""
    start = _tokens_before(tokenizer, decoded.ids) if chat else 0
    ids, log_probs = decoded.ids[start:], decoded.log_probs[start:]
    finished = decoded.finished and len(ids) <= max_tokens
    return _AnswerTokens(ids[:max_tokens], log_probs[:max_tokens], finished, decoded.ids[:start])


def _thinks(text: str) -> bool:
    return text.lstrip().startswith(OPEN)


def _tokens_before(tokenizer: Any, ids: tuple[int, ...]) -> int:
    """How many tokens stand before the answer's first visible character; a block that is still open is all of them."""
    closed = 0
    if _thinks(decode_exactly(tokenizer, ids)):
        closed = bisect_left(range(len(ids)), True, key=lambda n: CLOSE in decode_exactly(tokenizer, ids[:n]))
    visible = (n for n in range(closed, len(ids)) if decode_exactly(tokenizer, ids[closed : n + 1]).strip())
    return next(visible, len(ids))


class _Ends:
    """Which tokens end an answer: line breaks, the model's end tokens, and special tokens, which no answer holds.

    A chat answer may begin with line breaks: one ends it only after a visible character, and none inside a thinking
    block.
    """

    def __init__(self, lm: LanguageModel, chat: bool) -> None:
        self.tokenizer, self.chat = lm.tokenizer, chat
        known = lm.model.generation_config.eos_token_id if lm.model.generation_config is not None else None
        ends = [*(known if isinstance(known, list) else [known]), lm.tokenizer.eos_token_id]
        special = [token for token, added in lm.tokenizer.added_tokens_decoder.items() if added.special]
        self.certain = {int(end) for end in [*ends, *lm.tokenizer.all_special_ids, *special] if end is not None}
        if chat:
            self.certain = {end for end in self.certain if decode_exactly(lm.tokenizer, [end]) not in (OPEN, CLOSE)}
        self.texts: dict[int, str] = {}

    def is_end(self, token: int, so_far: Sequence[int] = ()) -> bool:
        if token in self.certain:
            return True
        if token not in self.texts:
            self.texts[token] = decode_exactly(self.tokenizer, [token])
        line, has_break, _ = self.texts[token].partition("\n")
        if not has_break or not self.chat:
            return bool(has_break)
        visible = after_thinking(decode_exactly(self.tokenizer, so_far))
        return visible is not None and bool((visible + line).strip())
