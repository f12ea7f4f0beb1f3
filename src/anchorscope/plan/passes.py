"""Passes over the items, planned: plain data that can be sent to the owner of the model.

A shard is one planned batch with what it needs; a worker runs a shard and returns a part; parts are merged by item.
Numbers depend on what runs together, so a batch is never divided: the bits are the same, whichever worker runs it.
Where memory runs out, the whole pass is planned again with half the tokens.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.generate import (
    CHAT,
    LINE,
    TEXT,
    Answer,
    known_answers,
    longest_answer,
    with_thinking,
)
from anchorscope.answers.template import (
    CLOSE,
    Prompt,
    Template,
    build_prompts,
    prefix_length,
)
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import (
    MOST_AT_ONCE,
    MemoryFacts,
    compile_threshold,
    memory_facts,
    plan_batches,
)
from anchorscope.engine.decode import Sampling, decoded_lengths
from anchorscope.engine.rows import tokens_of
from anchorscope.engine.sequences import (
    CLEAN,
    TokenSequence,
    Variant,
    shared_prefix_length,
)
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import has_room_for_twin
from anchorscope.plan.state_files import StateRows
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.stats.streams import priorities

P = TypeVar("P", bound="DecodePass | ChoicesPass")
Place = tuple[int, int]
"""(position, site) of states, as indices."""


@dataclass(frozen=True)
class OutOfFoldProbes:
    """Probes that states are scored with as they come, and which fold's probes score which sequence."""

    sets: tuple[tuple[ProbeSet, ...], ...]
    folds: Int[ndarray, " sequence"]
    """The fold whose probes never saw the sequence's group."""
    only: Place | None = None
    """Where log-odds are wanted; None for everywhere."""

    def take(self, sequences: Sequence[int]) -> "OutOfFoldProbes":
        return replace(self, folds=self.folds[list(sequences)])


class _Batched:
    batches: tuple[tuple[int, ...], ...]

    @property
    def n_items(self) -> int:
        return sum(len(batch) for batch in self.batches)


@dataclass(frozen=True)
class StatesPass(_Batched):
    """Token sequences to run through the blocks, clean or changed, and what is to be kept of their states."""

    title: str
    sequences: tuple[TokenSequence, ...]
    prefix: tuple[int, ...]
    """Leading tokens that all sequences share: their keys and values are computed once."""
    variants: tuple[Variant, ...]
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    compiled: bool = False
    probes: OutOfFoldProbes | None = None
    keep: tuple[tuple[Place, ...], ...] = ()
    """Per variant, where states are kept; none for variants beyond its end."""
    log_probs: bool = False
    """Whether the log-probabilities of the answers' tokens are wanted (of the first variant, the clean run)."""
    answer_stats: bool = False
    """Whether the statistics of the answers' tokens are wanted, of every variant (see `before_answers`)."""
    n_layers: int | None = None
    """How many blocks are run, the first ones; None for all."""
    attention: str | None = None
    """Which later tokens count (`edges`) in the attention that tokens receive, in a pass without cuts, or `PREVIOUS`;
    else None."""
    random_weights: bool = False
    """Whether weights of the model's shape that were drawn at random take the place of its own."""
    items: tuple[int, ...] = ()
    """What the sequences of a shard are called in the whole pass; empty where this is the whole."""
    into: tuple[StateRows | None, ...] = ()
    """Per variant, the file that kept states are written to; where there is none, they are handed back."""

    def shards(self) -> "list[StatesPass]":
        """One per batch, with its own sequences and their donors; itself if it runs nothing."""
        return [self._shard(batch) for batch in self.batches] or [self]

    def run_by(self, variant: int) -> list[int]:
        """The sequences that a variant runs, in order."""
        runs = self.variants[variant].runs
        return sorted(item for batch in self.batches for item in batch if runs(item))

    def writing_shards(
        self, folder: Path, d_model: int, dtype: str, n_layers: int
    ) -> "list[StatesPass]":
        """Shards that write the states which are kept to files in a folder."""
        files: list[StateRows | None] = []
        for variant, places in enumerate(self.keep):
            rows = np.array(self.run_by(variant), dtype=np.int64)
            shape = (len(places), self.n_layers or n_layers, len(rows), d_model)
            file = (
                StateRows(str(folder / uuid.uuid4().hex), dtype, shape, rows)
                if len(places) and len(rows)
                else None
            )
            if file is not None:
                file.create()
            files.append(file)

        def rows_of(shard: StatesPass, variant: int, file: StateRows) -> StateRows:
            names = [shard.items[item] for item in shard.run_by(variant)]
            return file.take(np.searchsorted(file.rows, names))

        return [
            replace(
                shard,
                into=tuple(
                    file and rows_of(shard, at, file) for at, file in enumerate(files)
                ),
            )
            for shard in self.shards()
        ]

    def _shard(self, batch: tuple[int, ...]) -> "StatesPass":
        donors = {
            variant.patches[item].donor
            for variant in self.variants
            if variant.patches
            for item in batch
            if variant.runs(item)
        }
        # in the order of the whole: rows of a batch stand as they do there
        own = sorted({*batch, *donors})
        index_of = {item: index for index, item in enumerate(own)}
        return replace(
            self,
            sequences=tuple(self.sequences[item] for item in own),
            variants=tuple(variant.take(index_of, batch) for variant in self.variants),
            batches=(tuple(index_of[item] for item in batch),),
            probes=None if self.probes is None else self.probes.take(own),
            items=tuple(own),
        )

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each sequence, in a model with that many layers."""
        return [
            tokens_of(sequence, item, self.variants, len(self.prefix), n_layers)
            for item, sequence in enumerate(self.sequences)
        ]

    def replanned(self, tokens: int, n_layers: int) -> "StatesPass":
        order = [item for batch in self.batches for item in batch]
        return replace(
            self,
            batches=_batches(self.lengths(n_layers), tokens, order),
            batch_tokens=tokens,
        )


def _batches(
    lengths: Sequence[int], tokens: int, order: Sequence[int] | None = None
) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, plan_batches(lengths, min(tokens, MOST_AT_ONCE), order)))


@dataclass(frozen=True)
class Planner:
    """What planning has to know of the model and the machine, so that it needs no model."""

    n_layers: int
    n_heads: int
    windows: tuple[int | None, ...]
    """How far back each layer's attention reaches; None for everything."""
    batch_tokens: int
    compile_from: int | None = None
    """Tokens from which compiling the blocks repays its time; None if they can't be compiled."""
    context: int | None = None
    memory: MemoryFacts | None = None
    """For passes with gradients; None if only `batch_tokens` counts."""
    has_room_for_twin: bool = True
    """Whether random weights of the same shape fit beside the model's own."""

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
        whole = StatesPass(
            title,
            tuple(sequences),
            prefix,
            tuple(variants),
            (),
            self.batch_tokens,
            compiled,
        )
        lengths = whole.lengths(self.n_layers)
        run = [item for item in (order or range(len(lengths))) if lengths[item]]
        return replace(whole, batches=_batches(lengths, self.batch_tokens, run))


