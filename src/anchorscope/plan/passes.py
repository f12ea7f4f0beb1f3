"""A pass over the items, planned: plain data that can be sent to whoever owns the model.

A shard is one planned batch, with only what that batch needs; a worker runs a shard and hands back a part; parts are
merged by item. Numbers hang on what runs together, so that a batch is never divided: whoever runs it, and in whatever
order, the bits are the same. Where memory does not suffice, the whole pass is planned again with half the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Int
from numpy import ndarray

from anchorscope.engine.batching import MOST_AT_ONCE, MemoryFacts, plan_batches
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

    def take(self, sequences: Sequence[int]) -> "OutOfFoldProbes":
        """For some of the sequences, in this order."""
        return replace(self, folds=self.folds[list(sequences)])


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
    attention: str | None = None
    """Which later tokens count (`edges`) in the attention that tokens receive; None where that is not wanted. A pass
    that is asked for it cuts nothing."""
    random_weights: bool = False
    """Whether weights of the model's shape that were drawn at random take the place of its own."""
    items: tuple[int, ...] = ()
    """What the sequences of a shard are called in the whole pass; empty where this is the whole."""

    def shards(self) -> "list[StatesPass]":
        """One per batch, with its own sequences and those that give it states; itself where it runs nothing."""
        return [self._shard(batch) for batch in self.batches] or [self]

    def _shard(self, batch: tuple[int, ...]) -> "StatesPass":
        donors = {one.patches[item].donor for one in self.variants if one.patches for item in batch if one.runs(item)}
        own = sorted({*batch, *donors})  # in the order of the whole: rows of a batch stand as they do there
        place = {item: index for index, item in enumerate(own)}
        return replace(
            self,
            sequences=tuple(self.sequences[item] for item in own),
            variants=tuple(one.take(place, batch) for one in self.variants),
            batches=(tuple(place[item] for item in batch),),
            probes=None if self.probes is None else self.probes.take(own),
            items=tuple(own),
        )

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each sequence, in a model of so many layers."""
        return [
            tokens_of(sequence, item, self.variants, len(self.prefix), n_layers)
            for item, sequence in enumerate(self.sequences)
        ]

    def replanned(self, tokens: int, n_layers: int) -> "StatesPass":
        """The same work in smaller batches."""
        order = [item for batch in self.batches for item in batch]
        return replace(self, batches=_batches(self.lengths(n_layers), tokens, order), batch_tokens=tokens)

    @property
    def n_items(self) -> int:
        """How many sequences are run."""
        return sum(len(batch) for batch in self.batches)


def _batches(lengths: Sequence[int], tokens: int, order: Sequence[int] | None = None) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, plan_batches(lengths, min(tokens, MOST_AT_ONCE), order)))


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
    memory: MemoryFacts | None = None
    """What passes with gradients go by; None where only `batch_tokens` counts."""
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
        lengths = [
            tokens_of(sequence, item, variants, len(prefix), self.n_layers) for item, sequence in enumerate(sequences)
        ]
        run = [item for item in (order or range(len(lengths))) if lengths[item]]
        batches = _batches(lengths, self.batch_tokens, run)
        return StatesPass(title, tuple(sequences), prefix, tuple(variants), batches, self.batch_tokens, compiled)

    def worth_compiling(self, tokens: int) -> bool:
        """Whether compiled blocks repay the time that compiling takes, for so many tokens to come."""
        return self.compile_from is not None and tokens >= self.compile_from


def shared_tokens(prefix: Sequence[int], sequences: Sequence[TokenSequence]) -> tuple[int, ...]:
    """The leading tokens of a prefix that all of these sequences begin with, none of which is read."""
    ids = [(*prefix, -1), *(one.ids for one in sequences)]  # of the prefix itself all tokens may be shared
    limits = [len(prefix), *(min(one.answer_start, *one.read_at) for one in sequences)]
    return tuple(prefix[: shared_prefix_length(ids, limits)])


def before_answers(prefix: tuple[int, ...], sequences: Sequence[TokenSequence]) -> tuple[int, ...]:
    """The part of a shared beginning that leaves every token to be run that predicts one of an answer's tokens."""
    return prefix[: max(0, min(one.answer_start for one in sequences) - 1)]
