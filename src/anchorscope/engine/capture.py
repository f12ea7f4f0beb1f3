"""States of all layers at the wanted positions, clean or with attention edges cut, batch by batch.

A state at layer l depends on blocks up to l only, so one pass with the same cut in every layer gives "blocks 0 … l cut"
for every l. Variants of the same items run together and share what no cut has changed yet (see `rows`). Only the wanted
positions are kept, and each batch goes to the caller at once.

The head runs only for statistics of answer tokens. Each token is predicted by the one before it: of the cut row or,
before the first query that loses an edge, of the clean row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.forward import (
    Packed,
    Prefix,
    logits_in_parts,
    not_finite,
    run_layers,
)
from anchorscope.engine.rows import BatchRows, all_between
from anchorscope.engine.sequences import (
    CLEAN,
    SITES,
    TokenSequence,
    Variant,
    refuse_unread_positions,
)
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.devices import Fetched, to_device
from anchorscope.models.families import BlockOutput, Weights
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent

STATISTICS = ("log_prob", "margin", "entropy")
"""What is measured of every answer token, in this order."""


@dataclass(frozen=True)
class AnswerStats:
    """Statistics of the answer tokens of some items, concatenated."""

    lengths: Int[ndarray, " item"]
    """Answer tokens per item; may be 0."""
    log_prob: Float[ndarray, " answer_token"]
    margin: Float[ndarray, " answer_token"]
    """Log-probability of the token less that of the best other one: positive where greedy decoding chooses it."""
    entropy: Float[ndarray, " answer_token"]
    """Entropy, in nats, of the token's distribution."""

    @classmethod
    def of(
        cls, items: Sequence[Float[ndarray, "statistic answer_token"]]
    ) -> "AnswerStats":
        whole = np.concatenate(
            [np.empty((len(STATISTICS), 0), np.float32), *items], axis=1
        )
        return cls(
            np.array([numbers.shape[1] for numbers in items], dtype=np.int64), *whole
        )

    def by_item(self) -> list[Float[ndarray, "statistic answer_token"]]:
        whole, stops = (
            np.stack([self.log_prob, self.margin, self.entropy]),
            np.cumsum(self.lengths),
        )
        return [
            whole[:, stop - length : stop]
            for stop, length in zip(stops, self.lengths, strict=True)
        ]

    def take(self, items: Sequence[int] | Int[ndarray, " chosen"]) -> "AnswerStats":
        chosen = np.asarray(items, dtype=np.int64)
        stops = np.cumsum(self.lengths)[chosen]
        tokens = all_between(stops - self.lengths[chosen], stops)
        return AnswerStats(
            self.lengths[chosen],
            self.log_prob[tokens],
            self.margin[tokens],
            self.entropy[tokens],
        )

    @classmethod
    def join(cls, parts: "Sequence[AnswerStats]") -> "AnswerStats":
        fields = (
            (part.lengths, part.log_prob, part.margin, part.entropy)
            for part in (cls.of([]), *parts)
        )
        return cls(*map(np.concatenate, zip(*fields, strict=True)))


@torch.inference_mode()
def token_statistics(
    lm: LanguageModel,
    stream: Float[Tensor, "token d_model"],
    ids: Int[Tensor, " token"],
) -> Float[Tensor, "statistic token"]:
    """`STATISTICS` of tokens, from the last block's output at the tokens before them."""
    parts, done = [torch.empty(len(STATISTICS), 0, device=lm.device)], 0
    for logits in logits_in_parts(lm, stream) if len(ids) else ():
        own = to_device(ids[done : done + len(logits)], logits.device)[:, None]
        done += len(logits)
        chosen, total = logits.gather(1, own)[:, 0], logits.logsumexp(dim=-1)
        entropy = torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1)
        best_other = logits.scatter(1, own, float("-inf")).amax(dim=-1)
        parts.append(
            torch.stack([chosen - total, chosen - best_other, entropy]).to(lm.device)
        )
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class AttentionMass:
    """How much attention each token of an item receives from later ones in the clean run, over all layers and heads.

    Weights after the softmax, without the diagonal, from all later tokens, or from the answer's (`direct`). So the mass
    of a set of tokens is what cutting them removes in the first cut layer. (Under `outside`, weights within the set
    count too.)
    """

    first: int
    """Position of the first token counted; those before it are shared by all items."""
    received: tuple[float, ...]
    """Per token from there on, summed over layers, heads and later tokens."""
    previous: tuple[tuple[float, ...], ...] = ()
    """Only with `PREVIOUS`: for every layer, what each answer token but the first gives to the token before it."""

    def of(self, keys: Iterable[int]) -> float:
        places = [key - self.first for key in keys]
        if any(not 0 <= index < len(self.received) for index in places):
            raise ValueError(
                f"keys {list(keys)}, and attention is known from {self.first} on, of {len(self.received)}"
            )
        return sum(self.received[index] for index in places)


