"""Evidence that was there, and what a cut takes of it, item by item (docs/question-share.md).

**Halves.** Groups are dealt to two halves again and again. In each split a probe learns from one half and scores the
other; what the cut state still explains of those scores is learned within that other half, out of fold. So z, the
clean log-odds, has never seen a label of the half it is used in. (Scores of ordinary cross-fitted probes would not do:
anything that explains them from states learns, through them, the labels that they were trained on.)

**Lost.** s = ±1 is the label. What the cut state explains of s and z (ridge regression, out of fold) is taken away:
(s − ŝ)(z − ẑ) is the evidence that needs what was cut, s·z is all of it. Both are averaged over the splits; the share
of a set of items is the ratio of their sums. Three things that simulations asked for:
Residuals that are out of fold carry the noise of their own estimation, the same in both: their product is divided by
1 + its share, which is exact for least squares with equal variances (the HC2 estimator does the same).
ẑ is penalised ten times less than predicts best: a product of two residuals is unbiased as soon as one of them is.
A share varies with the items that are measured, with those that taught the probes and with the splits: intervals count
all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.grid_search import INNER_FOLDS, grid_search
from anchorscope.progress import Progress, Silent
from anchorscope.stats.streams import priorities

SPLITS = 8
"""Half splits that are averaged over."""
RIDGE_FOLDS = 5
"""Folds within a half: who is explained is never learned from."""


@dataclass(frozen=True)
class Halves:
    """Who learns from whom; the same for every layer, site, position and intervention of a dataset."""

    first: Bool[np.ndarray, "split item"]
    """Whether an item is in the first half."""
    folds: Int[np.ndarray, "split item"]
    """Fold of each item within its own half."""
    inner: Int[np.ndarray, "split side item"]
    """Inner fold of the probe that learns from each half, -1 for items of the other one."""

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.first)

    @property
    def training(self) -> Bool[np.ndarray, "training_set item"]:
        """The items that each split's two probes learn from."""
        return (self.inner >= 0).reshape(-1, self.inner.shape[-1])


def make_halves(
    groups: Int[np.ndarray, " item"],
    strata: Int[np.ndarray, " item"],
    seed: int,
    item_ids: Sequence[str],
    n_splits: int = SPLITS,
) -> Halves:
    """Splits drawn by the items' names; `strata` (relation × truth) are even in every half and fold."""
    n = len(strata)
    first = np.zeros((n_splits, n), dtype=bool)
    folds = np.zeros((n_splits, n), dtype=np.int64)
    inner = np.full((n_splits, 2, n), -1, dtype=np.int64)
    for split in range(n_splits):
        order = priorities(seed, f"question share half {split}", item_ids)
        half = grouped_folds(groups, strata, 2, order)
        first[split] = half == 0
        for side in range(2):
            inside = np.flatnonzero(half == side)
            for purpose, n_folds, table in (
                ("fold", RIDGE_FOLDS, folds[split]),
                ("inner fold", INNER_FOLDS, inner[split, side]),
            ):
                drawn = priorities(seed, f"question share {purpose} {split}", item_ids)[inside]
                table[inside] = grouped_folds(groups[inside], strata[inside], n_folds, drawn)
    return Halves(first, folds, inner)


