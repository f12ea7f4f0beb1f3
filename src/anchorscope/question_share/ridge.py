"""Ridge regression within each half, out of fold, for all layers and splits at once.

Only sums over folds are needed (Gram matrices and cross products): what a fold is explained from is its half's sum less
its own. The penalty of a target is chosen once per layer, from one decomposition of all items, by the leave-one-out
error that it gives in closed form.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.question_share.halves import RIDGE_FOLDS, Halves

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
