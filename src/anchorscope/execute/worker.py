"""A worker owns a model and runs shards: planned passes go in, parts come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.generate import Ending
from anchorscope.engine.batching import MOST_AT_ONCE
from anchorscope.engine.capture import (
    STATISTICS,
    AnswerStats,
    AttentionMass,
    AttentionSums,
    EdgeCounts,
    capture,
)
from anchorscope.engine.decode import Decoded, choice_log_probs, decode
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.saliency import Saliency, saliency
from anchorscope.engine.sequences import SITES
from anchorscope.errors import MemoryRanOut
from anchorscope.models.devices import (
    Fetched,
    ToHost,
    empty_on_host,
    free_memory,
    is_out_of_memory,
    to_device,
)
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.models.wrapping import without_knowledge
from anchorscope.plan.passes import (
    ChoicesPass,
    DecodePass,
    OutOfFoldProbes,
    Place,
    SaliencyPass,
    StatesPass,
)
from anchorscope.probes.crossfit import Scorer
from anchorscope.progress import Progress


@dataclass(frozen=True)
class VariantPart:
    items: Int[ndarray, " item"]
    """Indices of the sequences that were run, in order."""
    logits: Float[ndarray, "item position site layer"] | None
    """Log-odds of "truthful", where probes were given; only one of each axis where only one was wanted."""
    states: Float[Tensor, "place layer item d_model"] | None
    """States at the places that were to be kept, in host memory; None where they were written to a file."""
    answers: AnswerStats | None = None
    """Statistics of the items' answer tokens, where they were wanted of all variants."""


@dataclass(frozen=True)
class StatesPart:
    variants: tuple[VariantPart, ...]
    edges: EdgeCounts
    """How many attention edges every variant lost in every layer."""
    log_probs: dict[int, tuple[float, ...]]
    """Log-probabilities of the answer's tokens, by sequence, where they were wanted."""
    attention: dict[int, AttentionMass] = field(default_factory=dict)
    """The attention that tokens receive, by sequence, where it was wanted."""


_PREFIXES = 4  # shared beginnings whose keys and values are held at a time

Pass = StatesPass | DecodePass | SaliencyPass | ChoicesPass
"""A pass, whole or one batch of it."""
Shard = Pass
"""What a worker is given."""
Part = Any
"""What it gives: `StatesPart`, log-probabilities of choices, a list of `Decoded`, or `Saliency`."""


class Worker:
    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.prefix = lru_cache(_PREFIXES)(lambda ids: compute_prefix(lm, ids))
        """Keys and values of shared leading tokens."""
        self._scorer_of: tuple[Any, Scorer | None] = (None, None)

    @cached_property
    def without_knowledge(self) -> "Worker":
        """The same shape with weights that were drawn at random."""
        return Worker(without_knowledge(self.lm))

    def run(self, shard: Shard, progress: Progress) -> Part:
        """One shard; raises `MemoryRanOut` where one of its batches does not fit."""
        try:
            with product_kernels():
                if isinstance(shard, StatesPass) and shard.random_weights:
                    return self.without_knowledge._states(shard, progress)
                self.__dict__.pop(
                    "without_knowledge", None
                )  # as large as the model itself
                if isinstance(shard, StatesPass):
                    return self._states(shard, progress)
                if isinstance(shard, DecodePass):
                    return self._decode(shard, progress)
                if isinstance(shard, ChoicesPass):
                    return self._choices(shard, progress)
                return self._saliency(shard, progress)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()  # outside the handler: the exception held on to every tensor of the pass
        raise MemoryRanOut

    def _scorer(self, probes: OutOfFoldProbes) -> Scorer:
        """Probes go to the device once: all shards of a pass bring the same ones."""
        sets, scorer = self._scorer_of
        if scorer is None or sets is not probes.sets:
            scorer = Scorer(probes.sets, probes.folds, self.lm.device)
            self._scorer_of = probes.sets, scorer
        return scorer.for_folds(probes.folds)

    def _states(self, shard: StatesPass, progress: Progress) -> StatesPart:
        scorer = None if shard.probes is None else self._scorer(shard.probes)
        collected = [
            Collected(
                self.lm,
                shard,
                variant,
                shard.keep[variant] if variant < len(shard.keep) else (),
                scorer,
            )
            for variant in range(len(shard.variants))
        ]
        scored = (
            range(len(shard.variants))
            if shard.answer_stats
            else range(int(shard.log_probs))
        )
        weighed: list[AttentionSums] = []
        edges = capture(
            self.lm,
            shard.sequences,
            self.prefix(shard.prefix),
            shard.batches,
            lambda variant, batch, states: collected[variant].receive(batch, states),
            shard.variants,
            shard.n_layers,
            shard.compiled,
            answers_of=scored,
            receive_answers=lambda variant, *statistics: collected[
                variant
            ].receive_answers(*statistics),
            attention=shard.attention,
            receive_attention=weighed.append,
            progress=progress,
            title=shard.title,
        )
        for of_variant in collected:
            of_variant.fetch()
        counts = edges()
        answers = [of_variant.answers() for of_variant in collected[: len(scored)]]
        log_probs = {}
        if shard.log_probs:
            statistics = zip(
                collected[0].items.tolist(), answers[0].by_item(), strict=True
            )
            log_probs = {
                item: tuple(of_item[0].tolist()) for item, of_item in statistics
            }
        wanted = answers if shard.answer_stats else [None] * len(collected)
        parts = [
            of_variant.part(stats)
            for of_variant, stats in zip(collected, wanted, strict=True)
        ]
        for variant, rows in enumerate(shard.into):
            states = parts[variant].states
            if rows is not None and states is not None:
                rows.write(states)
                parts[variant] = replace(parts[variant], states=None)
        attention = {
            item: mass
            for sums in weighed
            for item, mass in sums.masses(shard.sequences).items()
        }
        return StatesPart(tuple(parts), counts, log_probs, attention)

    def _decode(self, shard: DecodePass, progress: Progress) -> list[Decoded]:
        ending = Ending(self.lm, shard.ending)
        return decode(
            self.lm,
            shard.prompts,
            self.prefix(shard.prefix),
            shard.batches,
            shard.max_new_tokens,
            ending.is_end,
            progress,
            min(shard.batch_tokens, MOST_AT_ONCE),
            shard.title,
            shard.sampling,
        )

    def _choices(
        self, shard: ChoicesPass, progress: Progress
    ) -> Float[ndarray, "prompt choice"]:
        """How likely the chosen tokens are, after every prompt of the shard in order."""
        log_probs = choice_log_probs(
            self.lm,
            shard.prompts,
            self.prefix(shard.prefix),
            shard.batches,
            shard.choices,
            progress,
            shard.title,
        )
        return log_probs.numpy()

    def _saliency(self, shard: SaliencyPass, progress: Progress) -> Saliency:
        device, site = self.lm.device, SITES.index(shard.site)
        # Copies: torch does not go back through tensors that were made in inference mode.
        weight, bias = shard.weight.clone().to(device), shard.bias.clone().to(device)
        layers = torch.as_tensor(shard.layers, device=device)

        def log_odds(batch: list[int], states: Tensor) -> Tensor:
            items = torch.as_tensor(batch, device=device)
            read = states[
                torch.arange(len(batch), device=device), 0, site, layers[items]
            ]
            return (read.float() * weight[items]).sum(dim=-1) + bias[items]

        return saliency(
            self.lm,
            shard.sequences,
            self.prefix(shard.prefix),
            shard.keys,
            log_odds,
            shard.layers,
            shard.batches,
            progress,
            shard.title,
        )