class CleanEvidence(NamedTuple):
    """The probes of the half splits and their log-odds of the clean states, in host memory."""

    principal: Float[Tensor, "problem item direction"]
    """The clean states that the probes read."""
    strength: Float[Tensor, "problem split side"]
    """The probes' C."""
    by_probe: Float[Tensor, "problem split side item"]
    """Log-odds of every item by both probes of a split."""
    factor: Float[Tensor, "problem split side feature feature"]
    """Cholesky factor of each probe's Hessian, over the directions and the intercept."""
    step: Float[Tensor, "problem split side item"]
    """What an item adds to a probe's gradient, per unit of weight, over 1 − leverage; 0 where it does not teach it."""

    def held_out(self, halves: Halves) -> Float[Tensor, "problem split item"]:
        """z: every item by the probe that learned from the half it is not in."""
        first = torch.as_tensor(halves.first, device=self.by_probe.device)
        return torch.where(first, self.by_probe[:, :, 1], self.by_probe[:, :, 0])

    def take(self, problems: slice) -> "CleanEvidence":
        """The same of some problems."""
        return CleanEvidence(*(part[problems] for part in self))

    def to(self, device: torch.device) -> "CleanEvidence":
        """The same on a device, in double precision."""
        return CleanEvidence(*(part.to(device).double() for part in self))

    def response(
        self, halves: Halves, pull: Float[Tensor, "problem group split item"]
    ) -> Float[Tensor, "problem group item"]:
        """How much Σ pull·z, over all splits, moves per unit of weight that an item has in the probes' training.

        The jackknife of logistic regression by one step of Newton's method: H⁻¹ · gradient / (1 − leverage).
        """
        states = _with_intercept(self.principal)
        first = torch.as_tensor(halves.first, device=pull.device)
        found = torch.zeros_like(pull[:, :, 0])
        for split in range(halves.n_splits):
            for side in range(2):
                scored = first[split] != (side == 0)  # by this probe: the half that it did not learn from
                towards = (pull[:, :, split] * scored) @ states
                moved = torch.cholesky_solve(towards.transpose(1, 2), self.factor[:, split, side])
                found += (states @ moved).transpose(1, 2) * self.step[:, split, side][:, None]
        return found


def clean_evidence(
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "question share: probes",
) -> CleanEvidence:
    """Fits the probes of all splits and scores all items by them."""
    device = torch.device(device)
    inner = halves.inner.reshape(-1, len(labels))
    (found,), _ = grid_search(principal[None], labels, halves.training, inner, device, progress, title, rescale=False)
    scores = torch.baddbmm(found.bias[..., None], found.weight, principal.transpose(1, 2))
    training, truth = torch.as_tensor(halves.training, device=device), torch.as_tensor(labels, device=device)
    places = torch.arange(len(principal))[:, None, None]
    plan = plan_chunks((len(principal), 2 * len(labels), principal.shape[-1]), 2 * len(training), device)

    @torch.no_grad()
    def curvature(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, Tensor]:
        here = slice(int(chunk[0]), int(chunk[-1]) + 1)
        states, scored, strength = (part[here].to(device).double() for part in (principal, scores, found.strength))
        made = _newton_parts(states, scored, strength, training, truth)
        return made[0].float().cpu(), made[1].float().cpu()

    with true_float32():
        factors, steps = zip(*in_chunks(places, plan, device, curvature), strict=True)
    sides = (halves.n_splits, 2)
    return CleanEvidence(
        principal,
        *(part.unflatten(1, sides) for part in (found.strength, scores, torch.cat(factors), torch.cat(steps))),
    )


def _with_intercept(states: Tensor) -> Tensor:
    return torch.nn.functional.pad(states, (0, 1), value=1.0)


