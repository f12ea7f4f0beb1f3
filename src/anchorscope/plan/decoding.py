"""Passes in which the model writes, planned: answers, sampled answers, key words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anchorscope.answers.generate import CHAT, LINE, Answer, known_answers, longest_answer, with_thinking
from anchorscope.answers.template import Prompt, Template, build_prompts, prefix_length
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import MOST_AT_ONCE, plan_batches
from anchorscope.engine.decode import Sampling, decoded_lengths
from anchorscope.engine.sequences import shared_prefix_length
from anchorscope.stats.streams import priorities


@dataclass(frozen=True)
class DecodePass:
    """Prompts that the model goes on with, greedily or at random. Answers of a batch grow together."""

    title: str
    prompts: tuple[tuple[int, ...], ...]
    """Whole prompts, the prefix included."""
    prefix: tuple[int, ...]
    """Leading tokens that all prompts share."""
    max_new_tokens: int
    ending: str
    """Where a text ends, see `answers/generate.py`."""
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    sampling: Sampling | None = None
    """How tokens are drawn; greedy without."""
    items: tuple[int, ...] = ()
    """What the prompts of a shard are called in the whole pass; empty where this is the whole."""

    @property
    def n_items(self) -> int:
        """How many prompts are gone on with."""
        return sum(len(batch) for batch in self.batches)

    def shards(self) -> "list[DecodePass]":
        """One per batch."""
        return [
            replace(
                self,
                prompts=tuple(self.prompts[one] for one in batch),
                batches=(tuple(range(len(batch))),),
                sampling=None if self.sampling is None else self.sampling.take(batch),
                items=batch,
            )
            for batch in self.batches
        ]

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that each prompt takes in a batch."""
        return decoded_lengths(self.prompts, len(self.prefix), self.max_new_tokens)

    def replanned(self, tokens: int, n_layers: int) -> "DecodePass":
        """The same work in smaller batches."""
        batches = plan_batches(self.lengths(n_layers), tokens)
        return replace(self, batches=tuple(map(tuple, batches)), batch_tokens=tokens)


def plan_decoding(
    title: str,
    prompts: Sequence[tuple[int, ...]],
    prefix: tuple[int, ...],
    max_new_tokens: int,
    ending: str,
    batch_tokens: int,
    sampling: Sampling | None = None,
) -> DecodePass:
    """The pass that goes on with prompts."""
    whole = DecodePass(title, tuple(prompts), prefix, max_new_tokens, ending, (), batch_tokens, sampling)
    return whole.replanned(batch_tokens, 0)


@dataclass(frozen=True)
class AnswersPass:
    """Questions to answer, greedily up to the end of the line."""

    questions: tuple[Question, ...]
    prompts: tuple[Prompt, ...]
    """Those of questions that do not fit the model's context are empty."""
    known: Mapping[int, Answer]
    """What is not asked for: answers that questions bring, and that there is none where a question does not fit."""
    prefix: tuple[int, ...]
    """Leading tokens that all prompts share."""
    template: Template
    max_new_tokens: int
    batch_tokens: int
    tokenizer: Any
    """To make text of what the model writes; it stays with whoever plans."""
    context: int | None = None
    """How many tokens the model reads at once; None for no limit."""

    @property
    def asked(self) -> list[int]:
        """The questions that the model answers."""
        return [index for index in range(len(self.prompts)) if index not in self.known]

    def decoding(self, which: Sequence[int], thinking: bool = False) -> DecodePass:
        """The pass that answers some of the questions; with room for a thinking block where asked for."""
        return self._decoding("answers", [self.prompts[index].ids for index in which], None, thinking)

    def _decoding(
        self, title: str, prompts: Sequence[tuple[int, ...]], sampling: Sampling | None, thinking: bool
    ) -> DecodePass:
        most = with_thinking(self.max_new_tokens) if thinking else longest_answer(self.template, self.max_new_tokens)
        ending = CHAT if self.template.kind == "chat" else LINE
        return plan_decoding(title, prompts, self.prefix, most, ending, self.batch_tokens, sampling)


