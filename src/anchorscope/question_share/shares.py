"""Shares in every draw of the bootstrap.

Three things vary: which items are measured (groups are drawn with replacement), which items taught the probes (the same
draw, through the jackknife's influence), and how the groups were halved (normal numbers, one per split). All shares of
a dataset use the same numbers, so that differences between them are paired.

A fourth thing varies and is not drawn: the strength that inner folds chose for the probes, and, where items are sorted,
who is in which third. In simulated worlds shares therefore spread a little more than the draws do; so draws are widened
by what was found there (docs/question-share.md).

The question share of one dataset: every site, position, layer and cut, with its floor, controls and nulls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.probes.folds import truth_strata
from anchorscope.progress import Progress
from anchorscope.question_share.evidence import (
    GROUPS,
    CleanEvidence,
    Halves,
    Lost,
    clean_evidence,
    lost_evidence,
    make_halves,
)
from anchorscope.stats.streams import stream

WIDER, THIRDS_WIDER = 1.1, 1.2
"""How much wider than the draws shares spread in simulated worlds: those of fixed sets of items, those of thirds."""
_THIRDS = range(GROUPS.index("lower third"), GROUPS.index("upper third") + 1)


class ShareDraws:
    """The draws: first the sample itself, then every resample."""

    def __init__(self, weights: Float[np.ndarray, "resample item"], n_splits: int, rng: np.random.Generator) -> None:
        self.counts = np.concatenate([np.ones((1, weights.shape[1])), weights]).astype(np.float32)
        noise = rng.standard_normal((len(weights), n_splits)) / np.sqrt(n_splits * max(1, n_splits - 1))
        self.noise = np.concatenate([np.zeros((1, n_splits)), noise]).astype(np.float32)

    def sums(self, values: Float[np.ndarray, "*batch item"]) -> Float[np.ndarray, "*batch draw"]:
        """Sums over the items of every draw."""
        return values.astype(np.float32) @ self.counts.T

    def shares(self, found: Lost, group: int) -> Float[np.ndarray, "problem draw"]:
        """A group's share; NaN in draws without evidence."""
        inside = found.members[:, group]
        drawn = self.ratio(found.lost * inside, found.had * inside) + self.spread(found, group)
        return drawn[:, :1] + (THIRDS_WIDER if group in _THIRDS else WIDER) * (drawn - drawn[:, :1])

    def ratio(
        self, lost: Float[np.ndarray, "problem item"], had: Float[np.ndarray, "problem item"]
    ) -> Float[np.ndarray, "problem draw"]:
        """Σ lost / Σ had."""
        lost_sums, had_sums = self.sums(lost), self.sums(had)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(had_sums != 0, lost_sums / had_sums, np.nan)

    def spread(self, found: Lost, group: int) -> Float[np.ndarray, "problem draw"]:
        """What a group's share varies by because of the probes' items and the splits."""
        influence = found.influence[:, group]
        taught = self.sums(influence) - influence.sum(-1, keepdims=True)
        return taught + found.by_split[:, group].astype(np.float32) @ self.noise.T

    def has_evidence(self, had: Float[np.ndarray, "problem item"]) -> Bool[np.ndarray, " problem"]:
        """Whether there is evidence that a share could be of: its sum is above zero in 97.5 % of the draws."""
        return np.percentile(self.sums(had)[:, 1:], 2.5, axis=-1) > 0


CLEAN, NONE, RANDOM, PERMUTED = "clean", "none", "random", "permuted"
"""Names of states and cuts beside those of interventions: nothing cut, and labels permuted within their relation."""


@dataclass(frozen=True)
class ShareItems:
    """The used items of a dataset, as the question share sees them."""

    labels: NDArray[np.bool_]
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    relations: Sequence[str | None]
    item_ids: Sequence[str]
    seed: int

    @cached_property
    def halves(self) -> Halves:
        """Their half splits: dealt out once, as every cut and null asks for them."""
        return make_halves(self.groups, truth_strata(self.labels, self.relations), self.seed, self.item_ids)


@dataclass(frozen=True)
class Shares:
    """What every cut took, over problems (place × layer)."""

    found: Mapping[str, Lost]
    """By cut: `knockout` at every place; `random`, `random 2` …, `none`, `permuted` at the headline."""
    n_layers: int
    headline: int
    """The headline's number among the places."""

    def at_headline(self, name: str) -> Lost:
        """A cut at the headline place, over layers."""
        one = self.found[name]
        if len(one.lost) == self.n_layers:
            return one
        start = self.headline * self.n_layers
        return Lost(*(part[start : start + self.n_layers] for part in one))

    def random_cuts(self) -> list[Lost]:
        """All draws of the random control at the headline."""
        names = [name for name in self.found if name == RANDOM or name.startswith(f"{RANDOM} ")]
        return [self.at_headline(name) for name in names]


