"""A worker owns a model and runs shards: planned passes go in, parts come out."""

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from anchorscope.answers.generate import Ending
from anchorscope.engine.batching import MOST_AT_ONCE
from anchorscope.engine.capture import AttentionSums, capture
from anchorscope.engine.decode import choice_log_probs, decode
from anchorscope.engine.forward import Prefix, compute_prefix
from anchorscope.engine.saliency import saliency
from anchorscope.engine.sequences import SITES
from anchorscope.errors import MemoryRanOut
from anchorscope.execute.collected import Collected
from anchorscope.execute.parts import ChoicesPart, DecodedPart, DevicePart, Part, SaliencyPart, StatesPart
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import product_kernels
from anchorscope.models.wrapping import without_knowledge
from anchorscope.plan.passes import ChoicesPass, DecodePass, DeviceWork, OutOfFoldProbes, SaliencyPass, StatesPass
from anchorscope.probes.crossfit import Scorer
from anchorscope.progress import Progress

_PREFIXES = 4  # shared beginnings whose keys and values are held at a time

Pass = StatesPass | DecodePass | SaliencyPass | ChoicesPass
"""A pass, whole or one batch of it."""
Shard = Pass | DeviceWork
"""What a worker is given: a pass, or work that needs the device without the model."""


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
        try:
            with product_kernels():
                if isinstance(shard, StatesPass) and shard.random_weights:
                    return self.without_knowledge._states(shard, progress)
                self.__dict__.pop("without_knowledge", None)  # as large as the model itself
                if isinstance(shard, StatesPass):
                    return self._states(shard, progress)
                if isinstance(shard, DecodePass):
                    return self._decode(shard, progress)
                if isinstance(shard, DeviceWork):
                    return DevicePart(shard.run(progress))
                if isinstance(shard, ChoicesPass):
                    return self._choices(shard, progress)
                return self._saliency(shard, progress)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory()  # outside the handler: the exception held on to every tensor of the pass
        raise MemoryRanOut

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
            Collected(self.lm, shard, variant, shard.keep[variant] if variant < len(shard.keep) else (), scorer)
            for variant in range(len(shard.variants))
        ]
        scored = range(len(shard.variants)) if shard.answer_stats else range(int(shard.log_probs))
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
            receive_answers=lambda variant, *found: collected[variant].receive_answers(*found),
            attention=shard.attention,
            receive_attention=weighed.append,
            progress=progress,
            title=shard.title,
        )
        for one in collected:
            one.fetch()
        counts = edges()
        answers = [one.answers() for one in collected[: len(scored)]]
        log_probs = {}
        if shard.log_probs:
            statistics = zip(collected[0].items.tolist(), answers[0].by_item(), strict=True)
            log_probs = {item: tuple(of_item[0].tolist()) for item, of_item in statistics}
        wanted = answers if shard.answer_stats else [None] * len(collected)
        parts = [one.part(stats) for one, stats in zip(collected, wanted, strict=True)]
        for variant, rows in enumerate(shard.into):
            states = parts[variant].states
            if rows is not None and states is not None:
                parts[variant] = replace(parts[variant], states=rows.write(states))
        attention = {item: mass for one in weighed for item, mass in one.masses(shard.sequences).items()}
        return StatesPart(tuple(parts), counts, log_probs, attention)

    def _decode(self, shard: DecodePass, progress: Progress) -> DecodedPart:
        ending = Ending(self.lm, shard.ending)
        return DecodedPart(
            decode(
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
        )

    def _choices(self, shard: ChoicesPass, progress: Progress) -> ChoicesPart:
        found = choice_log_probs(
            self.lm, shard.prompts, self.prefix(shard.prefix), shard.batches, shard.choices, progress, shard.title
        )
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
        return SaliencyPart(found)
