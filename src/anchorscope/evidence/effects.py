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

from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import Work, capture
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.items import KNOCKOUT
from anchorscope.evidence.subset import some_items
from anchorscope.interventions.intervention import Intervention, ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.memory import ToHost
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
    run: NDArray[np.int64] | None = None
    """Which run of its item each row is, where an item is run several times; None where it is run once."""


def measure(
    lm: LanguageModel,
    tokens: Sequence[ItemTokens],
    prefix: Prefix,
    scorer: Scorer,
    interventions: Sequence[Intervention],
    edges: str,
    headline: tuple[int, int],
    budget: Budget,
    seed: int,
    progress: Progress | None = None,
    compiled: bool = False,
    most_items: int | None = None,
) -> list[Effect]:
    """Runs interventions over the items; `headline` is (position, site) of the states to keep.

    Those that cut something run together, so that what no cut has changed is computed once; those that cut the shared
    prefix run without it. The no-op control runs by itself, with other neighbours: the point is what a different batch
    changes. `most_items` limits what takes many passes.
    """
    planned = {one.name: _Planned.of(one, tokens, edges, seed, most_items) for one in interventions}
    found: dict[str, Effect] = {}
    for some in _together(list(planned.values())):
        collected = [_Collected(scorer, headline if one.intervention.keeps_states else None) for one in some]
        work = Work(
            [item.sequence for item in tokens], prefix.first(1) if some[0].intervention.whole else prefix,
            [Variant(one.cuts) for one in some], budget, order=some[0].order, compiled=compiled,
        )  # fmt: skip

        def receive(variant: int, batch: list[int], states: Tensor, into: list[_Collected] = collected) -> None:
            into[variant].receive(batch, states)

        capture(lm, work, receive, ", ".join(one.intervention.name for one in some), progress)
        found |= {
            one.intervention.name: into.effect(one, one.intervention.edges or edges)
            for one, into in zip(some, collected, strict=True)
        }
    return [found[one.name] for one in interventions]


@dataclass(frozen=True)
class _Planned:
    """An intervention with the cut of every item that it runs."""

    intervention: Intervention
    cuts: dict[int, Cut]
    order: list[int] | None

    @classmethod
    def of(
        cls, intervention: Intervention, tokens: Sequence[ItemTokens], edges: str, seed: int, most_items: int | None
    ) -> "_Planned":
        rng = name_rng(seed, intervention.name)
        cuts = [intervention.cut(item, edges, rng) for item in tokens]
        chosen = _chosen(len(tokens), intervention.max_items, rng)
        if intervention.many_passes:
            chosen &= set(some_items(len(tokens), most_items, seed).tolist())
        order = None if intervention.changes else rng.permutation(len(tokens)).tolist()
        run = sorted(index for index in chosen if intervention.applies(tokens[index]))
        return cls(intervention, {index: cuts[index] for index in run}, order)


def _together(planned: Sequence[_Planned]) -> list[list[_Planned]]:
    """Which interventions run in one pass; zeroing by itself, as every row beside it would take its slower way."""
    passes: dict[tuple[bool, str], list[_Planned]] = {}
    for one in planned:
        if one.intervention.changes:
            passes.setdefault((one.intervention.whole, one.intervention.how), []).append(one)
    return [*passes.values(), *([one] for one in planned if not one.intervention.changes)]


def name_rng(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one intervention."""
    return np.random.default_rng([seed, sum(map(ord, name))])


def score_states(scorer: Scorer, states: Tensor) -> NDArray[np.float32]:
    """Log-odds [item, position, site, probe, layer] of clean states [position, site, layer, item, d_model]."""
    device = scorer.weight.device
    found = []
    for start in range(0, states.shape[-2], _SCORED_AT_ONCE):
        part = states[..., start : start + _SCORED_AT_ONCE, :].to(device).permute(3, 0, 1, 2, 4)
        found.append(scorer.score(range(start, start + len(part)), part))
    return torch.cat(found).cpu().numpy()


def refuse_no_ops(effects: Sequence[Effect], clean: NDArray[np.float32]) -> None:
    """Raises where a cut cannot have been made; cutting nothing, which is among the effects, tells what noise does.

    The knockout must do more than noise; a control may do as little as it likes, as long as something changes.
    """
    still = next((effect for effect in effects if not effect.n_cut.any()), None)
    for effect in effects:
        refuse_no_op(effect, clean)
        cut = effect.n_cut > 0
        if still is None or not cut.any() or effect.intervention != KNOCKOUT:
            continue
        moved = float(np.median(_largest_change(effect, clean)[cut]))
        noise = float(np.median(_largest_change(still, clean)))
        if moved <= noise:
            raise InterventionNotApplied(
                f"{effect.intervention}: scores change by {moved:.2g} where edges are lost and by {noise:.2g} where "
                f"none are, so that no cut can be told from noise"
            )


def _largest_change(effect: Effect, clean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each item, over all positions, sites, probes and layers."""
    return np.abs(effect.logits - clean[effect.items]).reshape(len(effect.items), -1).max(axis=1)


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
    """One intervention's scores, which stay on the device until the end, and the states that are kept."""

    def __init__(self, scorer: Scorer, keep: tuple[int, int] | None) -> None:
        self.scorer = scorer
        self.keep = keep
        self.items: list[int] = []
        self.logits: list[Tensor] = []
        self.states: dict[int, Tensor] = {}
        self.to_host = ToHost(lambda batch, states: self.states.update(zip(batch, states, strict=True)))

    def receive(self, batch: list[int], states: Tensor) -> None:
        self.logits.append(self.scorer.score(batch, states))
        self.items += batch
        if self.keep is not None:
            position, site = self.keep
            self.to_host.put(batch, states[:, position, site].clone())  # a part of a batch would keep all of it

    def effect(self, planned: _Planned, edges: str) -> Effect:
        self.to_host.finish()
        # Where memory ran out within a batch, some of its items came twice: the last time counts.
        items, from_behind = np.unique(np.array(self.items, dtype=np.int64)[::-1], return_index=True)
        in_order = len(self.items) - 1 - from_behind
        states = [self.states[int(index)] for index in items] if self.keep is not None else []
        return Effect(
            intervention=planned.intervention.name,
            variant=edges,
            items=items,
            n_cut=np.array([planned.cuts[int(index)].n_cut for index in items], dtype=np.int64),
            logits=torch.cat(self.logits).cpu().numpy()[in_order],
            states=torch.stack(states, dim=1) if states else None,
        )