@dataclass(frozen=True)
class SamplesPass:
    """Questions to answer several times, each answer drawn at random; answers that they bring are not looked at.

    What is drawn hangs on the seed, on the question's `item_id` and on the sample's number: neither other questions nor
    more samples change it.
    """

    asked: AnswersPass
    """The questions, their prompts, and how long an answer may be."""
    n_samples: int
    """Answers per question."""
    seed: int
    """With the question's `item_id` and the sample's number, what each draw hangs on."""
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.n_samples < 1:
            raise ValueError(f"{self.n_samples} samples of each answer are asked for; at least one is wanted")

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """Every question's, once per sample, side by side."""
        return [prompt.ids for prompt in self.asked.prompts for _ in range(self.n_samples)]

    def decoding(self, which: Sequence[int] | None = None, thinking: bool = False) -> DecodePass:
        """The pass that draws the samples of these numbers, all where none are given."""
        names = [question.item_id for question in self.asked.questions]
        seeds = [priorities(self.seed, f"sampled answer {sample}", names) for sample in range(self.n_samples)]
        sampling = Sampling(np.stack(seeds, axis=1).reshape(-1), self.temperature, self.top_p)
        prompts = self.prompts
        if which is not None:
            prompts, sampling = [prompts[one] for one in which], sampling.take(which)
        return self.asked._decoding("sampled answers", prompts, sampling, thinking)


def plan_answers(
    questions: Sequence[Question],
    tokenizer: Any,
    template: Template,
    max_new_tokens: int,
    batch_tokens: int,
    context: int | None = None,
) -> AnswersPass:
    """The pass that answers questions; those that do not fit the model's context are left out of it."""
    prompts = build_prompts(tokenizer, questions, template, context)
    known = known_answers(tokenizer, template, questions, prompts, max_new_tokens, context)
    fitting = [prompt for prompt in prompts if prompt.ids]
    prefix = fitting[0].ids[: prefix_length(fitting)] if fitting else ()
    return AnswersPass(
        tuple(questions), tuple(prompts), known, prefix, template, max_new_tokens, batch_tokens, tokenizer, context
    )


@dataclass(frozen=True)
class ChoicesPass:
    """Prompts after which it is asked how likely a few tokens are as the next one."""

    title: str
    prompts: tuple[tuple[int, ...], ...]
    prefix: tuple[int, ...]
    """Leading tokens that all prompts share."""
    choices: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    items: tuple[int, ...] = ()
    """What the prompts of a shard are called in the whole pass; empty where this is the whole."""

    @property
    def n_items(self) -> int:
        """How many prompts are run."""
        return sum(len(batch) for batch in self.batches)

    def shards(self) -> "list[ChoicesPass]":
        """One per batch."""
        return [
            replace(
                self,
                prompts=tuple(self.prompts[one] for one in batch),
                batches=(tuple(range(len(batch))),),
                items=batch,
            )
            for batch in self.batches
        ]

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each prompt."""
        return [len(ids) - len(self.prefix) for ids in self.prompts]

    def replanned(self, tokens: int, n_layers: int) -> "ChoicesPass":
        """The same work in smaller batches."""
        batches = plan_batches(self.lengths(n_layers), min(tokens, MOST_AT_ONCE))
        return replace(self, batches=tuple(map(tuple, batches)), batch_tokens=tokens)


def plan_choices(
    title: str, prompts: Sequence[tuple[int, ...]], choices: Sequence[int], batch_tokens: int
) -> ChoicesPass:
    """The pass that asks after each prompt how likely the chosen tokens are."""
    shared = shared_prefix_length(prompts, [len(ids) - 1 for ids in prompts])
    whole = ChoicesPass(title, tuple(prompts), prompts[0][:shared], tuple(choices), (), batch_tokens)
    return whole.replanned(batch_tokens, 0)