class AttentionSums:
    """Sums the attention that the tokens of a batch without cuts receive, layer by layer."""

    def __init__(
        self,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        edges: str,
        device: torch.device,
    ) -> None:
        self.items = [row.item for row in rows.rows]
        self.received: Float[Tensor, "row key_pos"] = torch.zeros(0, device=device)
        self._starts = torch.tensor(
            [sequences[item].answer_start for item in self.items], device=device
        )
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
        n_rows, n_keys = len(self.items), weights.shape[-1]
        if not len(self.received):
            self.received = torch.zeros(n_rows, n_keys, device=self.received.device)
        counted = self._counted
        together = (
            weights.view(n_rows, -1, counted.shape[1], n_keys)
            .sum(dim=1)
            .to(counted.device)
        )  # all heads
        self.received += (together * counted).sum(dim=1)

    def masses(self, sequences: Sequence[TokenSequence]) -> dict[int, AttentionMass]:
        """By item index; waits for the device."""
        first, received = self._rows.n_prefix, self.received.cpu()
        return {
            item: AttentionMass(
                first, tuple(row[first : len(sequences[item].ids)].tolist())
            )
            for item, row in zip(self.items, received, strict=True)
        }


PREVIOUS = "previous"
"""In the place of edges: how much attention answer tokens give to the token before them."""


class PreviousAttention(AttentionSums):
    """The attention of answer tokens to the token before them, of each layer's head that gives most on average."""

    def add(self, weights: Weights) -> None:
        n_rows, n_keys, device = len(self.items), weights.shape[-1], weights.device
        longest = int((self._rows.stop - self._rows.first).max())
        queries = self._rows.n_prefix + torch.arange(longest, device=device)
        stops = torch.from_numpy(self._rows.stop).to(device)[:, None]
        counted = (queries > self._starts.to(device)[:, None]) & (queries < stops)
        by_head = weights.view(n_rows, -1, longest, n_keys)
        before = (queries - 1).clamp(min=0)[:, None].expand(*by_head.shape[:3], 1)
        given = by_head.gather(-1, before)[..., 0] * counted[:, None]
        most = given.sum(-1).argmax(-1)
        chosen = given[torch.arange(n_rows, device=device), most].to(
            self.received.device
        )
        self.received = torch.cat(
            [self.received.view(-1, n_rows, longest), chosen[None]]
        )

    def masses(self, sequences: Sequence[TokenSequence]) -> dict[int, AttentionMass]:
        first, by_row = self._rows.n_prefix, self.received.cpu().transpose(0, 1)
        ranges = [
            (sequences[item].answer_start + 1 - first, len(sequences[item].ids) - first)
            for item in self.items
        ]
        return {
            item: AttentionMass(
                first, (), tuple(map(tuple, row[:, start:stop].tolist()))
            )
            for item, row, (start, stop) in zip(self.items, by_row, ranges, strict=True)
        }


@dataclass(frozen=True)
class EdgeCounts:
    """How many attention edges a pass, or a part of it, computed without, or with a bias."""

    lost: NDArray[np.int64]
    """Edges lost by each variant's rows in each layer, [variant, layer]."""
    asked: NDArray[np.bool_]
    """Whether they were to lose any, [variant, layer]."""
    untouched: bool
    """Whether an item that was to lose edges lost none in any layer."""

    @classmethod
    def sum(cls, parts: "Sequence[EdgeCounts]") -> "EdgeCounts":
        lost = np.sum([part.lost for part in parts], axis=0)
        asked = np.logical_or.reduce([part.asked for part in parts])
        return cls(lost, asked, any(part.untouched for part in parts))


def refuse_idle_cuts(edges: EdgeCounts) -> None:
    """Raises where a cut removed nothing from an item, or from all items in a layer: a flat curve would look like a
    result."""
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


Receive = Callable[
    [int, list[int], Float[Tensor, "item position site layer d_model"]], None
]
"""Called per batch and variant with the variant's index, the items' indices and their states, on the device."""
ReceiveAnswers = Callable[
    [int, list[int], Float[Tensor, "statistic answer_token"], list[int]], None
]
"""Called per batch and variant with the variant's index, the items' indices, the statistics of their answers' tokens,
one item after the other, on the device, and how many tokens each has."""


