"""The shift that a cut gives to every item, and that says nothing about any one of them.

Cutting the question moves all of a probe's log-odds towards "false". One number s per fold and layer takes that away:
the one for which the share of items with log-odds − s > 0 after the cut equals the share with log-odds > 0 before it.
Labels are not used. Every bootstrap resample estimates its own s.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.cumulative import number_until
from anchorscope.evidence.draws import Draws

Floats = NDArray[np.floating]

_FEW = 16  # items looked at for the first that is drawn
_SPREAD, _MARGIN = 6, 8  # standard deviations, and some places more, in which a draw's last true call is looked for


def shifts(before: Floats, after: Floats, folds: NDArray[np.integer], n_folds: int, draws: Draws) -> Tensor:
    """s of every layer and fold in every draw, [layer, fold, draw], from log-odds [layer, item]."""
    found = torch.full((len(after), n_folds, draws.counts.shape[1]), math.nan, device=draws.device,
                       dtype=draws.to_device(after[:0]).dtype)  # fmt: skip
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        clean, cut = (draws.to_device(log_odds[:, inside]) for log_odds in (before, after))
        found[:, fold] = matching_shift(clean, cut, draws.take(inside))
    return found


def matching_shift(before: Tensor, after: Tensor, draws: Draws) -> Tensor:
    """s of one fold in every draw, [layer, draw], from log-odds [layer, item].

    Between the last item called true and the first called false any s would do. It is placed where zero lies between
    the two items around it before the cut: so a cut that changes nothing is not corrected at all, and one that moves
    every item alike is undone exactly.
    """
    positive = before > 0
    high, low = -_first_drawn(-before, positive, draws), _first_drawn(before, ~positive, draws)
    new_high, new_low = _around(after, positive, draws)
    share = torch.where(high > low, high / (high - low), 1.0)
    between = new_high - share * (new_high - new_low)
    # Where all items are called alike, the outermost one keeps its distance from zero.
    found = torch.where(high.isinf(), new_low - low, torch.where(low.isinf(), new_high - high, between))
    return found.to(after.dtype)


def _first_drawn(scores: Tensor, inside: Tensor, draws: Draws) -> Tensor:
    """The largest score inside, [layer, draw], among the items that are drawn; −∞ where there is none."""
    ranked, order = torch.where(inside, scores, -math.inf).sort(dim=1, descending=True)
    # A draw leaves out a third of the items: one of the first few is nearly always there.
    one = draws.counts.new_ones((1, len(scores), draws.counts.shape[1]))
    (places,) = number_until(draws.counts, order[:, :_FEW], one)
    if bool((places == _FEW).any()):
        (places,) = number_until(draws.counts, order, one)
    return _padded(ranked).gather(1, places)


def _around(scores: Tensor, positive: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Score of the last item that is called true and of the first called false, if as many are true as are positive.

    [layer, draw] each. That many of the highest scores are true; draws differ little in how many places these take.
    """
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    counts = draws.counts
    called_true = positive.to(counts.dtype) @ counts  # how many in each draw
    n, middle = len(counts), positive.sum(dim=1, keepdim=True)
    place = torch.empty_like(order).scatter_(1, order, torch.arange(n, device=order.device).expand_as(order))
    other = (positive != (place < middle)).sum(dim=1).max()  # each of these moves the place by its weight − 1
    width = min(n, 2 * math.ceil(_SPREAD * math.sqrt(int(other)) + _MARGIN))
    while True:
        first = (middle - width // 2).clamp(0, n - width)
        base = (place < first).to(counts.dtype) @ counts
        window = order.gather(1, first + torch.arange(width, device=order.device))
        # The first place by which all true calls are spent, and the first at which there are more items than that.
        rest = called_true - base
        last_true, first_false = number_until(counts, window, torch.stack([rest, rest + 1]))
        outside = (base >= called_true.clamp(min=1)) | ((first_false == width) & (first < n - width))
        if width == n or not bool(outside.any()):
            break
        width = n
    high, low = (_padded(ranked).gather(1, first + where) for where in (last_true, first_false))
    return torch.where(called_true > 0, high, math.inf), low


def _padded(ranked: Tensor) -> Tensor:
    """Scores in double precision, and what comes after the last."""
    return torch.nn.functional.pad(ranked.double(), (0, 1), value=-math.inf)