class Collected:
    """What one variant's batches bring: all are received, then the device is asked, then the part is there."""

    def __init__(
        self,
        lm: LanguageModel,
        shard: StatesPass,
        variant: int,
        keep: Sequence[Place],
        scorer: Scorer | None,
    ) -> None:
        run = shard.run_by(variant)
        self.items = np.array(run, dtype=np.int64)
        self._slot = {item: slot for slot, item in enumerate(run)}
        self._places = tuple(keep)
        self._states: Tensor | None = None
        if self._places:
            n_layers = lm.n_layers if shard.n_layers is None else shard.n_layers
            self._states = empty_on_host(
                (len(self._places), n_layers, len(run), lm.d_model), lm.dtype
            )
        # no method: a cycle would hold all until it is found
        self._to_host = ToHost(partial(_put_into, self._states))
        self._device, self._scorer = lm.device, scorer
        self._only = None if shard.probes is None else shard.probes.only
        self._logits: Tensor | None = None
        self._answers: list[Tensor] = []
        self._answered: list[int] = []  # the items that these are of
        self._lengths: list[int] = []

    def receive(self, batch: list[int], states: Tensor) -> None:
        """Where memory ran out within a batch that may be divided, some items come twice: the last time counts."""
        slots = [self._slot[item] for item in batch]
        if self._scorer is not None:
            scores = self._scorer.score(batch, states)
            if self._only is not None:
                position, site = self._only
                scores = scores[:, position : position + 1, site : site + 1]
            if self._logits is None:
                self._logits = scores.new_zeros((len(self.items), *scores.shape[1:]))
            self._logits[to_device(torch.as_tensor(slots), scores.device)] = scores
        if not self._places:
            return
        rows = [
            states[:, position, site].transpose(0, 1) for position, site in self._places
        ]
        self._to_host.put(slots, torch.stack(rows))  # a copy, turned by the device

    def receive_answers(
        self, batch: list[int], statistics: Tensor, lengths: list[int]
    ) -> None:
        self._answers.append(statistics)
        self._answered += batch
        self._lengths += lengths

    def fetch(self) -> None:
        """Asks the device for what is still there, once, when all batches have come."""
        answers = torch.cat(
            [torch.empty(len(STATISTICS), 0, device=self._device), *self._answers],
            dim=1,
        )
        logits = [] if self._logits is None else [self._logits]
        self._fetched = Fetched([answers, *logits], self._device)
        self._answers.clear()

    def answers(self) -> AnswerStats:
        """The statistics of all items' answers, in their order; waits for the device."""
        statistics = AnswerStats(
            np.array(self._lengths, dtype=np.int64), *self._fetched.get()[0].numpy()
        )
        index_of = {item: index for index, item in enumerate(self._answered)}
        return statistics.take([index_of[item] for item in self.items.tolist()])

    def part(self, answers: AnswerStats | None) -> VariantPart:
        """All of it, with the statistics of answers where they are wanted; waits for the device."""
        self._to_host.finish()
        logits = None if self._logits is None else self._fetched.get()[1].numpy().copy()
        return VariantPart(self.items, logits, self._states, answers)


def _put_into(whole: Tensor | None, slots: list[int], states: Tensor) -> None:
    assert whole is not None
    whole.index_copy_(2, torch.as_tensor(slots), states)
