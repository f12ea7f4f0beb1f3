"""States of all layers at the wanted positions, clean or with attention edges cut, batch by batch.

A state at layer l depends on blocks up to l only, so one pass with the same cut in every layer gives "blocks 0 … l cut"
for every l. Variants of the same items run together and share what no cut has changed yet (see `rows`). Only the wanted
positions are kept, and each batch goes to the caller at once: nothing piles up here. A pass may stop early,
at the highest layer that somebody reads. The head runs only where statistics of the answers' tokens are asked for, and
only on the tokens before them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.answer_stats import AnswerTokens, token_statistics
from anchorscope.engine.batching import Budget, plan_batches, run_in_batches
from anchorscope.engine.forward import not_finite, run_layers
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.packed import Packed
from anchorscope.engine.rows import BatchRows, tokens_of
from anchorscope.engine.sequences import CLEAN, SITES, TokenSequence, Variant, refuse_unread_positions
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.attention import Weights
from anchorscope.models.devices import Fetched, to_device
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent


@dataclass(frozen=True)
class AttentionMass:
    """How much attention each token of an item receives from later ones in the clean run, over all layers and heads.

    A token's mass is the sum of the weights, after the softmax, that later tokens give to it, without the diagonal,
    which no cut takes away. Every later token of the item counts alike, those of the question and those of the answer;
    where only the answer's own tokens lose edges (`direct`), only they are counted. So the mass of a set of tokens is
    what cutting them takes away in the first layer that is cut. (Under `outside` the weights among the set itself are
    counted too: which those are depends on the set.)
    """

    first: int
    """Position of the first token that is told of; those before it are shared by all items and not looked at."""
    received: tuple[float, ...]
    """Of each token from there on, summed over layers, heads and later tokens."""

    def of(self, keys: Iterable[int]) -> float:
        """What tokens at these positions receive together."""
        places = [key - self.first for key in keys]
        if any(not 0 <= place < len(self.received) for place in places):
            raise ValueError(f"keys {list(keys)}, and attention is known from {self.first} on, of {len(self.received)}")
        return sum(self.received[place] for place in places)


class AttentionSums:
    """The attention that the tokens of a batch without cuts receive, summed layer by layer as it is run.

    Beside each layer's attention, its weights are written out, which a fused kernel never does.
    """

    def __init__(self, sequences: Sequence[TokenSequence], rows: BatchRows, edges: str, device: torch.device) -> None:
        self.items = [row.item for row in rows.rows]
        self.received: Float[Tensor, "row key_pos"] = torch.zeros(0, device=device)
        self._starts = torch.tensor([sequences[item].answer_start for item in self.items], device=device)
        self._rows, self._edges = rows, edges

    @cached_property
    def _counted(self) -> Float[Tensor, "row pos key_pos"]:
        """Which weights count, as 0 and 1."""
        device, n_keys = self.received.device, self.received.shape[1]
        lengths = self._rows.stop - self._rows.first
        queries = self._rows.n_prefix + torch.arange(int(lengths.max()), device=device)
        counts = queries < torch.from_numpy(self._rows.stop).to(device)[:, None]
        if self._edges == "direct":
            counts &= queries >= self._starts[:, None]
        later = queries[:, None] > torch.arange(n_keys, device=device)
        return (counts[:, :, None] & later).float()

    def add(self, weights: Weights) -> None:
        """Adds the weights of a layer."""
        n_rows, n_keys = len(self.items), weights.shape[-1]
        if not len(self.received):
            self.received = torch.zeros(n_rows, n_keys, device=self.received.device)
        counted = self._counted
        together = weights.view(n_rows, -1, counted.shape[1], n_keys).sum(dim=1).to(counted.device)  # all heads
        self.received += (together * counted).sum(dim=1)

    def masses(self, sequences: Sequence[TokenSequence]) -> dict[int, AttentionMass]:
        """By the items' indices; waits for the device."""
        first, received = self._rows.n_prefix, self.received.cpu()
        return {
            item: AttentionMass(first, tuple(row[first : len(sequences[item].ids)].tolist()))
            for item, row in zip(self.items, received, strict=True)
        }