def shared_tokens(sequences: Sequence[TokenSequence]) -> tuple[int, ...]:
    """The leading tokens that all of these sequences begin with, before an answer begins or a state is read."""
    limits = [min(sequence.answer_start, *sequence.read_at) for sequence in sequences]
    return tuple(
        sequences[0].ids[
            : shared_prefix_length([sequence.ids for sequence in sequences], limits)
        ]
    )


def before_answers(
    prefix: tuple[int, ...], sequences: Sequence[TokenSequence]
) -> tuple[int, ...]:
    """The part of a shared beginning before every token that predicts an answer token."""
    return prefix[: max(0, min(sequence.answer_start for sequence in sequences) - 1)]


def planner_for(lm: LanguageModel, batch_tokens: int | None = None) -> Planner:
    """The planner of a model, with as many tokens together as its memory suggests, or as are asked for."""
    return Planner(
        n_layers=lm.n_layers,
        n_heads=lm.n_heads,
        windows=tuple(lm.sliding_window(layer) for layer in range(lm.n_layers)),
        batch_tokens=memory_facts(lm).tokens if batch_tokens is None else batch_tokens,
        compile_from=compile_threshold(lm),
        context=lm.context,
        memory=memory_facts(lm),
        has_room_for_twin=has_room_for_twin(lm),
    )


