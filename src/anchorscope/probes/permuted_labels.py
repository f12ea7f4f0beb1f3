"""What a probe would seem to know of labels that were dealt out at random: truth labels, or pathways.

Labels are dealt out anew within strata, such as folds and relations, or folds and truth labels where pathways are
dealt out: whatever a probe gains from telling the strata apart it gains under the null too. Every probe is fitted
anew, at the strength that the real labels chose. Items are dealt out one by one, those of a group too.

Chance need not be 0.5: with folds that are not even within relations, probes of permuted labels came to 0.46 in the
embedded demo. And an AUC of nothing spreads more widely than its bootstrap says, which knows only the probes as they
were fitted: with even folds chance is 0.50 there, give or take 0.04.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.probes.crossfit import Splits, fit_probes
from anchorscope.probes.logistic import TrainingSets, fit_layers
from anchorscope.progress import Progress
from anchorscope.stats.auc import auc

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

PERMUTATIONS = 199
"""Of truth labels: the 95 % range then leaves five out on either side."""


def dealt_anew(labels: Bools, strata: NDArray[np.integer], permutations: int, rng: np.random.Generator) -> Bools:
    """The labels, permuted among the items of each stratum, [permutation, item]."""
    found = np.repeat(labels[None], permutations, axis=0)
    for stratum in np.unique(strata):
        inside = np.flatnonzero(strata == stratum)
        found[:, inside] = rng.permuted(found[:, inside], axis=1)
    return found


def null_scores(
    states: Tensor, splits: Splits, strength: Floats, labels: Bools, device: torch.device, progress: Progress
) -> Floats:
    """Out-of-fold log-odds [permutation, layer, item] of probes that learn permuted labels [permutation, item].

    `states` are [layer, item, d_model]; `strength` [layer, fold]; the training sets are those of the first probe.
    """
    # The solver knows one label per item. So each item stands there twice, once with each label, and every permutation
    # learns from the one that it means: all of them are then columns of one problem.
    training, n, n_folds = splits.training[0], len(splits.folds), splits.training.shape[1]
    learned = np.concatenate([training & labels[:, None], training & ~labels[:, None]], axis=-1)
    found = []
    for layer, chosen in zip(states, strength, strict=True):
        sets = TrainingSets(
            labels=torch.arange(2 * n) < n,
            members=torch.as_tensor(learned.reshape(-1, 2 * n)),
            scaled_on=torch.as_tensor(np.concatenate([training, np.zeros_like(training)], axis=-1)),
            scaling=torch.arange(n_folds).repeat(len(labels)),
            strengths=torch.as_tensor(chosen).repeat(len(labels)),
        )
        fitted = fit_layers(torch.cat([layer, layer])[None], sets, device)
        logits = fitted.logits[0, :, :n].unflatten(0, (len(labels), n_folds))
        found.append(logits[:, torch.as_tensor(splits.folds), torch.arange(n)])
        progress.advance(len(labels))
    return torch.stack(found, dim=1).numpy()


def permuted_truth(splits: Splits, rng: np.random.Generator) -> Bools:
    """Truth labels permuted among the items of a fold and relation, so that chance is what these folds make it."""
    return dealt_anew(splits.labels, _comparable(splits), PERMUTATIONS, rng)


def permuted_areas(
    states: Tensor,
    splits: Splits,
    reference: NDArray[np.int64],
    labels: Bools,
    device: str | torch.device,
    progress: Progress,
) -> Floats:
    """AUC of probes that learn permuted labels [permutation, item] from states [layer, item, d_model], [permutation].

    Each fold is read at its own reference layer, and only there are probes fitted.
    """
    device = torch.device(device)
    scores = np.empty(labels.shape)
    layers = np.unique(reference)
    progress.start("permuted labels", len(labels) * len(layers))
    for layer in layers:
        own = np.flatnonzero(reference == layer)
        place = np.searchsorted(own, splits.folds).clip(max=len(own) - 1)  # of no meaning for items of other folds
        here = replace(
            splits,
            folds=place,
            training=splits.training[:1, own],
            inner=splits.inner[:1, own],
            probes=splits.probes[:1],
        )
        (chosen,) = fit_probes(states[[layer]][None], here, [f"permuted labels layer {layer}"], device)
        found = null_scores(states[[layer]], here, chosen.strength[0].T, labels, device, progress)
        inside = np.isin(splits.folds, own)
        scores[:, inside] = found[:, 0, inside]
    progress.finish()
    return auc(scores, labels, splits.folds)


def _comparable(splits: Splits) -> NDArray[np.int64]:
    """Fold and relation of every item; relations with but one label in a fold are one there, or nothing could move."""
    relation = splits.strata // 2
    cell = splits.folds * (relation.max() + 2) + relation + 1
    _, place = np.unique(cell, return_inverse=True)
    true, items = np.bincount(place, weights=splits.labels), np.bincount(place)
    return np.where(((true > 0) & (true < items))[place], cell, splits.folds * (relation.max() + 2))


def share_at_least(value: float, null: Floats) -> float | None:
    """One-sided p-value: the share of permutations that reach the value, the real one counted among them.

    Permutations whose value is not defined count neither way; None where nothing is left to compare.
    """
    defined = null[np.isfinite(null)]
    if not len(defined) or not np.isfinite(value):
        return None
    return float((1 + (defined >= value).sum()) / (1 + len(defined)))
