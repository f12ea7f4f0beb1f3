"""A worker owns a model and runs shards: planned passes go in, plain arrays and records come out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.endings import Ending
from anchorscope.engine.answer_stats import AnswerStats
from anchorscope.engine.attention_mass import AttentionMass, attention_mass
from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import EdgeCounts, Work, capture
from anchorscope.engine.choices import choice_log_probs
from anchorscope.engine.decode import Decoded, decode
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.saliency import Saliency, saliency
from anchorscope.engine.sequences import SITES
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.memory import ToHost
from anchorscope.models.process_settings import product_kernels
from anchorscope.models.random_twin import without_knowledge
from anchorscope.plan.choices_pass import ChoicesPass
from anchorscope.plan.decoding import DecodePass
from anchorscope.plan.device_work import DeviceWork
from anchorscope.plan.passes import AttentionPass, OutOfFoldProbes, Place, StatesPass
from anchorscope.plan.saliency_pass import SaliencyPass
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress

_PREFIXES = 4  # shared beginnings whose keys and values are held at a time

Pass = StatesPass | DecodePass | SaliencyPass | AttentionPass | ChoicesPass
"""A pass, whole or one batch of it."""
Shard = Pass | DeviceWork
"""What a worker is given: a pass, or work that needs the device without the model."""


@dataclass(frozen=True)
class VariantPart:
    """What one variant of a pass gave."""

    items: Int[ndarray, " item"]
    """Indices of the sequences that were run, in order."""
    logits: Float[ndarray, "item position site probe layer"] | None
    """Log-odds of "truthful", where probes were given; only one of each axis where only one was wanted."""
    states: Float[Tensor, "place layer item d_model"] | None
    """States at the places that were to be kept, in host memory."""
    answers: AnswerStats | None = None
    """Statistics of the items' answer tokens, where they were wanted of all variants."""


@dataclass(frozen=True)
class StatesPart:
    """What a shard of a pass gave."""

    variants: tuple[VariantPart, ...]
    edges: EdgeCounts
    """How many attention edges every variant lost in every layer."""
    log_probs: dict[int, tuple[float, ...]]
    """Log-probabilities of the answer's tokens, by sequence, where they were wanted."""


@dataclass(frozen=True)
class DecodedPart:
    """What the model wrote after each prompt, in their order."""

    texts: list[Decoded]


@dataclass(frozen=True)
class SaliencyPart:
    """Saliency of the items, in order."""

    found: Saliency


@dataclass(frozen=True)
class AttentionPart:
    """The attention that tokens receive, by sequence."""

    found: dict[int, AttentionMass]


@dataclass(frozen=True)
class ChoicesPart:
    """How likely the chosen tokens are."""

    prompts: Int[ndarray, " prompt"]
    """Indices of the prompts that were run."""
    log_probs: Float[ndarray, "prompt choice"]


@dataclass(frozen=True)
class DevicePart:
    """What device work gave."""

    found: Any


Part = StatesPart | DecodedPart | SaliencyPart | AttentionPart | ChoicesPart | DevicePart


