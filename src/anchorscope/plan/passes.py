"""A pass over the items, planned: plain data that can be pickled and run by whoever owns the model.

A pass is cut into shards, each with its share of the batches; a worker runs a shard and hands back a part; parts are
merged by item. The batches do not depend on the number of shards, so that the numbers do not either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.generate import Answer, known_answers
from anchorscope.answers.prompt import Prompt, build_prompts, prefix_length
from anchorscope.answers.template import Template
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import MOST_AT_ONCE, plan_batches
from anchorscope.engine.rows import tokens_of
from anchorscope.engine.sequences import CLEAN, TokenSequence, Variant, shared_prefix_length
from anchorscope.probes.crossfit import ProbeSet

Place = tuple[int, int]
"""(position, site) of states, as indices."""


@dataclass(frozen=True)
class OutOfFoldProbes:
    """Probes that states are scored with as they come, and which fold's probes score which sequence."""

    sets: tuple[tuple[ProbeSet, ...], ...]
    """[position][site]."""
    folds: Int[ndarray, " sequence"]
    """The fold whose probes never saw the sequence's group."""
    only: tuple[int, int, int] | None = None
    """(position, site, probe) of the log-odds that are wanted; None for all."""


@dataclass(frozen=True)
class StatesPass:
    """Token sequences to run through the blocks, clean or changed, and what is to be kept of their states."""

    title: str
    sequences: tuple[TokenSequence, ...]
    prefix: tuple[int, ...]
    """Leading tokens that all sequences share: their keys and values are computed once."""
    variants: tuple[Variant, ...]
    """How each sequence is run; all of them together."""
    batches: tuple[tuple[int, ...], ...]
    """The sequences that run together."""
    batch_tokens: int
    """How many tokens run together."""
    compiled: bool = False
    probes: OutOfFoldProbes | None = None
    """Score the states with these."""
    keep: tuple[tuple[Place, ...], ...] = ()
    """Per variant, where states are kept; nothing where it is shorter than the variants."""
    log_probs: bool = False
    """Whether the log-probabilities of the answers' tokens are wanted (of the first variant, the clean run)."""
    answer_stats: bool = False
    """Whether the statistics of the answers' tokens are wanted, of every variant; the prefix has to end before the
    token that predicts an answer's first (`before_answers`)."""
    n_layers: int | None = None
    """How many blocks are run, the first ones; None for all. States then have so many layers, and neither answers nor
    probes of all layers can be scored."""

    def shards(self, number: int) -> "list[StatesPass]":
        """The same work in at most so many shards: whole batches, dealt out in turn."""
        parts = [self.batches[first::number] for first in range(min(number, len(self.batches)))]
        return [replace(self, batches=batches) for batches in parts] or [self]

    @property
    def n_items(self) -> int:
        """How many sequences are run."""
        return sum(len(batch) for batch in self.batches)


@dataclass(frozen=True)
class Planner:
    """What planning has to know of the model and the machine; kept by the run, so that planning needs no model."""

    n_layers: int
    n_heads: int
    windows: tuple[int | None, ...]
    """How far back each layer's attention reaches; None for everything."""
    batch_tokens: int
    """How many tokens run together."""
    compile_from: int | None = None
    """Tokens from which on compiling the blocks repays its time; None where they cannot be compiled."""
    context: int | None = None
    """How many tokens the model reads at once; None for no limit."""

    def states(
        self,
        title: str,
        sequences: Sequence[TokenSequence],
        prefix: tuple[int, ...],
        variants: Sequence[Variant] = (CLEAN,),
        order: Sequence[int] | None = None,
        compiled: bool = False,
    ) -> StatesPass:
        """A pass with its batches: by length, as many as the budget allows; `order` breaks ties between equal ones."""
        lengths = [
            tokens_of(sequence, item, variants, len(prefix), self.n_layers) for item, sequence in enumerate(sequences)
        ]
        run = [item for item in (order or range(len(lengths))) if lengths[item]]
        batches = plan_batches(lengths, min(self.batch_tokens, MOST_AT_ONCE), run)
        return StatesPass(
            title, tuple(sequences), prefix, tuple(variants), tuple(map(tuple, batches)), self.batch_tokens, compiled
        )

    def worth_compiling(self, tokens: int) -> bool:
        """Whether compiled blocks repay the time that compiling takes, for so many tokens to come."""
        return self.compile_from is not None and tokens >= self.compile_from


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

    def shards(self, number: int) -> "list[AnswersPass]":
        """The same work in one shard: an answer's batch shrinks while it grows, so that its neighbours matter."""
        return [self]