@dataclass(frozen=True)
class Work:
    """What one pass over a dataset runs."""

    sequences: Sequence[TokenSequence]
    prefix: Prefix
    variants: Sequence[Variant] = (CLEAN,)
    """How each item is run; all of them together."""
    budget: Budget | None = None
    """How many tokens run together, lowered where memory runs out; None for all."""
    batches: Sequence[Sequence[int]] | None = None
    """Indices into `sequences`, an item may be left out; None to plan by length."""
    order: Sequence[int] | None = None
    """Which of the items that are equally long run first; None for their own order."""
    compiled: bool = False
    """Whether blocks are compiled."""
    answers_of: Sequence[int] = ()
    """The variants whose answers' tokens are scored (`answer_stats`): the prefix must then end before the token that
    predicts an answer's first."""
    n_layers: int | None = None
    """How many blocks are run, the first ones; None for all. States then have so many layers."""
    attention: str | None = None
    """The edges (`AttentionSums`) whose weights are summed in a pass without cuts; None where nobody asks."""

    def depth(self, lm: LanguageModel) -> int:
        """How many blocks of a model are run; raises where it has fewer, or where the head needs them all."""
        n_layers = lm.n_layers if self.n_layers is None else self.n_layers
        if not 1 <= n_layers <= lm.n_layers:
            raise ValueError(f"{n_layers} layers are to be run, and the model has {lm.n_layers}")
        if self.answers_of and n_layers < lm.n_layers:
            raise ValueError(f"answers are to be scored after {n_layers} of {lm.n_layers} layers: the head needs all")
        return n_layers

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each item."""
        return [
            tokens_of(sequence, item, self.variants, self.prefix.length, n_layers)
            for item, sequence in enumerate(self.sequences)
        ]


Receive = Callable[[int, list[int], Float[Tensor, "item position site layer d_model"]], None]
"""Called per batch and variant with the variant's index, the items' indices and their states, on the device."""


ReceiveAttention = Callable[[AttentionSums], None]
"""Called per batch with the attention that its tokens receive."""
ReceiveAnswers = Callable[[int, list[int], Float[Tensor, "statistic answer_token"], list[int]], None]
"""Called per batch and variant with the variant's index, the items' indices, the statistics of their answers' tokens,
one item after the other, on the device, and how many tokens each has."""


@dataclass(frozen=True)
class EdgeCounts:
    """How many attention edges a pass, or a part of it, really computed without, or with a bias."""

    lost: NDArray[np.int64]
    """What each variant's rows lost in each layer that was run, [variant, layer]."""
    asked: NDArray[np.bool_]
    """Whether they were to lose any, [variant, layer]."""
    untouched: bool
    """Whether an item that was to lose edges lost none in any layer."""

    @classmethod
    def sum(cls, parts: "Sequence[EdgeCounts]") -> "EdgeCounts":
        """Those of several parts of a pass."""
        lost = np.sum([part.lost for part in parts], axis=0)
        asked = np.logical_or.reduce([part.asked for part in parts])
        return cls(lost, asked, any(part.untouched for part in parts))


def refuse_idle_cuts(edges: EdgeCounts) -> None:
    """Raises where a cut took nothing from an item, or from all of them in a layer: a flat curve would be a finding."""
    hidden = np.flatnonzero((edges.asked & (edges.lost == 0)).any(axis=0)).tolist()
    if hidden:  # every cut names a later query, so only a window can have hidden its keys from all of them
        raise UserError(
            f"In layers {hidden} the sliding window already hides the question from the answer, so that cutting "
            f"these edges changes nothing there; choose --edges all."
        )
    if edges.untouched:
        raise UserError(
            "An item's cut takes no attention edge from it in any layer: the sliding windows already hide the "
            "question from the answer; choose --edges all."
        )


