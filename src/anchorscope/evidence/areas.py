"""Areas under ROC curves (AUC) of many rows of scores in every draw of the bootstrap.

The definition is that of `stats.auc`: ties count half, only items of one stratum are compared, and strata are weighted
by their numbers of true–false pairs. Ranks do not depend on the draw, so each row is sorted once; a true item then wins
against as many false ones as the draw holds up to its place, which cumulative sums tell for all draws together. Counts
are whole numbers, and so are all their sums: how strata are taken together changes no bit.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.cumulative import weighted_sums
from anchorscope.evidence.draws import Draws, ratio

Floats = NDArray[np.floating]
Indices = NDArray[np.integer]

# Strata are taken together up to so many items. On a CPU, tables of more leave the cache; on a GPU fewer leave it idle,
# and the pairs of more would leave the whole numbers that single precision holds.
_ITEMS_AT_ONCE = {"cpu": 400, "cuda": 4096}


def areas(scores: Floats, labels: NDArray[np.bool_], strata: Indices, draws: Draws) -> Tensor:
    """AUC of scores [row, item] in every draw, [row, draw]; NaN where there is no pair."""
    wins = torch.zeros((len(scores), draws.counts.shape[1]), dtype=torch.float64, device=draws.device)
    pairs = torch.zeros_like(wins[0])
    for items, stratum in _whole_strata(strata, _ITEMS_AT_ONCE.get(draws.device.type, 400)):
        true, false = np.flatnonzero(labels[items]), np.flatnonzero(~labels[items])
        if len(true) == 0 or len(false) == 0:
            continue
        scored, within = draws.to_device(scores[:, items]), draws.to_device(stratum)
        either, counts = (draws.to_device(true), draws.to_device(false)), draws.counts[draws.to_device(items)]
        found, most = _won_pairs(scored, within, *either, counts, n_strata=int(stratum[-1]) + 1)
        wins += found
        pairs += most
    return ratio(wins, pairs.expand_as(wins))


def _whole_strata(strata: Indices, at_once: int) -> Iterator[tuple[Indices, Indices]]:
    """Items of some whole strata, and which of those strata each is in: 0, 1 …, in this order."""
    order = np.argsort(strata, kind="stable")
    _, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    first = 0
    for last in range(1, len(sizes) + 1):
        if last == len(sizes) or sizes[first : last + 1].sum() > at_once:
            here = sizes[first:last]
            yield order[starts[first] :][: here.sum()], np.repeat(np.arange(len(here)), here)
            first = last


def _won_pairs(
    scores: Tensor, stratum: Tensor, true: Tensor, false: Tensor, counts: Tensor, n_strata: int
) -> tuple[Tensor, Tensor]:
    """Weighted number of pairs that the true item wins [row, draw], and of all pairs [draw]."""
    keys = scores if n_strata == 1 else _ranks_by_stratum(scores, stratum)
    ranked_false, order = keys[:, false].sort(dim=1)
    keys_true = keys[:, true].contiguous()
    below = torch.searchsorted(ranked_false, keys_true)
    not_above = torch.searchsorted(ranked_false, keys_true, right=True)
    true_counts, false_counts = counts[true], counts[false]
    tied = (below != not_above).any(dim=1)
    wins = torch.empty((len(scores), counts.shape[1]), dtype=torch.float64, device=counts.device)
    for rows, stops in ((~tied, [below]), (tied, [below, not_above])):
        here = [stop[rows] for stop in stops]
        wins[rows] = weighted_sums(false_counts, order[rows], here, true_counts).double()
    of_strata = counts.new_zeros((2, n_strata, counts.shape[1]))
    of_strata[0].index_add_(0, stratum[true], true_counts)
    of_strata[1].index_add_(0, stratum[false], false_counts)
    # The sums run through all strata taken together: those before an item's own do not count.
    earlier = of_strata[1].cumsum(dim=0) - of_strata[1]
    pairs = of_strata[0].double() * of_strata[1].double()  # `prod` would be compiled first, for two seconds
    return wins - (of_strata[0] * earlier).double().sum(dim=0), pairs.sum(dim=0)


def _ranks_by_stratum(scores: Tensor, stratum: Tensor) -> Tensor:
    """Numbers that order the items by stratum first, then by score; equal where both are."""
    ranked, order = scores.sort(dim=1)
    steps = torch.zeros_like(order)
    steps[:, 1:] = ranked[:, 1:] > ranked[:, :-1]
    ranks = torch.empty_like(order).scatter_(1, order, steps.cumsum(dim=1))
    return stratum * scores.shape[1] + ranks
