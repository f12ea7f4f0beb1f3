"""`auto`: the best stack near the training data, and away from it what held up on domains left out of training.

Domains are datasets, relations within one, or clusters of alike states where a dataset has no relations. Candidates are
confidence, and probes stacked with it. Each is fitted twice: with ordinary inner folds, as in use on questions like
those of training; and with inner folds that leave out whole domains, as on other data.

- Near the training states the candidate with the highest AUC over ordinary folds is used.
- Away from them confidence is used, or the mean of its log-odds and a candidate's, if that beats confidence on
  left-out domains by 1.64 standard errors.
- "Near" is a border in distance to the nearest training states: half-way between the medians of training answers whose
  domain is there and whose domain is left out. It is drawn closer until the whole loses at most `REGRET` of AUC to
  confidence on left-out domains; where no border does that, nothing is near.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.cluster.vq import kmeans2
from torch import Tensor

from anchorscope.detectors.data import DetectorFit, TrainingData, as_detector, fit_stacked
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import (
    NEIGHBOURS,
    SOFT,
    Fitted,
    TrainingRange,
    WeightedSum,
    WithFallback,
    mean_of_nearest,
)
from anchorscope.detectors.training import INNER_FOLDS, Dataset, Stacked, Training, calibrated

NO_REGRET = 1.64
"""Standard errors by which a candidate must beat confidence on left-out domains."""
REGRET = 0.005
"""AUC that the whole may lose to confidence on left-out domains."""
BORDERS = (1.0, 0.5, 0.25)
"""Shares of the training answers within the half-way distance that lie inside the border, the widest first."""
CLUSTERS = 8
"""Domains that are made of states where the data name none."""
DIRECTIONS = 32
"""Principal directions of a range at most; one for every fourth item."""
BEYOND = 0.05
"""The share of training states that lies beyond the limit of a range."""
MOST_STATES = 4000
"""Training states that a range remembers: evenly spread over all of them where there are more."""


def fit_auto(data: TrainingData, dataset: Dataset) -> DetectorFit:
    """`auto`; without log-probabilities the single probe takes the place of confidence."""
    codes = domain_codes(data, dataset.domains)
    own, left_out = Candidates.fit(data), Candidates.fit(data.with_training(data.training.leaving_out(codes)))
    near = data.training.inner_auc(own.scores).argmax(0).cpu()
    away = choose(left_out.shrunk, left_out.data.training, codes)
    ranges = Ranges(data, dataset.groups, codes)
    border = _draw_borders(left_out, near, away, ranges, codes)
    share = torch.sigmoid(ranges.outside(ranges.distance, border))
    scores = (1 - share) * _take(own.scores, near) + share * _take(left_out.shrunk, away)

    def build(number: int) -> Fitted:
        elsewhere = left_out.build(0, number)
        if away[number] > 0:
            stack = left_out.build(int(away[number]), number)
            elsewhere = WeightedSum((elsewhere, stack), (0.5, 0.5), (), (), 0.0)
        if not np.isfinite(border[number]):
            return elsewhere
        return WithFallback(
            own.build(int(near[number]), number), elsewhere, ranges.build(number, float(border[number]))
        )

    return DetectorFit(scores.float(), build)


@dataclass(frozen=True)
class Candidates:
    """Detectors to choose from, over the same training sets; the first is the one that is kept if none is better."""

    data: TrainingData
    fits: tuple[DetectorFit, ...]
    scaled: tuple[Stacked, ...]
    """Calibrated, so that they can be mixed."""

    @classmethod
    def fit(cls, data: TrainingData) -> "Candidates":
        """Confidence, and probes of one or of all layers with it."""
        every = [data.at_best(data.bank, [place]) for place in range(len(data.keys))]
        if data.confidence:
            fits = [fit_stacked(data, some, data.confidence) for some in ((), (data.probe,), every)]
        else:
            fits = [as_detector(data.probe), fit_stacked(data, every, ())]
        return cls(data, tuple(fits), tuple(calibrated(fit.scores, data.training) for fit in fits))

    @cached_property
    def scores(self) -> Float[Tensor, "candidate set item"]:
        """Calibrated log-odds."""
        return torch.stack([scale.scores for scale in self.scaled])

    @cached_property
    def shrunk(self) -> Float[Tensor, "candidate set item"]:
        """Half-way to the first candidate: what is used away from the training data."""
        return (self.scores + self.scores[:1]) / 2

    def build(self, candidate: int, number: int) -> Fitted:
        """A candidate of one training set, as it is used."""
        build, scale = self.fits[candidate].build, self.scaled[candidate]
        assert build is not None, "a candidate can be used"
        slope, bias = scale.of_set(number)
        return WeightedSum((build(number),), slope, (), (), bias)


def _take(scores: Float[Tensor, "candidate set item"], chosen: Int[Tensor, " set"]) -> Float[Tensor, "set item"]:
    """Log-odds of each training set's own candidate."""
    return scores[chosen.to(scores.device), torch.arange(len(chosen), device=scores.device)]


