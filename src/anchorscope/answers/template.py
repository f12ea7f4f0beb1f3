"""The text around a question: a head and a tail that are the same for all items, as plain text or from a chat template.

A chat prompt comes from the tokenizer's own template: an instruction in the first user turn, since not every template
has a system role, and the solved examples as earlier turns. Thinking is switched off, as the answer is probed: by the
template's switch (Qwen3), by closing a block that it leaves open (DeepSeek-R1), or by an empty block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Thread
from typing import Any

from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import shared_prefix_length
from anchorscope.errors import UserError, unknown


@dataclass(frozen=True)
class Example:
    question: str
    answer: str
    subject: str


FEW_SHOT = (
    Example("What is the capital of Japan?", "Tokyo", "Japan"),
    Example("Who wrote Romeo and Juliet?", "William Shakespeare", "Romeo and Juliet"),
    Example("What is the chemical symbol of gold?", "Au", "gold"),
)
"""A place, a person and a symbol, so that no kind of answer is favoured."""
Offsets = tuple[tuple[int, int], ...]
"""Characters [start, end) of each token; empty for a special token."""
Sources = tuple[tuple[str, tuple[int, int]], ...]
"""Name and characters [start, end) of every source in a prompt: `context`, or `context[1]` … where there are several
passages; `question`; `thinking`."""
CONTEXT, THINKING = "context", "thinking"
PASSAGE, QUESTION = "Passage: ", "Question: "
"""What stands before a passage, and before a question in plain text."""


@dataclass(frozen=True)
class Template:
    kind: str
    head: str
    tail: str
    """Everything after the question, up to the answer."""
    answer_lead: str
    """What the model itself writes between the tail and its answer; added before a supplied one."""
    tokenizer_adds: bool
    """Whether the tokenizer adds its own special tokens."""
    first_token: int | None = None
    """The token that every prompt begins with, added if missing."""

    def text(self, question: str) -> str:
        return self.write(question)[0]

    def write(
        self, question: str, context: Sequence[str] = (), thinking: str | None = None
    ) -> tuple[str, Sources]:
        """A prompt with its passages and its thinking, and the characters of each source, in order."""
        sources: list[tuple[str, tuple[int, int]]] = []
        lead = QUESTION if self.head.endswith(QUESTION) else ""
        text = self.head.removesuffix(lead) if context else self.head

        def add(name: str, written: str) -> str:
            sources.append((name, (len(text), len(text) + len(written))))
            return text + written

        for number, passage in enumerate(context, 1):
            text += PASSAGE
            text = (
                add(CONTEXT if len(context) == 1 else f"{CONTEXT}[{number}]", passage)
                + "\n"
            )
        text += lead if context else ""
        text = add("question", " ".join(question.split()))
        if not thinking:
            return text + self.tail, tuple(sources)
        before, after = self._around_thinking()
        text += before
        return add(THINKING, thinking) + after, tuple(sources)

    def _around_thinking(self) -> tuple[str, str]:
        """The text before and after what is thought, in place of the tail."""
        if self.kind != "chat":
            return "\nThinking: ", self.tail
        before = (
            self.tail.rpartition(OPEN)[0]
            if OPEN in self.tail
            else self.tail.removesuffix(CLOSE)
        )
        return f"{before}{OPEN}\n", f"\n{CLOSE}\n\n"

    def ask_to_think(self, question: Question) -> str:
        """The prompt of a question up to where the model begins to think."""
        if not self.tail.rstrip().endswith(CLOSE):
            raise UserError(
                f"The chat template of this model has no {OPEN} for thinking; leave --thinking out."
            )
        return (
            self.write(question.question, question.context)[0].removesuffix(self.tail)
            + self._around_thinking()[0]
        )

    def encode(
        self, tokenizer: Any, texts: Sequence[str]
    ) -> list[tuple[tuple[int, ...], Offsets]]:
        """Tokens of each text, which begins like this template, and the characters of every token."""
        if not texts:
            return []
        encoded = tokenizer(
            list(texts),
            add_special_tokens=self.tokenizer_adds,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        results = []
        for tokens, spans in zip(
            encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            ids, offsets = tuple(tokens), tuple(spans)
            if self.first_token is not None and ids[:1] != (self.first_token,):
                ids, offsets = (self.first_token, *ids), ((0, 0), *offsets)
            results.append((ids, offsets))
        return results

    def answer_ids(
        self,
        tokenizer: Any,
        prompts: Sequence[tuple[str, Sequence[int]]],
        answers: Sequence[str],
    ) -> list[tuple[int, ...]]:
        """Tokens of supplied answers, each as it follows its prompt, given as text and tokens."""
        written = [self.answer_lead + answer.strip() for answer in answers]
        texts = [
            text + after for (text, _), after in zip(prompts, written, strict=True)
        ]
        results = []
        for (_, ids), after, (whole, _) in zip(
            prompts, written, self.encode(tokenizer, texts), strict=True
        ):
            if whole[: len(ids)] == tuple(ids):
                results.append(whole[len(ids) :])
            else:  # the prompt's last characters and the answer's first made one token: the model never sees it so
                results.append(
                    tuple(
                        int(token)
                        for token in tokenizer(after, add_special_tokens=False)[
                            "input_ids"
                        ]
                    )
                )
        return results


FEW_SHOT_TEMPLATE = Template(
    kind="few-shot",
    head="".join(
        f"Question: {example.question}\nAnswer: {example.answer}\n"
        for example in FEW_SHOT
    )
    + "Question: ",
    tail="\nAnswer:",
    answer_lead=" ",
    tokenizer_adds=True,
)
ZERO_SHOT_TEMPLATE = replace(FEW_SHOT_TEMPLATE, kind="zero-shot", head="Question: ")

OPEN, CLOSE = "<think>", "</think>"
"""Around what a reasoning model writes before its answer."""
SWITCHES: dict[str, Any] = {"enable_thinking": False, "thinking": False}
"""Template variables that turn thinking off; templates without them ignore them."""

_EMPTY_BLOCK = f"{OPEN}\n\n{CLOSE}\n\n"


def without_thinking(tail: str, source: str) -> str:
    """The text after the question, with an empty thinking block before the answer."""
    _, opened, inside = tail.rpartition(OPEN)
    if opened and CLOSE not in inside:
        # Line breaks that are there already are not written twice.
        return (
            tail
            + ("\n\n".removeprefix(inside) if not inside.strip("\n") else "\n")
            + f"{CLOSE}\n\n"
        )
    thinks = OPEN in source or CLOSE in source
    return tail + _EMPTY_BLOCK if thinks and not tail.rstrip().endswith(CLOSE) else tail


def after_thinking(text: str) -> str | None:
    """The text after its leading thinking block; the text itself if none; None if the block is open."""
    if not text.lstrip().startswith(OPEN):
        return text
    _, closed, rest = text.partition(CLOSE)
    return rest if closed else None


INSTRUCTION = "Answer every question with a name, a number or a short phrase only, not with a sentence."
# Capitals, quotes and signs: a template that changes any of them would change questions too.
_PLACEHOLDER = 'Where Is "Zq7\'s" place & why?'
_INSTEAD = "use --prompt few-shot, which needs no chat template."
SECONDS = 10
"""Time limit for rendering a chat template, which normally takes milliseconds."""
# What a template's clock shows, Llama's own default: the same recipe asks the same tomorrow.
_CLOCK = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}\n"


class TemplateRefused(Exception):
    """Why a chat template gives no text."""


def render_chat(
    source: str, turns: Sequence[Mapping[str, str]], variables: Mapping[str, Any]
) -> str:
    """The turns rendered by the template, in transformers' sandbox, up to the model's turn."""
    outcome: list[str | BaseException] = []

    def render() -> None:
        from transformers.utils.chat_template_utils import (
            render_jinja_template,
        )  # only here: it takes a second

        dated = _CLOCK + source if "strftime_now" in source else source
        try:
            texts, _ = render_jinja_template(
                [turns], chat_template=dated, add_generation_prompt=True, **variables
            )
            outcome.append(texts[0])
        except BaseException as error:  # whatever a template makes jinja2 raise
            outcome.append(error)

    thread = Thread(target=render, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not outcome:
        raise TemplateRefused(f"it takes more than {SECONDS} seconds")
    if isinstance(outcome[0], str):
        return outcome[0]
    reason = str(outcome[0]).strip() or type(outcome[0]).__name__
    raise TemplateRefused(reason.splitlines()[0][:200])


def chat_template(tokenizer: Any, needs_bos: int | None) -> Template:
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"The tokenizer of this model has no chat template (a base model has none); {_INSTEAD}"
        )
    try:
        source = str(tokenizer.get_chat_template())
    except ValueError as error:  # several templates, none of them the default
        raise UserError(
            f"The tokenizer of this model has no default chat template; {_INSTEAD}"
        ) from error
    parts = _render_prompt(tokenizer, source).split(_PLACEHOLDER)
    if len(parts) != 2:
        change = (
            "changes the question's text"
            if len(parts) == 1
            else f"repeats the question {len(parts) - 1} times"
        )
        raise UserError(
            f"The chat template of this model {change}, so its tokens cannot be found; {_INSTEAD}"
        )
    head, tail = parts
    if not all(
        text in head
        for text in (INSTRUCTION, *(example.answer for example in FEW_SHOT))
    ):
        raise UserError(
            f"The chat template of this model leaves out earlier turns of a conversation; {_INSTEAD}"
        )
    # A chat template writes its special tokens itself; only the first one may be left to the tokenizer.
    first = needs_bos
    if (
        first is None
        and (token := tokenizer("a")["input_ids"][0]) == tokenizer.bos_token_id
    ):
        first = int(token)
    return Template(
        "chat",
        head,
        without_thinking(tail, source),
        "",
        tokenizer_adds=False,
        first_token=first,
    )


def _render_prompt(tokenizer: Any, source: str) -> str:
    turns = [{"role": "user", "content": f"{INSTRUCTION}\n\n{FEW_SHOT[0].question}"}]
    for before, after in zip(
        FEW_SHOT,
        [*(example.question for example in FEW_SHOT[1:]), _PLACEHOLDER],
        strict=True,
    ):
        turns += [
            {"role": "assistant", "content": before.answer},
            {"role": "user", "content": after},
        ]
    try:
        return render_chat(source, turns, {**tokenizer.special_tokens_map, **SWITCHES})
    except TemplateRefused as error:
        reason = str(error).rstrip(".")
        raise UserError(
            f"The chat template of this model cannot be used ({reason}); {_INSTEAD}"
        ) from error


PROMPTS = ("few-shot", "zero-shot", "chat")
"""How a question is put: plain text after solved examples or without any, or a chat template."""


@dataclass(frozen=True)
class Prompt:
    text: str
    ids: tuple[int, ...]
    offsets: Offsets
    """Characters of `text` that each token covers."""
    question_start: int
    """Where the question begins in `text`."""
    left_out: int = 0
    """Number of tokens of a prompt that exceeds the context; nothing else of it is kept."""
    sources: Sources = ()

    @cached_property
    def own_start(self) -> int:
        """The first token with a character of a source: passages, which come first, or the question."""
        first = self.sources[0][1][0] if self.sources else self.question_start
        return next(
            (index for index, (_, end) in enumerate(self.offsets) if end > first),
            len(self.ids),
        )


def make_template(kind: str, tokenizer: Any, needs_bos: int | None = None) -> Template:
    """The template of one kind for one model; `needs_bos` is the token that its prompts must begin with."""
    if kind not in PROMPTS:
        raise unknown("prompt", kind, PROMPTS)
    if kind == "chat":
        return chat_template(tokenizer, needs_bos)
    return replace(
        ZERO_SHOT_TEMPLATE if kind == "zero-shot" else FEW_SHOT_TEMPLATE,
        first_token=needs_bos,
    )


def build_prompts(
    tokenizer: Any,
    questions: Sequence[Question],
    template: Template = FEW_SHOT_TEMPLATE,
    context: int | None = None,
) -> list[Prompt]:
    """The prompt of each question, up to its answer; empty if it exceeds the context."""
    written = [
        template.write(asked.question, asked.context, asked.thinking)
        for asked in questions
    ]
    encoded, prompts = template.encode(tokenizer, [text for text, _ in written]), []
    for (text, sources), (ids, offsets) in zip(written, encoded, strict=True):
        if context is not None and len(ids) > context:
            prompts.append(Prompt("", (), (), 0, left_out=len(ids)))
        else:
            prompts.append(
                Prompt(
                    text, ids, offsets, dict(sources)["question"][0], sources=sources
                )
            )
    return prompts


def prefix_length(prompts: Sequence[Prompt]) -> int:
    """How many leading tokens all prompts share, none of which touches the question."""
    return shared_prefix_length(
        [prompt.ids for prompt in prompts], [prompt.own_start for prompt in prompts]
    )


def decode_exactly(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of token ids without tidied spaces, which would move later characters."""
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def decode_all_exactly(tokenizer: Any, sequences: Sequence[Sequence[int]]) -> list[str]:
    """The texts of many sequences, in one call."""
    lists = [list(ids) for ids in sequences]
    return (
        list(tokenizer.batch_decode(lists, clean_up_tokenization_spaces=False))
        if lists
        else []
    )