class Worker:
    """Runs shards on one model."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self._prefix = lru_cache(_PREFIXES)(lambda ids: compute_prefix(lm, ids))
        self._scorers: dict[tuple[int, ...], Scorer] = {}

    @cached_property
    def without_knowledge(self) -> "Worker":
        """The same shape with weights that were drawn at random."""
        return Worker(without_knowledge(self.lm))

    def run(self, shard: Shard, progress: Progress) -> Part:
        """One shard; raises `MemoryRanOut` where one of its batches does not fit."""
        with product_kernels():
            return self._run(shard, progress)

    def _run(self, shard: Shard, progress: Progress) -> Part:
        if isinstance(shard, StatesPass) and shard.random_weights:
            return self.without_knowledge._states(shard, progress)
        self.__dict__.pop("without_knowledge", None)  # as large as the model itself
        if isinstance(shard, StatesPass):
            return self._states(shard, progress)
        if isinstance(shard, DecodePass):
            return self._decode(shard, progress)
        if isinstance(shard, AttentionPass):
            return self._attention(shard, progress)
        if isinstance(shard, DeviceWork):
            return DevicePart(shard.run(progress))
        if isinstance(shard, ChoicesPass):
            return self._choices(shard, progress)
        return self._saliency(shard, progress)

    def prefix(self, ids: tuple[int, ...]) -> Prefix:
        """Keys and values of shared leading tokens; the last few are remembered."""
        return self._prefix(ids)

    def _scorer(self, probes: OutOfFoldProbes) -> Scorer:
        """Probes go to the device once: all shards of a pass bring the same ones."""
        key = tuple(id(one) for row in probes.sets for one in row)
        known = self._scorers.get(key)
        if known is None:
            self._scorers = {key: (known := Scorer(probes.sets, probes.folds, self.lm.device))}
            self._held = probes.sets  # as long as they are known by their identity
        return known.for_folds(probes.folds)

    def _states(self, shard: StatesPass, progress: Progress) -> StatesPart:
        scorer = None if shard.probes is None else self._scorer(shard.probes)
        collected = [
            _Collected(
                self.lm, shard, variant, shard.keep[variant] if variant < len(shard.keep) else (), scorer
            )
            for variant in range(len(shard.variants))
        ]
        scored = range(len(shard.variants)) if shard.answer_stats else range(int(shard.log_probs))
        work = Work(
            shard.sequences, self.prefix(shard.prefix), shard.variants, _budget(shard.batch_tokens),
            shard.batches, compiled=shard.compiled, answers_of=scored, n_layers=shard.n_layers,
        )  # fmt: skip
        edges = capture(
            self.lm, work, lambda variant, batch, states: collected[variant].receive(batch, states), shard.title,
            progress, (lambda variant, *found: collected[variant].receive_answers(*found)) if scored else None,
        )  # fmt: skip
        answers = [one.answers() for one in collected[: len(scored)]]
        log_probs = {}
        if shard.log_probs:
            told = zip(collected[0].items.tolist(), answers[0].by_item(), strict=True)
            log_probs = {item: tuple(found[0].tolist()) for item, found in told}
        wanted = answers if shard.answer_stats else [None] * len(collected)
        parts = (one.part(found) for one, found in zip(collected, wanted, strict=True))
        return StatesPart(tuple(parts), edges, log_probs)

    def _decode(self, shard: DecodePass, progress: Progress) -> DecodedPart:
        ending = Ending(self.lm, shard.ending)
        return DecodedPart(
            decode(
                self.lm, shard.prompts, self.prefix(shard.prefix), shard.batches, shard.max_new_tokens, ending.is_end,
                progress, _budget(shard.batch_tokens), shard.title, shard.sampling,
            )
        )  # fmt: skip

    def _attention(self, shard: AttentionPass, progress: Progress) -> AttentionPart:
        clean = shard.clean
        return AttentionPart(
            attention_mass(
                self.lm, clean.sequences, self.prefix(clean.prefix), clean.batches, shard.edges,
                _budget(clean.batch_tokens), progress, clean.title,
            )
        )  # fmt: skip

    def _choices(self, shard: ChoicesPass, progress: Progress) -> ChoicesPart:
        found = choice_log_probs(
            self.lm, shard.prompts, self.prefix(shard.prefix), shard.batches, shard.choices,
            _budget(shard.batch_tokens), progress, shard.title,
        )  # fmt: skip
        run = sorted(prompt for batch in shard.batches for prompt in batch)
        return ChoicesPart(np.array(run, dtype=np.int64), found[run].numpy())

    def _saliency(self, shard: SaliencyPass, progress: Progress) -> SaliencyPart:
        device, site = self.lm.device, SITES.index(shard.site)
        # Copies: torch does not go back through tensors that were made in inference mode.
        weight, bias = shard.weight.clone().to(device), shard.bias.clone().to(device)
        layers = torch.as_tensor(shard.layers, device=device)

        def log_odds(batch: list[int], states: Tensor) -> Tensor:
            items = torch.as_tensor(batch, device=device)
            read = states[torch.arange(len(batch), device=device), 0, site, layers[items]]
            return (read.float() * weight[items]).sum(dim=-1) + bias[items]

        found = saliency(
            self.lm, shard.sequences, self.prefix(shard.prefix), shard.keys, log_odds, shard.layers,
            None, progress, shard.title, shard.batches,
        )  # fmt: skip
        return SaliencyPart(found)


class _Collected:
    """What one variant's batches bring: log-odds stay on the device until the end, kept states go to the host."""

    def __init__(
        self, lm: LanguageModel, shard: StatesPass, variant: int, keep: Sequence[Place], scorer: Scorer | None
    ) -> None:
        run = sorted(item for batch in shard.batches for item in batch if shard.variants[variant].runs(item))
        self.items = np.array(run, dtype=np.int64)
        self.slot = {item: slot for slot, item in enumerate(run)}
        self.places = tuple(keep)
        self.states: Tensor | None = None
        if self.places:
            n_layers = lm.n_layers if shard.n_layers is None else shard.n_layers
            self.states = torch.empty(len(self.places), n_layers, len(run), lm.d_model, dtype=lm.dtype)
        self.to_host = ToHost(self._keep)
        self.scorer = scorer
        self.only = None if shard.probes is None else shard.probes.only
        self.logits: Tensor | None = None
        self._answers: list[tuple[list[int], Tensor, list[int]]] = []

    def receive(self, batch: list[int], states: Tensor) -> None:
        """Where memory ran out within a batch, some of its items come twice: the last time counts."""
        slots = [self.slot[item] for item in batch]
        if self.scorer is not None:
            scores = self.scorer.score(batch, states)
            if self.only is not None:
                position, site, probe = (slice(one, one + 1) for one in self.only)
                scores = scores[:, position, site, probe]
            if self.logits is None:
                self.logits = scores.new_zeros((len(self.items), *scores.shape[1:]))
            self.logits[torch.as_tensor(slots).to(scores.device, non_blocking=True)] = scores
        if self.places:
            positions, sites = zip(*self.places, strict=True)
            self.to_host.put(slots, states[:, list(positions), list(sites)])  # a copy: a view would keep the batch

    def _keep(self, slots: list[int], states: Tensor) -> None:
        assert self.states is not None
        self.states[:, :, slots] = states.permute(1, 2, 0, 3)

    def receive_answers(self, batch: list[int], found: Tensor, lengths: list[int]) -> None:
        self._answers.append((batch, found, lengths))

    def answers(self) -> AnswerStats:
        """Asked of the device once, at the end."""
        found: dict[int, ndarray] = {}
        whole = torch.cat([values for _, values, _ in self._answers], dim=1).cpu() if self._answers else torch.empty(0)
        items = [item for batch, _, _ in self._answers for item in batch]
        lengths = [length for _, _, some in self._answers for length in some]
        found.update(zip(items, (one.numpy() for one in whole.split(lengths, dim=-1)), strict=True))
        return AnswerStats.of([found[item] for item in self.items.tolist()])

    def part(self, answers: AnswerStats | None) -> VariantPart:
        self.to_host.finish()
        logits = None if self.logits is None else self.logits.cpu().numpy()
        return VariantPart(self.items, logits, self.states, answers)


def _budget(tokens: int) -> Budget:
    return Budget(tokens, is_planned=True)
