"""`auto`: probes stacked with confidence, if that beats confidence on domains left out of training; else confidence.

Domains are datasets, or relations within one. Layers, strengths and stacking weights are fitted so that every item is
scored by fits that never saw its domain, which is what happens on other data. A candidate replaces confidence only if
its gain there exceeds 1.64 standard errors; so where a probe does not transfer, `auto` is confidence. A state unlike
all training states is left to confidence, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import (
    BEYOND,
    DIRECTIONS,
    MOST_STATES,
    NEIGHBOURS,
    SOFT,
    Fitted,
    TrainingRange,
    WeightedSum,
    WithFallback,
)
from anchorscope.detectors.probe_detectors import (
    DetectorFit,
    fit_columns,
    fit_ensemble,
    fit_probe,
    fit_probe_confidence,
)
from anchorscope.detectors.training import INNER_FOLDS, Stacked, Training, calibrated

NO_REGRET = 1.64
"""Standard errors by which a candidate must beat confidence on left-out domains."""
BETTER = 1.0
"""Standard errors by which a later candidate must beat the one that has beaten confidence."""


def fit_auto(
    data: TrainingData, groups: Int[np.ndarray, " item"], domains: Sequence[str]
) -> tuple[DetectorFit, list[str]]:
    """The chosen detector within the training range, confidence outside; and the name of each training set's choice.

    Without log-probabilities the single probe takes the place of confidence.
    """
    codes = np.unique(np.asarray(domains, dtype=str), return_inverse=True)[1]
    left_out = data.with_training(data.training.leaving_out(codes))
    if data.confidence:
        candidates = {
            "confidence": fit_columns(left_out, data.confidence),
            "probe+confidence": fit_probe_confidence(left_out),
            "ensemble+confidence": fit_ensemble(left_out, with_confidence=True),
        }
    else:
        candidates = {"probe": fit_probe(left_out), "ensemble": fit_ensemble(left_out)}
    names, fits = list(candidates), list(candidates.values())
    chosen = choose([fit.scores for fit in fits], left_out.training, codes)
    scaled = [calibrated(fit.scores, left_out.training) for fit in fits]
    outside, ranges = _ranges(left_out, groups)
    rows = torch.arange(data.training.n_sets, device=data.device)
    own = torch.stack([scale.scores for scale in scaled])[chosen.to(data.device), rows]
    share = torch.sigmoid(outside.double())
    scores = (1 - share) * own + share * scaled[0].scores

    def build(number: int) -> Fitted:
        place = int(chosen[number])
        base = _scaled(fits[0], scaled[0], number)
        return base if place == 0 else WithFallback(_scaled(fits[place], scaled[place], number), base, ranges(number))

    return DetectorFit(scores.float(), build), [names[int(place)] for place in chosen]


def _scaled(fit: DetectorFit, scale: Stacked, number: int) -> Fitted:
    assert fit.build is not None, "a candidate can be used"
    slope, bias = float(scale.weight[number, INNER_FOLDS, 0]), float(scale.bias[number, INNER_FOLDS])
    return WeightedSum((fit.build(number),), (slope,), (), (), bias)


def choose(
    candidates: Sequence[Float[Tensor, "set item"]], training: Training, domains: Int[np.ndarray, " item"]
) -> Int[Tensor, " set"]:
    """The candidate of each training set; the first is the one that is kept if none is better."""
    placed = [placements(scores, training).cpu().numpy() for scores in candidates]
    chosen = torch.zeros(training.n_sets, dtype=torch.long)
    for number, members in enumerate(training.members):
        own = [scores[number, members] for scores in placed]
        labels, parts = training.labels[number, members], domains[members]
        now = 0
        for place in range(1, len(own)):
            gain, error = compare(own[place] - own[0], labels, parts)
            further, error_now = compare(own[place] - own[now], labels, parts)
            if gain > NO_REGRET * error and (now == 0 or further > BETTER * error_now):
                now = place
        chosen[number] = now
    return chosen


def placements(scores: Float[Tensor, "set item"], training: Training) -> Float[Tensor, "set item"]:
    """For each member, the share of the other class's members in its inner fold that it is ranked correctly against.

    Their mean over one class is the AUC; their spread gives its error (DeLong, DeLong and Clarke-Pearson 1988).
    """
    held, targets = training.held_out(scores.device) > 0, training.targets(scores.device)
    found = torch.zeros_like(scores, dtype=torch.double)
    order = scores.argsort(-1)
    rank_back = order.argsort(-1)
    for fold in range(held.shape[1]):
        for value in (0.0, 1.0):
            other = held[:, fold] & (targets != value)
            below = other.gather(-1, order).double().cumsum(-1).gather(-1, rank_back)
            total = other.sum(-1, keepdim=True).double().clamp(min=1)
            share = below / total if value == 1.0 else 1 - below / total
            found = torch.where(held[:, fold] & (targets == value), share, found)
    return found


def compare(
    apart: Float[np.ndarray, " item"], labels: np.ndarray, domains: Int[np.ndarray, " item"]
) -> tuple[float, float]:
    """Gain in AUC from differences of placements, and its standard error: over items or domains, the larger."""
    parts = [apart[labels], apart[~labels]]
    gain = sum(part.mean() for part in parts) / 2
    over_items = sum(part.var(ddof=1) / len(part) for part in parts) ** 0.5
    each = [apart[domains == domain].mean() for domain in np.unique(domains)]
    over_domains = np.std(each, ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return float(gain), float(max(over_items, over_domains))


def _ranges(data: TrainingData, groups: Int[np.ndarray, " item"]) -> "tuple[Float[Tensor, 'set item'], _Ranges]":
    """How far outside the training range each item lies, for every set; and the range of any one set.

    Directions and deviations are those of all items, labels unseen; neighbours are the set's own members.
    """
    width = max(1, min(DIRECTIONS, data.features.n_items // 4, data.n_directions))
    outside = torch.empty_like(data.log_odds)
    limits = torch.empty(data.training.n_sets)
    coordinates = {}
    for place in np.unique(data.best).tolist():
        states = data.clean[place][:, :width].double()
        coordinates[place] = states / states.std(dim=0).clamp(min=1e-9)
        apart = torch.cdist(coordinates[place], coordinates[place])
        same = torch.as_tensor(groups[:, None] == groups[None]).to(apart.device)
        apart = apart.masked_fill(same, torch.inf)
        for number in np.flatnonzero(data.best == place).tolist():
            members = torch.from_numpy(data.training.members[number]).to(apart.device)
            nearest = apart[:, members].topk(min(NEIGHBOURS, int(members.sum()) - 1), largest=False).values
            distance = torch.where(torch.isfinite(nearest), nearest, torch.nan).nanmean(-1).nan_to_num(nan=torch.inf)
            limit = distance[members].quantile(1 - BEYOND)
            limits[number] = limit
            outside[number] = ((distance - limit) / (SOFT * limit.clamp(min=1e-12))).float()
    return outside, _Ranges(data, coordinates, limits.tolist())


@dataclass(frozen=True)
class _Ranges:
    """The training ranges of all sets."""

    data: TrainingData
    coordinates: dict[int, Float[Tensor, "item direction"]]
    """By the layer's place."""
    limit: list[float]

    def __call__(self, number: int) -> TrainingRange:
        """The range of one set, on raw states."""
        place = int(self.data.best[number])
        known = self.coordinates[place].cpu()
        width, directions = known.shape[1], self.data.directions
        spread = self.data.clean[place][:, :width].double().std(dim=0).clamp(min=1e-9).cpu()
        members = np.flatnonzero(self.data.training.members[number])
        kept = members[np.linspace(0, len(members) - 1, min(len(members), MOST_STATES)).round().astype(int)]
        return TrainingRange(
            (CLEAN, self.data.site, self.data.layers[place]),
            (directions.weight[place, :width] / spread[:, None]).float(),
            (directions.offset[place, :width] / spread).float(),
            known[torch.from_numpy(kept)].float(),
            self.limit[number],
        )