EXAMPLE_SETS = (
    FEW_SHOT,
    (
        Example("In which country is the Eiffel Tower?", "France", "Eiffel Tower"),
        Example("Who painted the Mona Lisa?", "Leonardo da Vinci", "Mona Lisa"),
        Example("How many legs does a spider have?", "8", "spider"),
    ),
    (
        Example("What is the longest river in Africa?", "Nile", "Africa"),
        Example(
            "Who composed The Four Seasons?", "Antonio Vivaldi", "The Four Seasons"
        ),
        Example("What colour is a ruby?", "Red", "ruby"),
    ),
    (
        Example("Which ocean lies west of Portugal?", "Atlantic Ocean", "Portugal"),
        Example(
            "Who formulated the theory of relativity?",
            "Albert Einstein",
            "theory of relativity",
        ),
        Example(
            "What is the freezing point of water in degrees Celsius?", "0", "water"
        ),
    ),
)
"""A place, a person and something short each."""


def split_head(template: Template) -> tuple[str, list[str]] | None:
    """The text before the solved examples, and each of these up to the next; None if the head has none."""
    starts = [template.head.find(example.question) for example in FEW_SHOT]
    if -1 in starts:
        return None
    ends = [*starts[1:], len(template.head)]
    return template.head[: starts[0]], [
        template.head[start:end] for start, end in zip(starts, ends, strict=True)
    ]


def with_examples(template: Template, examples: Sequence[Example]) -> Template:
    """The template with these examples instead of its own, if it has any."""
    parts = split_head(template)
    if parts is None:
        return template
    shown = [  # only what follows the question is searched for its answer: the new question may name it
        other.question
        + part.removeprefix(own.question).replace(own.answer, other.answer, 1)
        for part, own, other in zip(parts[1], FEW_SHOT, examples, strict=True)
    ]
    return replace(template, head=parts[0] + "".join(shown))