def capture(
    lm: LanguageModel,
    work: Work,
    receive: Receive,
    title: str,
    progress: Progress | None = None,
    receive_answers: ReceiveAnswers | None = None,
) -> EdgeCounts:
    """Runs all batches and hands each one's states to `receive`, variant by variant; the edges that were lost.

    The caller checks them (`refuse_idle_cuts`), once all parts of a pass are there. The statistics of the answers that
    `work.answers_of` asks for go to `receive_answers`.
    """
    return launch_capture(lm, work, receive, title, progress, receive_answers)()


def launch_capture(
    lm: LanguageModel,
    work: Work,
    receive: Receive,
    title: str,
    progress: Progress | None = None,
    receive_answers: ReceiveAnswers | None = None,
    receive_attention: ReceiveAttention | None = None,
) -> Callable[[], EdgeCounts]:
    """The same, but a GPU is only told what to do: what is returned waits for it, in any thread, and gives edges."""
    if receive_answers is None and work.answers_of:
        raise ValueError(f"answers of variants {list(work.answers_of)} are to be scored, and nobody receives them")
    listener = progress or Silent()
    n_layers = work.depth(lm)
    batches = work.batches
    if batches is None:
        lengths = work.lengths(n_layers)
        run_at_all = [item for item in (work.order or range(len(lengths))) if lengths[item]]
        batches = plan_batches(lengths, work.budget.at_once if work.budget else sum(lengths), run_at_all)
    listener.start(title, sum(len(batch) for batch in batches))
    checks = _Checks(lm, len(work.variants), n_layers)

    def run(batch: list[int]) -> None:
        done = _Batch(lm, work, batch)
        for index, reading in enumerate(done.rows.readings):
            if reading.items:
                receive(index, list(reading.items), done.states_of(index))
            if receive_answers is not None and index in done.scored:
                receive_answers(index, list(reading.items), done.scored[index], done.answers.lengths[index])
        if receive_attention is not None and done.attention is not None:
            receive_attention(done.attention)
        checks.note(done)  # only now: a batch that is run again, as memory ran out, counts once
        listener.advance(len(batch))

    run_in_batches(batches, lambda: work.lengths(n_layers), work.budget, run)
    listener.finish()
    return checks.ask()


class _Batch:
    """One batch, run: its rows, and the states that were read on the way."""

    def __init__(self, lm: LanguageModel, work: Work, batch: list[int]) -> None:
        self.rows = BatchRows(work.sequences, batch, work.variants, work.prefix.length, work.depth(lm))
        self.lm, self.n_layers = lm, work.depth(lm)
        read = [item for reading in self.rows.readings for item in reading.items]
        refuse_unread_positions([work.sequences[item] for item in read], work.prefix.length)
        self.read_at = np.array([work.sequences[item].read_at for item in read])
        self.readers = np.array([row for reading in self.rows.readings for row in reading.rows])
        shape = (*self.read_at.shape, len(SITES), self.n_layers, lm.d_model)
        self.states = torch.empty(shape, dtype=lm.dtype, device=lm.device)
        self._tokens_read = torch.empty(0)
        self.attention = None
        if work.attention is not None:
            self.attention = AttentionSums(work.sequences, self.rows, work.attention, lm.device)
        weigh = None if self.attention is None else self.attention.add
        self.packed = Packed(lm, work.sequences, self.rows, work.prefix, weigh=weigh)
        last = torch.from_numpy(self.rows.token_indices(self.readers, self.read_at, self.n_layers - 1)).flatten()
        self.answers = AnswerTokens.of(work.sequences, self.rows, work.answers_of, self.n_layers - 1)
        last = to_device(torch.cat((last, torch.from_numpy(self.answers.before))), lm.layer_device(self.n_layers - 1))
        stream = run_layers(
            lm, self.packed.ids, self.packed.positions, self.packed, self._visit, work.compiled, last, self.n_layers
        )
        self.scored = self.answers.split(token_statistics(lm, stream[0, self.read_at.size :], self.answers.ids))
        """By variant, the statistics of its answers' tokens, where they are asked for."""

    @cached_property
    def _opening(self) -> set[int]:
        return {0, *self.rows.opens.tolist()}

    def _visit(self, layer: int, output: BlockOutput) -> None:
        device = output.residual.device  # of this layer; the states come together where the embedding is
        if layer == self.n_layers - 1:  # of the last block there is nothing but what is read
            self._tokens_read = torch.arange(self.read_at.size, device=device).view(self.read_at.shape)
        elif layer in self._opening or self._tokens_read.device != device:
            indices = self.rows.token_indices(self.readers, self.read_at, layer)
            self._tokens_read = to_device(indices, device)
        for site, name in enumerate(SITES):
            self.states[:, :, site, layer] = getattr(output, name)[0, self._tokens_read]

    def states_of(self, variant: int) -> Float[Tensor, "item position site layer d_model"]:
        """The states of one variant's items."""
        start = sum(len(reading.items) for reading in self.rows.readings[:variant])
        return self.states[start : start + len(self.rows.readings[variant].items)]


