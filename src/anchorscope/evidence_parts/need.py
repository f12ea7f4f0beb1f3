"""need(V): the share of a probe's evidence for the truth that a view V of the run does not hold.

s = ±1 is an answer's label, z the log-odds that a probe of the other half gives it (`half_splits`); ŝ and ẑ are
predicted from V by ridge regression, out of fold. In the partially linear model (docs/evidence-parts.md)

    τ′ = Σ (s − ŝ)(z − ẑ) / Σ (s − ŝ)²        τ = Cov(s, z) / Var(s)        need(V) = τ′ / τ

Both effects are centred and on one scale, so that neither the share of true answers nor the probe's AUC moves them.

**One regression for both.** What estimation adds to the residuals inflates numerator and denominator alike, and cancels
(Frisch–Waugh–Lovell). Its penalty is a tenth of the one that predicts z best: what a penalty holds back would count as
needed (`benchmarks/worlds.py` shows how much).

**Intervals.** The score is orthogonal: errors of ŝ and ẑ matter in second order only (Chernozhukov et al. 2018). So an
item's influence on need(V) is the derivative of the ratio, plus what the item changes as a teacher of the probes and of
ẑ (an infinitesimal jackknife). Without the latter, intervals of views with many directions are too narrow: the noise of
the regressions cancels in an item's mean over the splits, but not in Σ (s − ŝ)², by which the sum is divided.
Influences are summed within groups, and the variance of the splits is added; Student's t with groups − 1 degrees of
freedom. Parts, means over layers and differences are sums of needs, and so are their influences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import stdtrit
from torch import Tensor

from anchorscope.evidence_parts.half_splits import RIDGE_FOLDS, CleanEvidence, Halves
from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.progress import Progress, Silent
from anchorscope.stats.estimate import LEVEL

PENALTIES = tuple(float(multiple) for multiple in np.logspace(-5, 4, 19))
"""Penalties to choose from, as multiples of the number of items times the directions' mean variance."""
UNDERSMOOTHED = 0.1
"""Of the penalty that predicts z best."""
_LEAST_UNIT = 1e-6  # a view that is the same for all items explains nothing, and still has a penalty
_WORKING_COPIES = 16  # numbers per item and direction that a problem takes at its peak, in units of a chunk's plan


class Terms(NamedTuple):
    """The sums behind need(V), item by item, as means over the splits, and what they vary with."""

    lost: Float[np.ndarray, "problem item"]
    """(s − ŝ)(z − ẑ): evidence that the view does not explain."""
    label_left: Float[np.ndarray, "problem item"]
    """(s − ŝ)²: what the view leaves of the label."""
    had: Float[np.ndarray, "problem item"]
    """(s − s̄)(z − z̄): all of the evidence."""
    label: Float[np.ndarray, "problem item"]
    """(s − s̄)²: all of the label."""
    taught: Float[np.ndarray, "problem item"]
    """How need(V) moves per unit of weight that an item has in teaching the probes and the regression of z."""
    by_split: Float[np.ndarray, "problem split"]
    """How far each split alone moves need(V) from the mean of all."""

    def need(self) -> "Share":
        """need(V) of every problem; NaN where there is no evidence, or nothing that the view leaves."""
        sums = np.stack([part.sum(-1, dtype=np.float64) for part in self[:4]])
        is_defined = np.isfinite(sums).all(0) & (sums[1:] != 0).all(0)
        lost, left, had, label = np.where(is_defined, sums, np.nan)[..., None]
        scale = label / (left * had)
        value = scale * lost
        of_items = scale * self.lost - value * (
            self.label_left / left + self.had / had - self.label / label
        )
        return Share(value[:, 0], of_items + self.taught, self.by_split)

    def take(self, problems: slice) -> "Terms":
        return Terms(*(part[problems] for part in self))


