"""What a probe would seem to know of pathways that were dealt out at random: the null of the self-awareness experiment.

Pathways are dealt out anew within each fold, or within each fold and truth label: then they still go with the label as
the real ones do, and whatever a probe gains from telling true from false it gains under the null too. Every probe is
fitted anew, at the strength that the real pathways chose. Items are dealt out one by one, those of a group too.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.probes.crossfit import Splits
from anchorscope.probes.logistic import TrainingSets, fit_layers
from anchorscope.progress import Progress

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


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


def share_at_least(value: float, null: Floats) -> float | None:
    """One-sided p-value: the share of permutations that reach the value, the real one counted among them.

    Permutations whose value is not defined count neither way; None where nothing is left to compare.
    """
    defined = null[np.isfinite(null)]
    if not len(defined) or not np.isfinite(value):
        return None
    return float((1 + (defined >= value).sum()) / (1 + len(defined)))