class _Checks:
    """What must not pass in silence; asked of the device once, at the end, so that it never waits for the host."""

    def __init__(self, lm: LanguageModel, n_variants: int, n_layers: int) -> None:
        self.lm, self.n_layers = lm, n_layers
        self.finite: list[Tensor] = []
        self.untouched: list[Tensor] = []
        """Per batch: whether a row that was to lose edges lost none in any layer."""
        self.edges = torch.zeros(n_variants, n_layers, dtype=torch.long, device=lm.device)
        """What each variant's rows lost in each layer, all batches together."""
        self.asked = np.zeros((n_variants, n_layers), dtype=bool)
        """Whether they were to lose any."""

    def note(self, batch: _Batch) -> None:
        """A batch was run."""
        self.finite.append(torch.isfinite(batch.states).all())
        self.finite += [torch.isfinite(found).all() for found in batch.scored.values()]
        rows, lost = batch.rows, batch.packed.lost
        asked = [layer for layer in range(self.n_layers) if rows.cut_at(layer).any()]
        silent = [layer for layer in asked if layer not in lost]
        if silent:
            raise InterventionNotApplied(f"layers {silent} were asked to lose attention edges and lost none")
        if not asked:
            return
        device = self.lm.device
        variants = to_device(rows.variant.clip(min=0), device)  # clean rows lose nothing
        total = torch.zeros(len(rows.rows), dtype=torch.long, device=device)
        for layers in _alike(asked, lost):
            here, places = lost[layers[0]].to(device), np.array(layers)
            total[: len(here)] += here * len(layers)
            by_variant = self.edges.new_zeros(len(self.edges), 1).index_add_(0, variants[: len(here)], here[:, None])
            self.edges.index_add_(1, to_device(places, device), by_variant.expand(-1, len(layers)))
            self.asked[np.ix_(np.unique(rows.variant[: len(here)][rows.cut_at(layers[0])]), places)] = True
        named = to_device(rows.closes > 0, device)
        self.untouched.append((named & (total == 0)).any())

    def ask(self) -> Callable[[], EdgeCounts]:
        """Asks the device; what is returned waits, tells what was lost, and raises where states are no numbers."""
        none = torch.zeros(0, dtype=torch.bool, device=self.lm.device)
        flags = [torch.stack(found) if found else none for found in (self.finite, self.untouched)]
        there = Fetched([self.edges, flags[0].all(), flags[1].any()], self.lm.device)
        asked, no_numbers = self.asked, not_finite(self.lm)  # what is returned holds no model

        def told() -> EdgeCounts:
            edges, finite, untouched = there.get()
            if not bool(finite):
                raise no_numbers
            return EdgeCounts(edges.numpy().copy(), asked, bool(untouched))

        return told


def _alike(layers: Sequence[int], lost: Mapping[int, Tensor]) -> list[list[int]]:
    """Layers whose rows lose the same edges, together: those with the same window and cuts share one tensor."""
    found: dict[int, list[int]] = {}
    for layer in layers:
        found.setdefault(id(lost[layer]), []).append(layer)
    return list(found.values())