@dataclass(frozen=True)
class Share:
    """A need, or a sum of needs, with all that its interval is made of."""

    value: Float[np.ndarray, " problem"]
    influence: Float[np.ndarray, "problem item"]
    by_split: Float[np.ndarray, "problem split"]

    def __add__(self, other: "Share") -> "Share":
        return Share(
            self.value + other.value,
            self.influence + other.influence,
            self.by_split + other.by_split,
        )

    def __sub__(self, other: "Share") -> "Share":
        return self + (-1.0) * other

    def __rsub__(self, whole: float) -> "Share":
        return Share(whole - self.value, -self.influence, -self.by_split)

    def __rmul__(self, factor: float) -> "Share":
        return Share(
            factor * self.value, factor * self.influence, factor * self.by_split
        )

    def mean_over(self, problems: Sequence[int]) -> "Share":
        """The mean over some problems, as one problem."""
        chosen = list(problems)
        return Share(
            *(
                part[chosen].mean(0, keepdims=True)
                for part in (self.value, self.influence, self.by_split)
            )
        )

    def standard_error(
        self, clusters: NDArray[np.integer]
    ) -> Float[np.ndarray, " problem"]:
        """Over clusters of items, and over the splits."""
        names, member = np.unique(clusters, return_inverse=True)
        sums = np.zeros((len(self.value), len(names)))
        np.add.at(sums.T, member, self.influence.T)
        n_splits = self.by_split.shape[-1]
        of_splits = np.square(self.by_split).sum(-1) / max(1, n_splits * (n_splits - 1))
        return np.sqrt(
            np.square(sums).sum(-1) * len(names) / max(1, len(names) - 1) + of_splits
        )

    def half_width(self, *levels: NDArray[np.integer]) -> Float[np.ndarray, " problem"]:
        """Half of the interval's width: the widest of those over several levels of clusters."""
        widths = [
            self.standard_error(clusters)
            * stdtrit(max(1, len(np.unique(clusters)) - 1), (1 + LEVEL) / 2)
            for clusters in levels
        ]
        return np.max(widths, axis=0)


def view_terms(
    evidence: CleanEvidence,
    view: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "evidence",
) -> Terms:
    """The terms of need(V) for the view's principal directions, all problems (places, layers) in a batch."""
    device, listener = torch.device(device), progress or Silent()
    n_problems, n_items, n_directions = view.shape
    listener.start(title, n_problems)
    sign = torch.where(torch.as_tensor(labels, device=device), 1.0, -1.0).double()
    plan = plan_chunks(
        (n_problems, _WORKING_COPIES * n_items, n_directions), halves.n_splits, device
    )

    @torch.no_grad()
    def solve(chunk: Tensor, plan: ChunkPlan) -> list[Tensor]:
        some = slice(int(chunk[0]), int(chunk[-1]) + 1)
        solved = _terms(
            evidence.take(some).to(device), view[some].to(device).double(), halves, sign
        )
        return [part.cpu() for part in solved]

    parts = []
    with true_float32():
        for chunk in in_chunks(
            torch.arange(n_problems)[:, None, None], plan, device, solve
        ):
            parts.append(chunk)
            listener.advance(len(chunk[0]))
    listener.finish()
    return Terms(
        *(torch.cat(column).float().numpy() for column in zip(*parts, strict=True))
    )


def _terms(
    evidence: CleanEvidence, view: Tensor, halves: Halves, sign: Tensor
) -> list[Tensor]:
    """The parts of `Terms` for a chunk of problems, on the device."""
    z = evidence.held_out(halves)
    s = sign.expand_as(z)
    ridge = Ridge(
        view,
        halves,
        UNDERSMOOTHED * best_penalty(view, evidence.by_probe.flatten(1, 2)),
    )
    s_left, z_left = s - ridge.predict(s), z - ridge.predict(z)
    s_centred, z_centred = (_centre_halves(values, halves) for values in (s, z))
    products = (
        s_left * z_left,
        s_left.square(),
        s_centred * z_centred,
        s_centred.square(),
    )
    lost, left, had, label = (product.mean(1).sum(-1)[:, None] for product in products)
    scale, tau = label / (left * had), lost / left
    need = scale * lost
    of_split = [product.sum(-1) for product in products]
    by_split = scale * of_split[0] - need * (
        of_split[1] / left + of_split[2] / had - of_split[3] / label
    )
    taught_ridge = ridge.adjoint(s_left)
    pull = (
        scale[..., None] * (s_left - taught_ridge) - (need / had)[..., None] * s_centred
    )
    of_ridge = scale * (taught_ridge * (z_left - tau[..., None] * s_left)).mean(1)
    taught = evidence.response(halves, pull) / halves.n_splits - of_ridge
    return [*(product.mean(1) for product in products), taught, by_split]


def _centre_halves(
    values: Float[Tensor, "problem split item"], halves: Halves
) -> Float[Tensor, "problem split item"]:
    """Values less the mean of their half: each half is scored by a probe of its own."""
    first = torch.as_tensor(halves.first, device=values.device)
    for half in (first, ~first):
        values = values - half * (values * half).sum(-1, keepdim=True) / half.sum(
            -1, keepdim=True
        )
    return values