def capture(
    lm: LanguageModel,
    sequences: Sequence[TokenSequence],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    receive: Receive,
    variants: Sequence[Variant] = (CLEAN,),
    n_layers: int | None = None,
    compiled: bool = False,
    answers_of: Sequence[int] = (),
    receive_answers: ReceiveAnswers | None = None,
    attention: str | None = None,
    receive_attention: Callable[[AttentionSums], None] | None = None,
    progress: Progress | None = None,
    title: str = "states",
) -> Callable[[], EdgeCounts]:
    """Runs all batches and passes each one's states to `receive`, variant by variant.

    Work on a GPU is only queued: the returned function waits for it, in any thread, and gives the lost edges, which the
    caller checks (`refuse_idle_cuts`) when all parts of a pass are there. `n_layers` limits the blocks that run.
    `answers_of` names the variants whose answer tokens are scored for `receive_answers`: the prefix must end before the
    token that predicts an answer's first. `attention` names the edges whose weights are summed in a pass without cuts,
    or is `PREVIOUS`.
    """
    depth = lm.n_layers if n_layers is None else n_layers
    assert not answers_of or depth == lm.n_layers, (
        "the head, which scores answers, needs all layers"
    )
    listener = progress or Silent()
    listener.start(title, sum(len(batch) for batch in batches))
    checks = _Checks(lm, len(variants), depth)
    for items in batches:
        rows = BatchRows(sequences, items, variants, prefix.length, depth)
        weigh = PreviousAttention if attention == PREVIOUS else AttentionSums
        sums = (
            None if attention is None else weigh(sequences, rows, attention, lm.device)
        )
        packed = Packed(
            lm, sequences, rows, prefix, weigh=None if sums is None else sums.add
        )
        states = _States(lm, sequences, rows, depth)
        answers = _AnswerTokens(sequences, rows, answers_of, depth - 1)
        last = to_device(
            np.concatenate((states.last_tokens, answers.before)),
            lm.layer_device(depth - 1),
        )
        stream = run_layers(
            lm,
            packed.ids,
            packed.positions,
            packed,
            states.visit,
            compiled,
            last,
            depth,
        )
        scores = token_statistics(lm, stream[0, states.last_tokens.size :], answers.ids)
        checks.note(rows, packed.lost, states.found, scores)
        for variant, reading in enumerate(rows.readings):
            if reading.items:
                receive(variant, list(reading.items), states.of(variant))
        if receive_answers is not None:
            for variant, lengths, part in answers.split(scores):
                receive_answers(
                    variant, list(rows.readings[variant].items), part, lengths
                )
        if receive_attention is not None and sums is not None:
            receive_attention(sums)
        listener.advance(len(items))
        del (
            rows,
            sums,
            packed,
            states,
            answers,
            stream,
            scores,
        )  # the next batch needs their memory
    listener.finish()
    return checks.ask()


class _States:
    """Reads the states of one batch while it runs."""

    def __init__(
        self,
        lm: LanguageModel,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        n_layers: int,
    ) -> None:
        self.rows, self.n_layers = rows, n_layers
        items = [item for reading in rows.readings for item in reading.items]
        refuse_unread_positions([sequences[item] for item in items], rows.n_prefix)
        self.read_at = np.array([sequences[item].read_at for item in items])
        self.readers = np.array(
            [row for reading in rows.readings for row in reading.rows]
        )
        shape = (*self.read_at.shape, len(SITES), n_layers, lm.d_model)
        self.found = torch.empty(shape, dtype=lm.dtype, device=lm.device)
        self.last_tokens = rows.token_indices(
            self.readers, self.read_at, n_layers - 1
        ).reshape(-1)
        """Indices in the line of the tokens read after the last block."""
        self._opening = {0, *rows.opens.tolist()}
        self._tokens_read = torch.empty(0)

    def visit(self, layer: int, output: BlockOutput) -> None:
        # of this layer; the states come together where the embedding is
        device = output.residual.device
        # of the last block there is nothing but what is read
        if layer == self.n_layers - 1:
            self._tokens_read = torch.arange(self.read_at.size, device=device).view(
                self.read_at.shape
            )
        elif layer in self._opening or self._tokens_read.device != device:
            self._tokens_read = to_device(
                self.rows.token_indices(self.readers, self.read_at, layer), device
            )
        for site, name in enumerate(SITES):
            self.found[:, :, site, layer] = getattr(output, name)[0, self._tokens_read]

    def of(self, variant: int) -> Float[Tensor, "item position site layer d_model"]:
        start = sum(len(reading.items) for reading in self.rows.readings[:variant])
        return self.found[start : start + len(self.rows.readings[variant].items)]


