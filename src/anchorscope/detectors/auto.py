"""`auto`: the detector that an inner comparison supports at its price; confidence where a state is unlike all seen.

Candidates are tried in the order of their price. A dearer one replaces a cheaper one only if it is surely better on the
training items that its fits did not see: the difference of both AUCs has to exceed its standard error so many times.
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
from anchorscope.detectors.probe_detectors import DetectorFit
from anchorscope.detectors.training import INNER_FOLDS, Stacked, Training, calibrated

ONE_MORE_PASS = 1.64
"""Standard errors that a dearer candidate has to be better by."""
SAME_PRICE = 1.0
"""Standard errors that a candidate of the same price has to be better by."""


@dataclass(frozen=True)
class Candidate:
    """A detector to choose."""

    name: str
    passes: int
    fit: DetectorFit


def fit_auto(
    data: TrainingData, groups: Int[np.ndarray, " item"], candidates: Sequence[Candidate], fallback: DetectorFit
) -> tuple[DetectorFit, list[str]]:
    """The chosen detector within the training range, the fallback outside; and each training set's choice."""
    chosen = choose(candidates, data.training)
    scaled = [calibrated(one.fit.scores, data.training) for one in candidates]
    back = calibrated(fallback.scores, data.training)
    rows = torch.arange(data.training.n_sets, device=data.device)
    own = torch.stack([one.scores for one in scaled])[chosen.to(data.device), rows]
    outside, ranges = _ranges(data, groups)
    share = torch.sigmoid(outside.double())
    scores = (1 - share) * own + share * back.scores

    def build(number: int) -> Fitted:
        place = int(chosen[number])
        return WithFallback(
            _scaled(candidates[place].fit, scaled[place], number), _scaled(fallback, back, number), ranges(number)
        )

    return DetectorFit(scores.float(), build), [candidates[int(place)].name for place in chosen]


def _scaled(fit: DetectorFit, scale: Stacked, number: int) -> Fitted:
    assert fit.build is not None, "a candidate can be used"
    slope, bias = float(scale.weight[number, INNER_FOLDS, 0]), float(scale.bias[number, INNER_FOLDS])
    return WeightedSum((fit.build(number),), (slope,), (), (), bias)


def choose(candidates: Sequence[Candidate], training: Training) -> Int[Tensor, " set"]:
    """The candidate of each training set."""
    placed = [placements(one.fit.scores, training) for one in candidates]
    found = torch.zeros(training.n_sets, dtype=torch.long)
    passes = torch.tensor([one.passes for one in candidates])
    for number in range(training.n_sets):
        now = 0
        for place in range(1, len(candidates)):
            gain, error = _difference(placed[place][number] - placed[now][number], training, number)
            wanted = ONE_MORE_PASS if passes[place] > passes[now] else SAME_PRICE
            if gain > wanted * error:
                now = place
        found[number] = now
    return found


def placements(scores: Float[Tensor, "set item"], training: Training) -> Float[Tensor, "set item"]:
    """For each member, how many members of the other class in its inner fold it stands on the right side of (a share).

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
            mine = held[:, fold] & (targets == value)
            found = torch.where(mine, share, found)
    return found


def _difference(apart: Float[Tensor, " item"], training: Training, number: int) -> tuple[float, float]:
    """Mean difference of two candidates' placements, and its standard error."""
    members = torch.from_numpy(training.members[number]).to(apart.device)
    targets = torch.from_numpy(training.labels[number]).to(apart.device)
    parts = [apart[members & (targets == value)] for value in (True, False)]
    gain = sum(float(part.mean()) for part in parts) / 2
    return gain, sum(float(part.var()) / len(part) for part in parts) ** 0.5


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
