"""Areas under ROC curves of many rows of scores in every draw of the bootstrap.

As in `stats.auc`: ties count half, only items of one stratum are compared, and strata are weighted by their numbers of
true–false pairs. Ranks do not depend on the draw, so each row is sorted once; a true item then beats as many false ones
as the draw holds up to its place, which running sums tell for all draws together.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.draws import Draws, ratio
from anchorscope.evidence.running import weighted_sums

Floats = NDArray[np.floating]
Indices = NDArray[np.integer]

_ITEMS_AT_ONCE = 400  # strata are taken together up to so many items: tables of more leave a processor's cache


def areas(scores: Floats, labels: NDArray[np.bool_], strata: Indices, draws: Draws) -> Tensor:
    """AUC of scores [row, item] in every draw, [row, draw]; NaN where there is no pair."""
    wins = torch.zeros((len(scores), draws.counts.shape[1]), dtype=torch.float64, device=draws.device)
    pairs = torch.zeros_like(wins[0])
    for items, places in _portions(strata):
        true, false = np.flatnonzero(labels[items]), np.flatnonzero(~labels[items])
        if len(true) == 0 or len(false) == 0:
            continue
        counts = draws.counts[draws.put(items)]
        found, most = _wins(draws.put(scores[:, items]), draws.put(places), draws.put(true), draws.put(false), counts)
        wins += found
        pairs += most
    return ratio(wins, pairs.expand_as(wins))


def _portions(strata: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Items of some whole strata, and which of those strata each is in: 0, 1 …"""
    order = np.argsort(strata, kind="stable")
    _, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    first = 0
    for last in range(1, len(sizes) + 1):
        if last == len(sizes) or sizes[first : last + 1].sum() > _ITEMS_AT_ONCE:
            here = sizes[first:last]
            yield order[starts[first] :][: here.sum()], np.repeat(np.arange(len(here)), here)
            first = last


def _wins(scores: Tensor, places: Tensor, true: Tensor, false: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted number of pairs that the true item wins [row, draw], and of all pairs [draw]."""
    keys = _comparable(scores, places)
    beaten, order = keys[:, false].sort(dim=1)
    asked = keys[:, true].contiguous()
    below = torch.searchsorted(beaten, asked)
    not_above = torch.searchsorted(beaten, asked, right=True)
    true_counts, false_counts = counts[true], counts[false]
    tied = (below != not_above).any(dim=1)
    wins = torch.empty((len(scores), counts.shape[1]), dtype=torch.float64, device=counts.device)
    for rows, stops in ((~tied, [below]), (tied, [below, not_above])):
        here = [stop[rows] for stop in stops]
        wins[rows] = weighted_sums(false_counts, order[rows], here, true_counts).double()
    of_strata = counts.new_zeros((2, int(places.max()) + 1, counts.shape[1]))
    of_strata[0].index_add_(0, places[true], true_counts)
    of_strata[1].index_add_(0, places[false], false_counts)
    # The sums run through all strata of the portion: those before an item's own do not count.
    earlier = of_strata[1].cumsum(dim=0) - of_strata[1]
    return wins - (of_strata[0] * earlier).double().sum(dim=0), of_strata.double().prod(dim=0).sum(dim=0)


def _comparable(scores: Tensor, places: Tensor) -> Tensor:
    """Numbers that order the items by stratum first, then by score; equal where both are."""
    if int(places.max()) == 0:
        return scores
    ranked, order = scores.sort(dim=1)
    steps = torch.zeros_like(order)
    steps[:, 1:] = ranked[:, 1:] > ranked[:, :-1]
    ranks = torch.empty_like(order).scatter_(1, order, steps.cumsum(dim=1))
    return places * scores.shape[1] + ranks