@dataclass(frozen=True)
class SaliencyPass(_Batched):
    """Sequences to go back through, from a probe's log-odds to the attention weights."""

    sequences: tuple[TokenSequence, ...]
    prefix: tuple[int, ...]
    keys: dict[str, tuple[tuple[int, ...], ...]]
    """Sets of positions whose attention counts, item by item."""
    site: str
    layers: tuple[int, ...]
    weight: Float[Tensor, "item d_model"]
    bias: Float[Tensor, " item"]
    batches: tuple[tuple[int, ...], ...] = ()
    batch_tokens: int = 0
    title: str = "saliency"
    items: tuple[int, ...] = ()

    def shards(self) -> "list[SaliencyPass]":
        return [self._shard(batch) for batch in self.batches]

    def _shard(self, batch: tuple[int, ...]) -> "SaliencyPass":
        own = list(batch)
        return replace(
            self,
            sequences=tuple(self.sequences[item] for item in own),
            keys={
                name: tuple(sets[item] for item in own)
                for name, sets in self.keys.items()
            },
            layers=tuple(self.layers[item] for item in own),
            weight=self.weight[own],
            bias=self.bias[own],
            batches=(tuple(range(len(own))),),
            items=batch,
        )

    def lengths(self, n_layers: int) -> list[int]:
        return [len(sequence.ids) - len(self.prefix) for sequence in self.sequences]

    def replanned(self, tokens: int, n_layers: int) -> "SaliencyPass":
        """The same work in smaller batches; items that end at the same layer run together."""
        lengths, at_once = self.lengths(n_layers), min(tokens, MOST_AT_ONCE)
        batches = [
            tuple(batch)
            for level in sorted(set(self.layers), reverse=True)
            for batch in plan_batches(
                lengths,
                at_once,
                [at for at, layer in enumerate(self.layers) if layer == level],
            )
        ]
        return replace(self, batches=tuple(batches), batch_tokens=tokens)


def plan_saliency(
    planner: Planner,
    sequences: Sequence[TokenSequence],
    prefix: tuple[int, ...],
    keys: dict[str, tuple[tuple[int, ...], ...]],
    site: str,
    layers: Sequence[int],
    weight: Float[Tensor, "item d_model"],
    bias: Float[Tensor, " item"],
) -> SaliencyPass:
    """The pass, with as many tokens together as the budget and memory with gradients allow."""
    whole = SaliencyPass(
        tuple(sequences), prefix, keys, site, tuple(layers), weight, bias
    )
    tokens = planner.batch_tokens
    if planner.memory is not None:
        longest = max(len(sequence.ids) for sequence in sequences)
        tokens = min(
            tokens,
            planner.memory.tokens_with_gradients(
                max(layers) + 1, longest - len(prefix), longest
            ),
        )
    return whole.replanned(tokens, planner.n_layers)


@dataclass(frozen=True)
class DecodePass(_Batched):
    """Prompts that the model goes on with, greedily or at random. Answers of a batch grow together."""

    title: str
    prompts: tuple[tuple[int, ...], ...]
    prefix: tuple[int, ...]
    max_new_tokens: int
    ending: str
    """Where a text ends, see `answers/generate.py`."""
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    sampling: Sampling | None = None
    items: tuple[int, ...] = ()

    def shards(self) -> "list[DecodePass]":
        sampling = self.sampling
        return [
            replace(
                _prompt_shard(self, batch),
                sampling=None if sampling is None else sampling.take(batch),
            )
            for batch in self.batches
        ]

    def lengths(self, n_layers: int) -> list[int]:
        return decoded_lengths(self.prompts, len(self.prefix), self.max_new_tokens)

    def replanned(self, tokens: int, n_layers: int) -> "DecodePass":
        batches = plan_batches(self.lengths(n_layers), tokens)
        return replace(self, batches=tuple(map(tuple, batches)), batch_tokens=tokens)


def _prompt_shard(work: P, batch: tuple[int, ...]) -> P:
    prompts = tuple(work.prompts[index] for index in batch)
    return replace(
        work, prompts=prompts, batches=(tuple(range(len(batch))),), items=batch
    )


def plan_decoding(
    title: str,
    prompts: Sequence[tuple[int, ...]],
    prefix: tuple[int, ...],
    max_new_tokens: int,
    ending: str,
    batch_tokens: int,
    sampling: Sampling | None = None,
) -> DecodePass:
    whole = DecodePass(
        title,
        tuple(prompts),
        prefix,
        max_new_tokens,
        ending,
        (),
        batch_tokens,
        sampling,
    )
    return whole.replanned(batch_tokens, 0)


