"""The text around a question: a head and a tail that are the same for all items, as plain text or from a chat template.

What comes before the question is the same for every item, so its keys and values are computed once. A template is
plain text, made once per model; how the text becomes tokens (and never with two first tokens) is told here as well.

A chat prompt comes from the tokenizer's own template. The conversation holds one instruction and the solved examples as
earlier turns. The instruction stands in the first user turn, because not every template has a system role. The template
is rendered once, with a placeholder for the question, and split around it.

Thinking is switched off: the answer is what is probed, not what a reasoning model writes before it. Templates of
reasoning models come in four kinds. Some take a switch and write an empty thinking block themselves (Qwen3, SmolLM3),
or only its end (DeepSeek-V3.1). Some end inside an open block, for the model to go on in (DeepSeek-R1 and its distills,
QwQ): it is closed at once. Some leave it to the model to open one (the first DeepSeek-R1 templates): an empty block is
put there. The others do not speak of thinking: nothing is changed. That a tokenizer knows the tags says nothing, since
models that never think (Qwen3-Instruct-2507) share it with those that do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.answers.chat_render import TemplateRefused, render_chat
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Example:
    """A solved question of the prompt."""

    question: str
    answer: str
    subject: str


FEW_SHOT = (
    Example("What is the capital of Japan?", "Tokyo", "Japan"),
    Example("Who wrote Romeo and Juliet?", "William Shakespeare", "Romeo and Juliet"),
    Example("What is the chemical symbol of gold?", "Au", "gold"),
)
"""The examples of every prompt: a place, a person and a symbol, so that no kind of answer is favoured."""


Offsets = tuple[tuple[int, int], ...]
"""Characters [start, end) that each token covers; empty for a token that stands for no character."""


@dataclass(frozen=True)
class Template:
    """How a question is put to a model."""

    kind: str
    """`few-shot`, `zero-shot` or `chat`."""
    head: str
    """Everything before the question."""
    tail: str
    """Everything after it, up to where the answer begins."""
    answer_lead: str
    """What stands between the tail and an answer that was given elsewhere: the model itself writes it."""
    tokenizer_adds: bool
    """Whether the tokenizer puts its own special tokens around the text."""
    first_token: int | None = None
    """The token that every prompt begins with, put in front where it is not there yet."""

    def text(self, question: str) -> str:
        """The whole prompt; the question goes on one line."""
        return f"{self.head}{' '.join(question.split())}{self.tail}"

    def encode(self, tokenizer: Any, texts: Sequence[str]) -> list[tuple[tuple[int, ...], Offsets]]:
        """Tokens of each text, all of which begin as this template does, and the characters of every token."""
        if not texts:
            return []
        encoded = tokenizer(
            list(texts),
            add_special_tokens=self.tokenizer_adds,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        found = []
        for tokens, spans in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            ids, offsets = tuple(tokens), tuple(spans)
            if self.first_token is not None and ids[:1] != (self.first_token,):
                ids, offsets = (self.first_token, *ids), ((0, 0), *offsets)
            found.append((ids, offsets))
        return found

    def answer_ids(self, tokenizer: Any, text: str, ids: Sequence[int], answer: str) -> tuple[int, ...]:
        """Tokens of an answer that was given elsewhere, as they follow a prompt with this text and these tokens."""
        return self.answers_ids(tokenizer, [(text, ids)], [answer])[0]

    def answers_ids(
        self, tokenizer: Any, prompts: Sequence[tuple[str, Sequence[int]]], answers: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """The same of many prompts and answers, in one call of the tokenizer."""
        written = [self.answer_lead + answer.strip() for answer in answers]
        texts = [text + after for (text, _), after in zip(prompts, written, strict=True)]
        found = []
        for (_, ids), after, (whole, _) in zip(prompts, written, self.encode(tokenizer, texts), strict=True):
            if whole[: len(ids)] == tuple(ids):
                found.append(whole[len(ids) :])
            else:  # the prompt's last characters and the answer's first made one token: the model never sees it so
                found.append(tuple(int(token) for token in tokenizer(after, add_special_tokens=False)["input_ids"]))
        return found


FEW_SHOT_TEMPLATE = Template(
    kind="few-shot",
    head="".join(f"Question: {one.question}\nAnswer: {one.answer}\n" for one in FEW_SHOT) + "Question: ",
    tail="\nAnswer:",
    answer_lead=" ",
    tokenizer_adds=True,
)
"""Solved examples, then the question: works for every model, trained to chat or not."""
ZERO_SHOT_TEMPLATE = replace(FEW_SHOT_TEMPLATE, kind="zero-shot", head="Question: ")
"""The question alone: for models that know this form and nothing of the examples."""


OPEN, CLOSE = "<think>", "</think>"
"""Around what a reasoning model writes before its answer."""
SWITCHES: dict[str, Any] = {"enable_thinking": False, "thinking": False}
"""What templates call the switch that turns thinking off; those that have none do not look at it."""

_EMPTY_BLOCK = f"{OPEN}\n\n{CLOSE}\n\n"


def without_thinking(tail: str, source: str) -> str:
    """What a template of this source writes after the question, with an empty thinking block before the answer."""
    _, opened, inside = tail.rpartition(OPEN)
    if opened and CLOSE not in inside:
        # Line breaks that are there already are not written twice.
        return tail + ("\n\n".removeprefix(inside) if not inside.strip("\n") else "\n") + f"{CLOSE}\n\n"
    thinks = OPEN in source or CLOSE in source
    return tail + _EMPTY_BLOCK if thinks and not tail.rstrip().endswith(CLOSE) else tail


def after_thinking(text: str) -> str | None:
    """What stands after the thinking block that a text begins with; the text itself if none; None if it is open."""
    if not text.lstrip().startswith(OPEN):
        return text
    _, closed, rest = text.partition(CLOSE)
    return rest if closed else None


INSTRUCTION = "Answer every question with a name, a number or a short phrase only, not with a sentence."
"""What the model is told once, before the first example."""

# Capitals, quotes and signs: a template that changes any of them would change questions too.
_PLACEHOLDER = 'Where Is "Zq7\'s" place & why?'
_INSTEAD = "use --prompt few-shot, which needs no chat template."


def chat_template(tokenizer: Any, needs_bos: int | None) -> Template:
    """The tokenizer's chat template around a question."""
    source = _source(tokenizer)
    parts = _rendered(tokenizer, source).split(_PLACEHOLDER)
    if len(parts) != 2:
        found = "changes the question's text" if len(parts) == 1 else f"repeats the question {len(parts) - 1} times"
        raise UserError(f"The chat template of this model {found}, so that its tokens cannot be told; {_INSTEAD}")
    head, tail = parts
    if not all(text in head for text in (INSTRUCTION, *(one.answer for one in FEW_SHOT))):
        raise UserError(f"The chat template of this model leaves out earlier turns of a conversation; {_INSTEAD}")
    # A chat template writes its special tokens itself; only the first one may be left to the tokenizer.
    first = needs_bos if needs_bos is not None else _first_of(tokenizer)
    return Template("chat", head, without_thinking(tail, source), "", tokenizer_adds=False, first_token=first)


def _source(tokenizer: Any) -> str:
    """The text of the template."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(f"The tokenizer of this model has no chat template (a base model has none); {_INSTEAD}")
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:  # several templates, none of them the default
        raise UserError(f"The tokenizer of this model has no default chat template; {_INSTEAD}") from error


def _rendered(tokenizer: Any, source: str) -> str:
    turns = [{"role": "user", "content": f"{INSTRUCTION}\n\n{FEW_SHOT[0].question}"}]
    for before, after in zip(FEW_SHOT, [*(one.question for one in FEW_SHOT[1:]), _PLACEHOLDER], strict=True):
        turns += [{"role": "assistant", "content": before.answer}, {"role": "user", "content": after}]
    try:
        return render_chat(source, turns, {**tokenizer.special_tokens_map, **SWITCHES})
    except TemplateRefused as error:
        reason = str(error).rstrip(".")
        raise UserError(f"The chat template of this model cannot be used ({reason}); {_INSTEAD}") from error


def _first_of(tokenizer: Any) -> int | None:
    """The token that the tokenizer itself puts before every text, if it is the beginning-of-text token."""
    first = tokenizer("a")["input_ids"][0]
    return int(first) if first == tokenizer.bos_token_id else None