@dataclass(frozen=True)
class SamplesPass:
    """Questions to answer several times, each answer drawn at random; answers that they bring are not looked at."""

    asked: AnswersPass
    """The questions, their prompts, and how long an answer may be."""
    n_samples: int
    """Answers per question."""
    seed: int
    """With the question's `item_id` and the sample's number, what each draw hangs on."""
    temperature: float = 1.0
    top_p: float = 1.0

    def shards(self, number: int) -> "list[SamplesPass]":
        """The same work in one shard, as for greedy answers."""
        return [self]


def plan_answers(
    questions: Sequence[Question], tokenizer: Any, template: Template, max_new_tokens: int, batch_tokens: int,
    context: int | None = None,
) -> AnswersPass:  # fmt: skip
    """The pass that answers questions; those that do not fit the model's context are left out of it."""
    prompts = build_prompts(tokenizer, questions, template, context)
    known = known_answers(tokenizer, template, questions, prompts, max_new_tokens, context)
    fitting = [prompt for prompt in prompts if prompt.ids]
    prefix = fitting[0].ids[: prefix_length(fitting)] if fitting else ()
    return AnswersPass(tuple(questions), tuple(prompts), known, prefix, template, max_new_tokens, batch_tokens)


def shared_tokens(prefix: Sequence[int], sequences: Sequence[TokenSequence]) -> tuple[int, ...]:
    """The leading tokens of a prefix that all of these sequences begin with, none of which is read."""
    ids = [(*prefix, -1), *(one.ids for one in sequences)]  # of the prefix itself all tokens may be shared
    limits = [len(prefix), *(min(one.answer_start, *one.read_at) for one in sequences)]
    return tuple(prefix[: shared_prefix_length(ids, limits)])


def before_answers(prefix: tuple[int, ...], sequences: Sequence[TokenSequence]) -> tuple[int, ...]:
    """The part of a shared beginning that leaves every token to be run that predicts one of an answer's tokens."""
    return prefix[: max(0, min(one.answer_start for one in sequences) - 1)]


@dataclass(frozen=True)
class AttentionPass:
    """Sequences of whose tokens it is asked how much attention they receive in the clean run."""

    clean: StatesPass
    """The clean run of all; its states are not kept."""
    edges: str
    """Which later tokens count: all, or where edges are `direct` the answer's own."""

    def shards(self, number: int) -> "list[AttentionPass]":
        """The same work in at most so many shards."""
        return [replace(self, clean=part) for part in self.clean.shards(number)]


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

    def shards(self, number: int) -> "list[ChoicesPass]":
        """The same work in at most so many shards: whole batches, dealt out in turn."""
        parts = [self.batches[first::number] for first in range(min(number, len(self.batches)))]
        return [replace(self, batches=batches) for batches in parts] or [self]


def plan_choices(
    title: str, prompts: Sequence[tuple[int, ...]], choices: Sequence[int], batch_tokens: int
) -> ChoicesPass:
    """The pass that asks after each prompt how likely the chosen tokens are."""
    shared = shared_prefix_length(prompts, [len(ids) - 1 for ids in prompts])
    lengths = [len(ids) - shared for ids in prompts]
    batches = plan_batches(lengths, min(batch_tokens, MOST_AT_ONCE), range(len(prompts)))
    return ChoicesPass(
        title, tuple(prompts), prompts[0][:shared], tuple(choices), tuple(map(tuple, batches)), batch_tokens
    )


@dataclass(frozen=True)
class SaliencyPass:
    """Sequences to go back through, from a probe's log-odds to the attention weights."""

    sequences: tuple[TokenSequence, ...]
    prefix: tuple[int, ...]
    keys: dict[str, tuple[tuple[int, ...], ...]]
    """Sets of positions whose attention is looked at, item by item."""
    site: str
    """Where the probe reads."""
    layers: tuple[int, ...]
    """The layer that each item's probe reads."""
    weight: Float[Tensor, "item d_model"]
    bias: Float[Tensor, " item"]
    batch_tokens: int
    title: str = "saliency"

    def shards(self, number: int) -> "list[SaliencyPass]":
        """The same work in one shard: batches are planned by the memory that gradients take."""
        return [self]