class _AnswerTokens:
    """The answer tokens of one batch, variant by variant, and where the tokens before them are."""

    def __init__(
        self,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        variants: Sequence[int],
        last_layer: int,
    ) -> None:
        readings = [rows.readings[variant] for variant in variants]
        read = [sequences[item] for reading in readings for item in reading.items]
        for sequence in read:
            if sequence.answer_start <= rows.n_prefix:
                raise ValueError(
                    f"an item answers from {sequence.answer_start}, and the token before it, which predicts the "
                    f"answer's first, is not run: the shared prefix has {rows.n_prefix}"
                )
        self.lengths = {
            variant: [
                len(sequences[item].ids) - sequences[item].answer_start
                for item in reading.items
            ]
            for variant, reading in zip(variants, readings, strict=True)
        }
        starts = np.array([sequence.answer_start for sequence in read], dtype=np.int64)
        stops = np.array([len(sequence.ids) for sequence in read], dtype=np.int64)
        readers = np.array(
            [row for reading in readings for row in reading.rows], dtype=np.int64
        )
        tokens = chain.from_iterable(
            sequence.ids[sequence.answer_start :] for sequence in read
        )
        self.ids = torch.from_numpy(np.fromiter(tokens, dtype=np.int64))
        self.before = rows.token_indices(
            np.repeat(readers, stops - starts),
            all_between(starts, stops) - 1,
            last_layer,
        )
        """Indices in the last layer's stream of the tokens that predict them."""

    def split(
        self, scores: Float[Tensor, "statistic answer_token"]
    ) -> Iterator[tuple[int, list[int], Tensor]]:
        """Each variant with the number of tokens of its items, and their statistics."""
        parts = scores.split([sum(lengths) for lengths in self.lengths.values()], dim=1)
        for (variant, lengths), part in zip(self.lengths.items(), parts, strict=True):
            yield variant, lengths, part


class _Checks:
    """Checks that must not be skipped, asked of the device once, at the end."""

    def __init__(self, lm: LanguageModel, n_variants: int, n_layers: int) -> None:
        self.lm, self.n_layers = lm, n_layers
        self.finite: list[Tensor] = []
        self.untouched: list[Tensor] = []
        self.edges = torch.zeros(
            n_variants, n_layers, dtype=torch.long, device=lm.device
        )
        self.asked = np.zeros((n_variants, n_layers), dtype=bool)

    def note(
        self,
        rows: BatchRows,
        lost: Mapping[int, Tensor],
        states: Tensor,
        scores: Tensor,
    ) -> None:
        self.finite += [torch.isfinite(states).all(), torch.isfinite(scores).all()]
        asked = [layer for layer in range(self.n_layers) if rows.cut_at(layer).any()]
        silent = [layer for layer in asked if layer not in lost]
        if silent:
            raise InterventionNotApplied(
                f"layers {silent} were asked to lose attention edges and lost none"
            )
        if not asked:
            return
        device = self.lm.device
        # clean rows lose nothing
        variants = to_device(rows.variant.clip(min=0), device)
        total = torch.zeros(len(rows.rows), dtype=torch.long, device=device)
        alike: dict[
            int, list[int]
        ] = {}  # layers with the same window and cuts share one tensor
        for layer in asked:
            alike.setdefault(id(lost[layer]), []).append(layer)
        for layers in alike.values():
            per_row, places = lost[layers[0]].to(device), np.array(layers)
            n_rows = len(per_row)
            total[:n_rows] += per_row * len(layers)
            by_variant = self.edges.new_zeros(len(self.edges), 1).index_add_(
                0, variants[:n_rows], per_row[:, None]
            )
            self.edges.index_add_(
                1, to_device(places, device), by_variant.expand(-1, len(layers))
            )
            self.asked[
                np.ix_(np.unique(rows.variant[:n_rows][rows.cut_at(layers[0])]), places)
            ] = True
        named = to_device(rows.closes > 0, device)
        self.untouched.append((named & (total == 0)).any())

    def ask(self) -> Callable[[], EdgeCounts]:
        """Queues the checks; the result waits, gives the lost edges, and raises where states aren't finite."""
        none = torch.zeros(0, dtype=torch.bool, device=self.lm.device)
        flags = [
            torch.stack(checks) if checks else none
            for checks in (self.finite, self.untouched)
        ]
        fetched = Fetched([self.edges, flags[0].all(), flags[1].any()], self.lm.device)
        asked, no_numbers = (
            self.asked,
            not_finite(self.lm),
        )  # what is returned holds no model

        def wait() -> EdgeCounts:
            edges, finite, untouched = fetched.get()
            if not bool(finite):
                raise no_numbers
            return EdgeCounts(edges.numpy().copy(), asked, bool(untouched))

        return wait