@dataclass(frozen=True)
class AnswersPass:
    """Questions to answer, up to the end of the line."""

    questions: tuple[Question, ...]
    prompts: tuple[Prompt, ...]
    """Those of questions that do not fit the model's context are empty."""
    known: Mapping[int, Answer]
    """Answers that aren't asked for: supplied ones, and empty ones where a question doesn't fit."""
    prefix: tuple[int, ...]
    template: Template
    max_new_tokens: int
    batch_tokens: int
    tokenizer: Any
    """Decodes what the model writes; stays with the planner."""
    context: int | None = None
    sampling: Sampling | None = None
    """How each prompt's answer is drawn; None for greedy ones."""

    @property
    def asked(self) -> list[int]:
        return [index for index in range(len(self.prompts)) if index not in self.known]

    def sampled(self, n_samples: int, seed: int) -> "AnswersPass":
        """Every question this many times in turn, answered at random, supplied answers too; draws depend on seed,
        `item_id` and the sample's number alone."""
        names = [question.item_id for question in self.questions]
        seeds = [
            priorities(seed, f"sampled answer {sample}", names)
            for sample in range(n_samples)
        ]
        sampling = Sampling(np.stack(seeds, axis=1).reshape(-1))
        questions = tuple(
            question for question in self.questions for _ in range(n_samples)
        )
        prompts = tuple(prompt for prompt in self.prompts for _ in range(n_samples))
        return replace(
            self, questions=questions, prompts=prompts, known={}, sampling=sampling
        )

    def decoding(self, which: Sequence[int], thinking: bool = False) -> DecodePass:
        """The pass that answers some of the questions; with room for a thinking block where asked for."""
        most = (
            with_thinking(self.max_new_tokens)
            if thinking
            else longest_answer(self.template, self.max_new_tokens)
        )
        ending = CHAT if self.template.kind == "chat" else LINE
        sampling = None if self.sampling is None else self.sampling.take(which)
        title = "answers" if sampling is None else "sampled answers"
        prompts = [self.prompts[index].ids for index in which]
        return plan_decoding(
            title, prompts, self.prefix, most, ending, self.batch_tokens, sampling
        )


def plan_answers(
    questions: Sequence[Question],
    tokenizer: Any,
    template: Template,
    max_new_tokens: int,
    batch_tokens: int,
    context: int | None = None,
) -> AnswersPass:
    """The pass that answers questions; those that don't fit the model's context are left out."""
    prompts = build_prompts(tokenizer, questions, template, context)
    answers = known_answers(
        tokenizer, template, questions, prompts, max_new_tokens, context
    )
    fitting = [prompt for prompt in prompts if prompt.ids]
    prefix = fitting[0].ids[: prefix_length(fitting)] if fitting else ()
    return AnswersPass(
        tuple(questions),
        tuple(prompts),
        answers,
        prefix,
        template,
        max_new_tokens,
        batch_tokens,
        tokenizer,
        context,
    )


def plan_thinking(
    questions: Sequence[Question],
    tokenizer: Any,
    template: Template,
    max_tokens: int,
    batch_tokens: int,
) -> DecodePass:
    """The pass in which the model thinks about questions, and goes on to its answer."""
    encoded = template.encode(
        tokenizer, [template.ask_to_think(question) for question in questions]
    )
    prompts = [ids for ids, _ in encoded]
    shared = shared_prefix_length(prompts, [len(ids) - 1 for ids in prompts])
    return plan_decoding(
        "thinking", prompts, prompts[0][:shared], max_tokens, TEXT, batch_tokens
    )


def with_thinking_of(
    questions: Sequence[Question], texts: Sequence[str]
) -> list[Question]:
    """The questions with what the model thought, from all that it wrote; without those whose thinking never closes."""
    parts = [text.partition(CLOSE) for text in texts]
    return [
        replace(question, thinking=thought.strip() or None)
        for question, (thought, closed, _) in zip(questions, parts, strict=True)
        if closed
    ]


@dataclass(frozen=True)
class ChoicesPass(_Batched):
    """Prompts after which the log-probabilities of a few next tokens are wanted."""

    title: str
    prompts: tuple[tuple[int, ...], ...]
    prefix: tuple[int, ...]
    choices: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    batch_tokens: int
    items: tuple[int, ...] = ()

    def shards(self) -> "list[ChoicesPass]":
        return [_prompt_shard(self, batch) for batch in self.batches]

    def lengths(self, n_layers: int) -> list[int]:
        return [len(ids) - len(self.prefix) for ids in self.prompts]

    def replanned(self, tokens: int, n_layers: int) -> "ChoicesPass":
        return replace(
            self, batches=_batches(self.lengths(n_layers), tokens), batch_tokens=tokens
        )


def plan_choices(
    title: str,
    prompts: Sequence[tuple[int, ...]],
    choices: Sequence[int],
    batch_tokens: int,
) -> ChoicesPass:
    """The pass that gives, after each prompt, the log-probabilities of the chosen tokens."""
    shared = shared_prefix_length(prompts, [len(ids) - 1 for ids in prompts])
    whole = ChoicesPass(
        title, tuple(prompts), prompts[0][:shared], tuple(choices), (), batch_tokens
    )
    return whole.replanned(batch_tokens, 0)