def best_penalty(
    states: Float[Tensor, "problem item direction"],
    targets: Float[Tensor, "problem row item"],
) -> Float[Tensor, " problem"]:
    """The ridge penalty with the least leave-one-out error over all rows of the targets, by one decomposition."""
    centred = states - states.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(centred.transpose(1, 2) @ centred)
    values, scores = values.clamp(min=0), centred @ vectors
    # n times the mean variance
    unit = values.mean(-1, keepdim=True).clamp(min=_LEAST_UNIT)
    targets = targets - targets.mean(-1, keepdim=True)
    along, squared, directions = (
        targets @ scores,
        scores.square(),
        scores.transpose(1, 2),
    )
    errors = []
    for multiple in PENALTIES:
        inverse = 1 / (values + multiple * unit).clamp(min=1e-300)
        unexplained = (
            1 - 1 / states.shape[1] - (squared @ inverse[..., None])[..., 0]
        ).clamp(min=1e-6)
        residual = (targets - (along * inverse[:, None]) @ directions) / unexplained[
            :, None
        ]
        errors.append(residual.square().mean((1, 2)))
    chosen = torch.stack(errors, dim=-1).argmin(-1)
    return (
        torch.tensor(PENALTIES, dtype=states.dtype, device=states.device)[chosen]
        * unit[:, 0]
    )


class Ridge:
    """A linear map from any target to what the states of the other folds of the item's half explain of it.

    Items lie in cells, a padded table: over splits, then halves, then folds.
    """

    def __init__(
        self,
        states: Float[Tensor, "problem item direction"],
        halves: Halves,
        penalty: Float[Tensor, " problem"],
    ) -> None:
        self.n_splits, self.n_items = halves.first.shape
        fold = np.where(halves.first, 0, RIDGE_FOLDS) + halves.folds
        inside = (fold[:, None] == np.arange(2 * RIDGE_FOLDS)[:, None]).reshape(
            -1, self.n_items
        )
        items = np.argsort(~inside, axis=1, kind="stable")[
            :, : int(inside.sum(1).max())
        ]
        real = np.take_along_axis(inside, items, axis=1)
        self.items, self.real = (
            torch.as_tensor(table, device=states.device) for table in (items, real)
        )
        self.rows = states[:, self.items] * self.real[..., None]
        self.sizes = self._sum_others(self.real.sum(-1)[None].double())
        self.mean = self._sum_others(self.rows.sum(2)) / self.sizes[..., None]
        gram = self._sum_others(self.rows.transpose(2, 3) @ self.rows)
        gram -= (
            self.sizes[..., None, None]
            * self.mean[..., :, None]
            * self.mean[..., None, :]
        )
        gram.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None, None])
        centred = (self.rows - self.mean[:, :, None]) * self.real[..., None]
        self.weights = torch.cholesky_solve(
            centred.transpose(2, 3), torch.linalg.cholesky(gram)
        )

    def predict(
        self, target: Float[Tensor, "problem split item"]
    ) -> Float[Tensor, "problem split item"]:
        """The target, out of fold."""
        values = self._gather(target)
        level = self._sum_others(values.sum(-1)) / self.sizes
        cross = self._sum_others((values[:, :, None] @ self.rows)[:, :, 0])
        cross = cross - (self.sizes * level)[..., None] * self.mean
        return self._scatter(
            level[..., None] + (cross[:, :, None] @ self.weights)[:, :, 0]
        )

    def adjoint(
        self, residual: Float[Tensor, "problem split item"]
    ) -> Float[Tensor, "problem split item"]:
        """The transposed map: how much each item's target counts in the sum of predictions weighted by `residual`."""
        values = self._gather(residual)
        along = (self.weights @ values[..., None])[..., 0]
        constant = self._sum_others(
            values.sum(-1) / self.sizes - (along * self.mean).sum(-1)
        )
        spread = (self.rows @ self._sum_others(along)[..., None])[..., 0] + constant[
            ..., None
        ] * self.real
        return self._scatter(spread)

    def _gather(
        self, values: Float[Tensor, "problem split item"]
    ) -> Float[Tensor, "problem cell row"]:
        """Values of the items in each cell's own split; 0 at padding."""
        of_cells = values.repeat_interleave(2 * RIDGE_FOLDS, dim=-2)
        return (
            of_cells.gather(
                -1, self.items.expand_as(of_cells[..., : self.items.shape[1]])
            )
            * self.real
        )

    def _scatter(
        self, values: Float[Tensor, "problem cell row"]
    ) -> Float[Tensor, "problem split item"]:
        """The reverse of `_gather`."""
        split = torch.arange(len(self.items), device=values.device) // (2 * RIDGE_FOLDS)
        spread = values.new_zeros(len(values), self.n_splits * self.n_items)
        spread[:, (split[:, None] * self.n_items + self.items)[self.real]] = values[
            :, self.real
        ]
        return spread.unflatten(-1, (self.n_splits, self.n_items))

    def _sum_others(self, of_cells: Tensor) -> Tensor:
        """Sums over the other folds of the same half, from sums of each cell along the second axis."""
        by_fold = of_cells.unflatten(1, (-1, RIDGE_FOLDS))
        return (by_fold.sum(2, keepdim=True) - by_fold).flatten(1, 2)
