"""Effects: an intervention's run, scored on the fly by the out-of-fold probes.

States go from the model straight through the probes on the device; only log-odds are kept (and, where a refit asks for
them, the states at the headline site), so memory does not grow with the number of experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.batching import Budget, plan_batches
from anchorscope.engine.capture import Work, capture
from anchorscope.engine.keys_values import Prefix
from anchorscope.errors import InterventionNotApplied
from anchorscope.interventions.intervention import Intervention, ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress

_SCORED_AT_ONCE = 64  # items whose clean states are on the device together


@dataclass(frozen=True)
class Effect:
    """Log-odds of "truthful" under one intervention."""

    intervention: str
    variant: str
    """The edges that were cut."""
    items: NDArray[np.int64]
    """Indices of the items that were run, in order."""
    n_cut: NDArray[np.int64]
    """Number of keys cut in each."""
    logits: NDArray[np.float32]
    """[item, position, site, probe, layer]."""
    states: Tensor | None
    """States at the headline site and position, [layer, item, d_model], where they are kept."""


def measure(
    lm: LanguageModel,
    tokens: Sequence[ItemTokens],
    prefix: Prefix,
    scorer: Scorer,
    intervention: Intervention,
    edges: str,
    headline: tuple[int, int],
    budget: Budget,
    seed: int,
    progress: Progress | None = None,
) -> Effect:
    """Runs one intervention over the items; `headline` is (position, site) of the states to keep."""
    rng = np.random.default_rng([seed, sum(map(ord, intervention.name))])
    cuts = [intervention.cut(item, edges, rng) for item in tokens]
    chosen = _chosen(len(tokens), intervention.max_items, rng)
    chosen = {index for index in chosen if intervention.applies(tokens[index].parts)}
    # The no-op control runs other neighbours together: the point is what a different batch changes.
    order = rng.permutation(len(tokens)) if not intervention.changes else np.arange(len(tokens))
    lengths = [len(item.sequence.ids) - prefix.length for item in tokens]
    batches = [
        [index for index in batch if index in chosen] for batch in plan_batches(lengths, budget.tokens, order.tolist())
    ]
    collected = _Collected(len(tokens), scorer, headline if intervention.keeps_states else None)
    work = Work([item.sequence for item in tokens], prefix, [batch for batch in batches if batch], cuts, budget)
    capture(lm, work, collected.receive, intervention.name, progress)
    items = np.array(sorted(chosen), dtype=np.int64)
    return Effect(
        intervention=intervention.name,
        variant=edges,
        items=items,
        n_cut=np.array([cuts[index].n_cut for index in items], dtype=np.int64),
        logits=np.stack([collected.logits[index] for index in items]),
        states=collected.stacked(items),
    )


def score_states(scorer: Scorer, states: Tensor) -> NDArray[np.float32]:
    """Log-odds [item, position, site, probe, layer] of clean states [position, site, layer, item, d_model]."""
    device = scorer.weight.device
    found = []
    for start in range(0, states.shape[-2], _SCORED_AT_ONCE):
        part = states[..., start : start + _SCORED_AT_ONCE, :].to(device).permute(3, 0, 1, 2, 4)
        found.append(scorer.score(range(start, start + len(part)), part))
    return torch.cat(found).cpu().numpy()


def refuse_no_op(effect: Effect, clean: NDArray[np.float32]) -> None:
    """Raises where an item lost attention edges and yet every one of its scores is the same to the last bit."""
    unchanged = effect.logits == clean[effect.items]
    same = unchanged.reshape(len(effect.items), -1).all(axis=1)
    silent = np.flatnonzero(same & (effect.n_cut > 0))
    if len(silent):
        raise InterventionNotApplied(
            f"{effect.intervention}: {len(silent)} items lost attention edges and not one of their scores changed"
        )
    flat = np.flatnonzero(unchanged.all(axis=(0, *range(2, unchanged.ndim))))
    if len(flat) and (effect.n_cut > 0).any():
        raise InterventionNotApplied(f"{effect.intervention}: no score changed at position {flat[0]} of those read")


def _chosen(n: int, most: int | None, rng: np.random.Generator) -> set[int]:
    if most is None or n <= most:
        return set(range(n))
    return {int(index) for index in rng.choice(n, size=most, replace=False)}


class _Collected:
    """What comes back from the device, batch by batch."""

    def __init__(self, n: int, scorer: Scorer, keep: tuple[int, int] | None) -> None:
        self.scorer = scorer
        self.keep = keep
        self.logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * n
        self.states: dict[int, Tensor] = {}

    def receive(self, batch: list[int], states: Tensor) -> None:
        for index, logits in zip(batch, self.scorer.score(batch, states).cpu().numpy(), strict=True):
            self.logits[index] = logits
        if self.keep is not None:
            position, site = self.keep
            kept = states[:, position, site].cpu()
            self.states.update(zip(batch, kept, strict=True))

    def stacked(self, items: NDArray[np.int64]) -> Tensor | None:
        if self.keep is None:
            return None
        return torch.stack([self.states[int(index)] for index in items], dim=1)