def domain_codes(data: TrainingData, domains: Sequence[str]) -> Int[np.ndarray, " item"]:
    """A number per item; where the data have fewer than three domains, those of clusters of alike states."""
    names, codes = np.unique(np.asarray(domains, dtype=str), return_inverse=True)
    if len(names) >= INNER_FOLDS:
        return codes
    middle = data.clean[len(data.layers) // 2].double().cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal states make fewer clusters
        return kmeans2(middle[:, :DIRECTIONS], min(CLUSTERS, len(middle)), minit="++", seed=0)[1].astype(np.int64)


def choose(
    candidates: Float[Tensor, "candidate set item"], training: Training, domains: Int[np.ndarray, " item"]
) -> Int[Tensor, " set"]:
    """Of the candidates that beat the first one by enough, each training set's best; else the first."""
    placed = np.stack([placements(scores, training).cpu().numpy() for scores in candidates])
    chosen = torch.zeros(training.n_sets, dtype=torch.long)
    for number, members in enumerate(training.members):
        labels, parts = training.labels[number, members], domains[members]
        gains = [compare(apart, labels, parts) for apart in (placed - placed[0])[1:, number, members]]
        enough = [gain if gain > NO_REGRET * error else 0.0 for gain, error in gains]
        chosen[number] = int(np.argmax([0.0, *enough]))
    return chosen


def _draw_borders(
    left_out: Candidates,
    near: Int[Tensor, " set"],
    away: Int[Tensor, " set"],
    ranges: "Ranges",
    domains: Int[np.ndarray, " item"],
) -> Float[np.ndarray, " set"]:
    """The widest border of each training set that costs left-out domains nothing; −∞ where each costs something."""
    training = left_out.data.training
    stack, fallback = _take(left_out.scores, near), _take(left_out.shrunk, away)
    reference = placements(left_out.scores[0], training).cpu().numpy()
    border = np.full(training.n_sets, -np.inf)
    for inside in reversed(BORDERS):
        limit = ranges.borders(inside)
        share = torch.sigmoid(ranges.outside(ranges.distance_elsewhere, limit))
        mixed = placements((1 - share) * stack + share * fallback, training).cpu().numpy()
        for number, members in enumerate(training.members):
            apart = (mixed - reference)[number, members]
            gain, _ = compare(apart, training.labels[number, members], domains[members])
            if gain >= -REGRET:
                border[number] = limit[number]
    return border


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


@dataclass(frozen=True)
class Ranges:
    """How far every item lies from the members of each training set, at the set's best layer.

    Directions and deviations are those of all items, labels unseen; neighbours are the set's own members.
    """

    data: TrainingData
    groups: Int[np.ndarray, " item"]
    domains: Int[np.ndarray, " item"]

    @cached_property
    def coordinates(self) -> dict[int, Float[Tensor, "item direction"]]:
        """States along the leading directions, each of deviation one; by the layer's place."""
        width = max(1, min(DIRECTIONS, self.data.features.n_items // 4, self.data.n_directions))
        found = {
            place: self.data.clean[place][:, :width].double() for place in np.unique(self.data.probe.best).tolist()
        }
        return {place: states / states.std(dim=0).clamp(min=1e-9) for place, states in found.items()}

    @cached_property
    def distance(self) -> Float[Tensor, "set item"]:
        """To members of other groups."""
        return self._distances(self.groups[:, None] == self.groups[None])

    @cached_property
    def distance_elsewhere(self) -> Float[Tensor, "set item"]:
        """To members of other domains: what it would be, were the item's own domain not in the training data."""
        same = self.domains[:, None] == self.domains[None]
        return self._distances(same | (self.groups[:, None] == self.groups[None]))

    def _distances(self, apart_from: Bool[np.ndarray, "item item"]) -> Float[Tensor, "set item"]:
        training, found = self.data.training, torch.empty(self.data.probe.scores.shape, dtype=torch.double)
        for place, states in self.coordinates.items():
            apart = torch.cdist(states, states).masked_fill(torch.from_numpy(apart_from).to(states.device), torch.inf)
            for number in np.flatnonzero(self.data.probe.best == place).tolist():
                members = torch.from_numpy(training.members[number]).to(apart.device)
                number_near = min(NEIGHBOURS, int(members.sum()) - 1)
                found[number] = mean_of_nearest(apart[:, members], number_near).cpu()
        return found.to(self.data.device)

    def borders(self, inside: float) -> Float[np.ndarray, " set"]:
        """The distance within which that share of each set's members lie that are nearer than half-way."""
        found = []
        sets = (self.distance.cpu().numpy(), self.distance_elsewhere.cpu().numpy(), self.data.training.members)
        for distance, elsewhere, members in zip(*sets, strict=True):
            half_way = (np.median(distance[members]) + np.median(elsewhere[members])) / 2
            found.append(np.quantile(distance[members][distance[members] <= half_way], inside))
        return np.array(found)

    def outside(
        self, distance: Float[Tensor, "set item"], border: Float[np.ndarray, " set"]
    ) -> Float[Tensor, "set item"]:
        """Log-odds of lying outside; infinite where a set has no border."""
        ends = torch.from_numpy(border).to(distance.device)[:, None]
        return torch.where(ends > -torch.inf, (distance - ends) / (SOFT * ends.clamp(min=1e-12)), torch.inf)

    def build(self, number: int, border: float | None = None) -> TrainingRange:
        """The range of one set, on raw states."""
        place, directions = int(self.data.probe.best[number]), self.data.directions
        known = self.coordinates[place].cpu()
        width = known.shape[1]
        spread = self.data.clean[place][:, :width].double().std(dim=0).clamp(min=1e-9).cpu()
        members = np.flatnonzero(self.data.training.members[number])
        remembered = members[np.linspace(0, len(members) - 1, min(len(members), MOST_STATES)).round().astype(int)]
        return TrainingRange(
            (CLEAN, self.data.site, self.data.layers[place]),
            (directions.weight[place, :width] / spread[:, None]).float(),
            (directions.offset[place, :width] / spread).float(),
            known[torch.from_numpy(remembered)].float(),
            float(self.distance[number].cpu()[torch.from_numpy(members)].quantile(1 - BEYOND)),
            border=border,
        )