def question_shares(
    principal: Mapping[str, Tensor], items: ShareItems, headline: int, device: str | torch.device, progress: Progress
) -> Shares:
    """Λ's parts from clean and cut states along their principal directions, [place, layer, item, direction] each."""
    halves = items.halves
    n_layers = principal[CLEAN].shape[1]
    clean = principal[CLEAN].flatten(0, 1)
    evidence = clean_evidence(clean, halves, items.labels, device, progress)
    here = slice(headline * n_layers, (headline + 1) * n_layers)
    cuts = {
        NONE: principal[CLEAN][headline : headline + 1],
        **{name: one for name, one in principal.items() if name != CLEAN},
    }
    found = {}
    for name, states in cuts.items():
        everywhere = len(states) == len(principal[CLEAN])
        known = evidence if everywhere else evidence.take(here)
        found[name] = lost_evidence(
            known, states.flatten(0, 1), halves, items.labels, items.folds, device, progress, f"question share: {name}"
        )
    knockout = principal[KNOCKOUT].flatten(0, 1)[here]
    had = found[KNOCKOUT].had[here]
    found[PERMUTED] = permuted_share(clean[here], knockout, had, items, device, progress)
    return Shares(found, n_layers, headline)


def knockout_share(
    clean: Tensor, cut: Tensor, items: ShareItems, name: str, device: str | torch.device, progress: Progress
) -> Lost:
    """What a cut takes, from clean and cut states at one place, [layer, item, direction] each."""
    halves = items.halves
    evidence = clean_evidence(clean, halves, items.labels, device, progress, f"question share: probes, {name}")
    title = f"question share: {name}"
    return lost_evidence(evidence, cut, halves, items.labels, items.folds, device, progress, title)


def held_out_scores(
    states: Tensor, items: ShareItems, name: str, device: str | torch.device, progress: Progress | None = None
) -> NDArray[np.floating]:
    """Log-odds [layer, item] by probes of the other half, mean over the splits."""
    halves = items.halves
    found = clean_evidence(states, halves, items.labels, device, progress, f"question share: probes, {name}")
    return found.held_out(halves).mean(1).numpy()


def further_shares(
    states: tuple[Tensor, Tensor],
    items: ShareItems,
    given: NDArray[np.floating],
    sets: NDArray[np.bool_] | None,
    device: str | torch.device,
    progress: Progress | None = None,
) -> tuple[Lost, Lost | None]:
    """What the knockout takes of the evidence that is left once features are `given`, and what it takes from further
    `sets` of items; `states` are the principal ones, clean and cut. It is soon done: nothing tells how far it is."""
    clean, cut = states
    halves, labels, folds = items.halves, items.labels, items.folds
    evidence = clean_evidence(clean, halves, labels, device)
    without = lost_evidence(evidence, cut, halves, labels, folds, device, given=given)
    return without, None if sets is None else lost_evidence(evidence, cut, halves, labels, folds, device, sets=sets)


def permuted_share(
    clean: Tensor,
    cut: Tensor,
    had: NDArray[np.floating],
    items: ShareItems,
    device: str | torch.device,
    progress: Progress,
) -> Lost:
    """What labels that mean nothing would lose, as a share of the evidence that is really there.

    Labels are permuted within their relation, probes are fitted on them anew.
    """
    labels = permuted_labels(items)
    halves = replace(items, labels=labels).halves
    evidence: CleanEvidence = clean_evidence(clean, halves, labels, device, progress, "question share: permuted labels")
    found = lost_evidence(evidence, cut, halves, labels, items.folds, device, progress, "question share: permuted")
    # Of labels that mean nothing the probes learn nothing: their sums vary with the measured items alone.
    return found._replace(had=had, influence=np.zeros_like(found.influence), by_split=np.zeros_like(found.by_split))


def permuted_labels(items: ShareItems) -> NDArray[np.bool_]:
    """Labels permuted within each relation."""
    rng = stream(items.seed, "permuted labels of the question share")
    labels = items.labels.copy()
    names = np.array([one or "" for one in items.relations])
    for name in np.unique(names):
        inside = np.flatnonzero(names == name)
        labels[inside] = labels[rng.permutation(inside)]
    return labels