def _newton_parts(
    principal: Tensor, scores: Tensor, strength: Tensor, training: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Factor of each probe's Hessian [problem, training set, …], and every item's step."""
    states, sure = _with_intercept(principal), torch.sigmoid(scores)
    penalised = torch.ones(states.shape[-1], dtype=states.dtype, device=states.device)
    penalised[-1] = 0  # the intercept is free
    weight = strength[..., None] * training
    curvature = weight * sure * (1 - sure)
    factors, steps = [], []
    for one in range(len(training)):  # one at a time: all together would hold every item of every probe once more
        hessian = (states * curvature[:, one, :, None]).transpose(1, 2) @ states + torch.diag(penalised)
        factor = torch.linalg.cholesky(hessian)
        whitened = torch.linalg.solve_triangular(factor, states.transpose(1, 2), upper=False)
        leverage = curvature[:, one] * whitened.square().sum(1)
        factors.append(factor)
        steps.append(weight[:, one] * (labels.to(states.dtype) - sure[:, one]) / (1 - leverage))
    return torch.stack(factors, dim=1), torch.stack(steps, dim=1)


PENALTIES = tuple(float(one) for one in np.logspace(-5, 4, 19))
"""Penalties to choose from, as multiples of the number of items times the directions' mean variance."""


class Cells(NamedTuple):
    """The items of every split, half and fold, as a padded table."""

    items: Int[Tensor, "cell place"]
    """Item numbers; cells run over splits, then halves, then folds."""
    real: Float[Tensor, "cell place"]
    """1 where a place holds an item, 0 where it is padding."""
    n_splits: int
    n_folds: int

    def gather(self, values: Float[Tensor, "... split item"]) -> Float[Tensor, "... cell place"]:
        """Values of the items in each cell's own split; 0 at padding."""
        of_cells = values.repeat_interleave(len(self.items) // self.n_splits, dim=-2)
        return of_cells.gather(-1, self.items.expand_as(of_cells[..., : self.items.shape[1]])) * self.real

    def scatter(self, values: Float[Tensor, "... cell place"], n_items: int) -> Float[Tensor, "... split item"]:
        """The reverse of `gather`."""
        split = torch.arange(len(self.items), device=values.device) // (len(self.items) // self.n_splits)
        here = self.real > 0
        found = values.new_zeros(*values.shape[:-2], self.n_splits * n_items)
        found[..., (split[:, None] * n_items + self.items)[here]] = values[..., here]
        return found.unflatten(-1, (self.n_splits, n_items))

    def others(self, of_cells: Tensor, axis: int = 1) -> Tensor:
        """Sums over the other folds of the same half, from sums of each cell along an axis."""
        by_fold = of_cells.unflatten(axis, (-1, self.n_folds))
        return (by_fold.sum(axis + 1, keepdim=True) - by_fold).flatten(axis, axis + 1)


def half_cells(halves: Halves, device: torch.device) -> Cells:
    """The table of who is in which split, half and fold."""
    cell = np.where(halves.first, 0, RIDGE_FOLDS) + halves.folds
    return _cells(cell, 2 * RIDGE_FOLDS, RIDGE_FOLDS, device)


def fold_cells(folds: Int[np.ndarray, " item"], device: torch.device) -> Cells:
    """The same for one split into folds of all items."""
    n_folds = int(folds.max()) + 1
    return _cells(folds[None], n_folds, n_folds, device)


def _cells(cell: Int[np.ndarray, "split item"], per_split: int, n_folds: int, device: torch.device) -> Cells:
    inside: Bool[np.ndarray, "cell item"] = (cell[:, None] == np.arange(per_split)[:, None]).reshape(-1, cell.shape[1])
    items = np.argsort(~inside, axis=1, kind="stable")[:, : int(inside.sum(1).max())]
    real = np.take_along_axis(inside, items, axis=1)
    tables = torch.as_tensor(items, device=device), torch.as_tensor(real, device=device).double()
    return Cells(*tables, len(cell), n_folds)


class Spectrum:
    """One decomposition of the states of several problems, from which the penalty of any target is chosen."""

    def __init__(self, states: Float[Tensor, "problem item direction"]) -> None:
        centred = states - states.mean(1, keepdim=True)
        values, vectors = torch.linalg.eigh(centred.transpose(1, 2) @ centred)
        values = values.clamp(min=0)
        self.scores = centred @ vectors
        self.unit = values.mean(-1, keepdim=True)  # n times the mean variance
        self.inverses = [1 / (values + multiple * self.unit).clamp(min=1e-300) for multiple in PENALTIES]
        squared, n_items = self.scores.square(), states.shape[1]
        leverages = ((squared * inverse[:, None]).sum(-1) + 1 / n_items for inverse in self.inverses)
        self.kept = [(1 - leverage).clamp(min=1e-6)[:, None] for leverage in leverages]

    def penalty(self, target: Float[Tensor, "problem row item"]) -> Float[Tensor, " problem"]:
        """The penalty with the least leave-one-out error over all rows of a target."""
        target = target - target.mean(-1, keepdim=True)
        along, directions = target @ self.scores, self.scores.transpose(1, 2)
        errors = [
            ((target - (along * inverse[:, None]) @ directions) / kept).square().mean((1, 2))
            for inverse, kept in zip(self.inverses, self.kept, strict=True)
        ]
        chosen = torch.stack(errors, dim=-1).argmin(-1)
        return torch.tensor(PENALTIES, dtype=target.dtype, device=target.device)[chosen] * self.unit[:, 0]


class OutOfFold:
    """The states of several problems, ready to explain any target out of fold, in double precision."""

    def __init__(self, states: Float[Tensor, "problem item direction"], cells: Cells) -> None:
        self.cells, self.n_items = cells, states.shape[1]
        self.rows = states[:, cells.items] * cells.real[..., None]
        self.sizes = cells.others(cells.real.sum(-1)[None])
        self.mean = cells.others(self.rows.sum(2)) / self.sizes[..., None]
        outer = self.mean[..., :, None] * self.mean[..., None, :]
        self.gram = cells.others(self.rows.transpose(2, 3) @ self.rows) - self.sizes[..., None, None] * outer
        self.centred = (self.rows - self.mean[:, :, None]) * cells.real[..., None]

    def smoother(self, penalty: Float[Tensor, " problem"]) -> "Smoother":
        """The ridge regression with one penalty per problem."""
        diagonal = torch.diag_embed(penalty[:, None].expand(-1, self.rows.shape[-1]))[:, None]
        factor = torch.linalg.cholesky(self.gram + diagonal)
        return Smoother(self, torch.cholesky_solve(self.centred.transpose(2, 3), factor))

    def inflation(self, first: "Smoother", second: "Smoother") -> Float[Tensor, "problem split item"]:
        """What estimation adds to the product of two targets' residuals, as a share of it."""
        variance = ((self.gram @ first.weights) * second.weights).sum(2) + 1 / self.sizes[..., None]
        return self.cells.scatter(variance, self.n_items)


class Smoother(NamedTuple):
    """A linear map from a target to its out-of-fold predictions."""

    data: OutOfFold
    weights: Float[Tensor, "problem cell direction place"]
    """Of the cross products that an item's prediction is made from."""

    def predict(self, target: Float[Tensor, "problem split item"]) -> Float[Tensor, "problem split item"]:
        """The target as the other folds of the item's half explain it."""
        data, cells = self.data, self.data.cells
        values = cells.gather(target)
        level = cells.others(values.sum(-1)) / data.sizes
        cross = cells.others((data.rows * values[..., None]).sum(2))
        cross = cross - data.sizes[..., None] * data.mean * level[..., None]
        return cells.scatter(level[..., None] + (self.weights * cross[..., None]).sum(2), data.n_items)

    def adjoint(self, residual: Float[Tensor, "problem group split item"]) -> Float[Tensor, "problem group split item"]:
        """The transposed map: how much each item's target counts in the sum of predictions weighted by `residual`."""
        data, cells = self.data, self.data.cells
        values = cells.gather(residual)
        along = torch.einsum("pckm,pgcm->pgck", self.weights, values)
        constant = values.sum(-1) / data.sizes[:, None] - (along * data.mean[:, None]).sum(-1)
        along, constant = cells.others(along, 2), cells.others(constant, 2)
        found = torch.einsum("pcmk,pgck->pgcm", data.rows, along) + constant[..., None] * cells.real
        return cells.scatter(found, data.n_items)


GROUPS = ("all", "true", "false", "lower third", "middle third", "upper third")
"""Sets of items whose share is told: all, by truth, and thirds by predicted share."""
_UNDERSMOOTHED = 0.1  # of the penalty that predicts z best
_LEAST_EVIDENCE = 0.25  # of the mean: items of which less is predicted count as this much when shares are predicted
_WIDENING = 24  # numbers per item and direction that a problem takes at its peak, in units of a chunk's plan


class Lost(NamedTuple):
    """What a cut took from the evidence, over the splits, in host memory."""

    lost: Float[np.ndarray, "problem item"]
    """(s − ŝ)(z − ẑ): evidence that the cut state no longer explains."""
    had: Float[np.ndarray, "problem item"]
    """s·z: evidence that was there."""
    clean: Float[np.ndarray, "problem item"]
    """z: the clean log-odds."""
    explained: Float[np.ndarray, "problem item"]
    """ẑ: what the cut state explains of them."""
    predicted: Float[np.ndarray, "problem item"]
    """ℓ(x): the item's share as predicted from its cut state, out of fold."""
    members: Bool[np.ndarray, "problem group item"]
    """Who is in which of `GROUPS`."""
    influence: Float[np.ndarray, "problem group item"]
    """How a group's share moves per unit of weight that an item has in teaching the probes."""
    by_split: Float[np.ndarray, "problem group split"]
    """How far each split alone would take a group's share from the mean of all."""

    def stored(self) -> dict[str, NDArray[Any]]:
        """The parts by name, numbers in single precision: as they are kept."""
        parts = self._asdict().items()
        return {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in parts}


def lost_evidence(
    evidence: CleanEvidence,
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "question share",
    sets: Bool[np.ndarray, "set item"] | None = None,
    given: Float[np.ndarray, "item feature"] | None = None,
) -> Lost:
    """What is lost of the evidence when the states become `principal` (those under a cut).

    `folds` are those by which shares are predicted. Shares of further `sets` of items follow those of `GROUPS`. What is
    `given` (standardised features) explains as the cut state does, and what it explains does not count as evidence.
    """
    device = torch.device(device)
    listener = progress or Silent()
    n_problems, n_items, n_directions = principal.shape
    listener.start(title, n_problems)
    work = _Explainer(halves, labels, folds, device, sets, given)
    places = torch.arange(n_problems)[:, None, None]
    plan = plan_chunks((n_problems, _WIDENING * n_items, n_directions), halves.n_splits, device)

    @torch.no_grad()
    def explain(chunk: Tensor, plan: ChunkPlan) -> list[Tensor]:
        here = slice(int(chunk[0]), int(chunk[-1]) + 1)
        found = work.explain(evidence.take(here).to(device), principal[here].to(device).double())
        return [part.cpu() for part in found]

    parts = []
    with true_float32():
        for one in in_chunks(places, plan, device, explain):
            parts.append(one)
            listener.advance(len(one[0]))
    listener.finish()
    return Lost(*(torch.cat(column).numpy() for column in zip(*parts, strict=True)))


class _Explainer:
    """Explains evidence from the states of a chunk of problems, on the device."""

    def __init__(
        self,
        halves: Halves,
        labels: Bool[np.ndarray, " item"],
        folds: Int[np.ndarray, " item"],
        device: torch.device,
        sets: Bool[np.ndarray, "set item"] | None,
        given: Float[np.ndarray, "item feature"] | None,
    ) -> None:
        self.halves, self.labels = halves, torch.as_tensor(labels, device=device)
        self.cells, self.fold_cells = half_cells(halves, device), fold_cells(folds, device)
        self.sign = torch.where(self.labels, 1.0, -1.0).double()
        self.sets = None if sets is None else torch.as_tensor(sets, device=device)
        self.given = None if given is None else torch.as_tensor(given, device=device).double()

    def explain(self, evidence: CleanEvidence, states: Tensor) -> tuple[Tensor, ...]:
        """The parts of `Lost`."""
        z = evidence.held_out(self.halves)
        s = self.sign.expand_as(z)
        before: _Residuals = _Residuals(s, z, torch.zeros_like(z), None)
        if self.given is not None:
            features = self.given.expand(len(states), -1, -1)
            # As large as the first direction, so that the penalty hardly holds them back.
            features = features * states.std(1).amax(-1)[:, None, None]
            before = self._residuals(features, Spectrum(features), s, z, evidence)
            states = torch.cat([states, features], dim=2)
        spectrum = Spectrum(states)
        after = self._residuals(states, spectrum, s, z, evidence)
        lost_by_split, had_by_split = after.surprise * after.unexplained, before.surprise * before.unexplained
        lost, had = lost_by_split.mean(1), had_by_split.mean(1)
        predicted = _predicted_share(states, spectrum, lost, had, self.fold_cells)
        members = self._members(predicted)
        within = members[:, :, None].to(z.dtype)
        total = (members * had[:, None]).sum(-1)
        share = ((members * lost[:, None]).sum(-1) / total)[..., None, None]
        by_split = ((lost_by_split[:, None] - share * had_by_split[:, None]) * within).sum(-1) / total[..., None]
        moved = evidence.response(self.halves, after.pull(within) - share * before.pull(within))
        influence = moved / (self.halves.n_splits * total[..., None])
        return lost, had, z.mean(1), after.explained.mean(1), predicted, members, influence, by_split

    def _residuals(
        self, states: Tensor, spectrum: Spectrum, s: Tensor, z: Tensor, evidence: CleanEvidence
    ) -> "_Residuals":
        data = OutOfFold(states, self.cells)
        # A probe's scores are one function of the state for all items; those of two probes side by side are not.
        of_s = data.smoother(spectrum.penalty(s[:, :1]))
        of_z = data.smoother(_UNDERSMOOTHED * spectrum.penalty(evidence.by_probe.flatten(1, 2)))
        explained = of_z.predict(z)
        surprise = (s - of_s.predict(s)) / (1 + data.inflation(of_s, of_z))
        return _Residuals(surprise, z - explained, explained, of_z)

    def _members(self, predicted: Tensor) -> Tensor:
        """Who is in which group, [problem, group, item].

        Thirds are taken within each fold: between folds, one that happens to have lost more is predicted to have lost
        less, by the mean of the others.
        """
        third = torch.empty_like(predicted)
        for items, real in zip(self.fold_cells.items, self.fold_cells.real, strict=True):
            inside = items[real > 0]
            rank = predicted[:, inside].argsort(dim=1, stable=True).argsort(dim=1)
            third[:, inside] = (3 * rank // len(inside)).to(third.dtype)
        everyone = torch.ones_like(third, dtype=torch.bool)
        thirds = [third == place for place in range(3)]
        found = torch.stack([everyone, everyone & self.labels, everyone & ~self.labels, *thirds], dim=1)
        if self.sets is None:
            return found
        return torch.cat([found, self.sets.expand(len(found), -1, -1)], dim=1)


class _Residuals(NamedTuple):
    """What states leave unexplained of label and evidence, [problem, split, item]."""

    surprise: Tensor
    """s − ŝ, less what estimation adds to its product with z − ẑ."""
    unexplained: Tensor
    """z − ẑ."""
    explained: Tensor
    """ẑ."""
    of_z: Smoother | None
    """The map from z to ẑ; None where nothing explains."""

    def pull(self, within: Tensor) -> Tensor:
        """How much each item's z counts in the sum of products over the items within, [problem, group, split, item]."""
        weighted = self.surprise[:, None] * within
        return weighted if self.of_z is None else weighted - self.of_z.adjoint(weighted)


def _predicted_share(states: Tensor, spectrum: Spectrum, lost: Tensor, had: Tensor, cells: Cells) -> Tensor:
    """ℓ(x): lost and had, each explained from the states of other folds, and their ratio."""
    data = OutOfFold(states, cells)
    c_hat, d_hat = (
        data.smoother(spectrum.penalty(target[:, None])).predict(target[:, None])[:, 0] for target in (lost, had)
    )
    return c_hat / torch.maximum(d_hat, _LEAST_EVIDENCE * had.mean(1, keepdim=True).abs().clamp(min=1e-12))
