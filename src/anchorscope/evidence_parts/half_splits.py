"""Probes on half splits: evidence z that has never seen a label of the half it is used in (docs/evidence-parts.md).

Groups are dealt to two halves, several times. In each split a probe learns from one half and scores the other; what a
view explains of these scores is learned within that other half, out of fold. Scores of ordinary cross-fitted probes
would not do: anything that explains them from states learns, through them, the labels that they were trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.grid_search import INNER_FOLDS, grid_search
from anchorscope.progress import Progress
from anchorscope.stats.streams import priorities

SPLITS = 8
"""Half splits that are averaged over."""
RIDGE_FOLDS = 5
"""Folds within a half: an item that is explained is never learned from."""


@dataclass(frozen=True)
class Halves:
    """Which items teach and which are scored: the same for every layer, site, position and view of a dataset."""

    first: Bool[np.ndarray, "split item"]
    """Whether an item is in the first half."""
    folds: Int[np.ndarray, "split item"]
    """Fold of each item within its own half."""
    inner: Int[np.ndarray, "split side item"]
    """Inner fold of the probe that learns from each half, -1 for items of the other one."""

    @property
    def n_splits(self) -> int:
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
        order = priorities(seed, f"evidence half {split}", item_ids)
        half = grouped_folds(groups, strata, 2, order)
        first[split] = half == 0
        for side in range(2):
            inside = np.flatnonzero(half == side)
            for purpose, n_folds, table in (
                ("fold", RIDGE_FOLDS, folds[split]),
                ("inner fold", INNER_FOLDS, inner[split, side]),
            ):
                order_within = priorities(
                    seed, f"evidence {purpose} {split}", item_ids
                )[inside]
                table[inside] = grouped_folds(
                    groups[inside], strata[inside], n_folds, order_within
                )
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
        return CleanEvidence(*(part[problems] for part in self))

    def to(self, device: torch.device) -> "CleanEvidence":
        """The same on a device, in double precision."""
        return CleanEvidence(*(part.to(device).double() for part in self))

    def response(
        self, halves: Halves, pull: Float[Tensor, "problem split item"]
    ) -> Float[Tensor, "problem item"]:
        """How much Σ pull·z, over all splits, moves per unit of weight that an item has in the probes' training.

        The jackknife of logistic regression by one step of Newton's method: H⁻¹ · gradient / (1 − leverage).
        """
        states = _with_intercept(self.principal)
        first = torch.as_tensor(halves.first, device=pull.device)
        moved = torch.zeros_like(pull[:, 0])
        for split in range(halves.n_splits):
            for side in range(2):
                # by this probe: the half that it did not learn from
                scored = first[split] != (side == 0)
                towards = (pull[:, split] * scored)[:, None] @ states
                weight = torch.cholesky_solve(
                    towards.transpose(1, 2), self.factor[:, split, side]
                )
                moved += (states @ weight)[..., 0] * self.step[:, split, side]
        return moved


def clean_evidence(
    principal: Float[Tensor, "problem item direction"],
    halves: Halves,
    labels: Bool[np.ndarray, " item"],
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "evidence: probes",
) -> CleanEvidence:
    """Fits the probes of all splits and scores all items by them."""
    device = torch.device(device)
    inner = halves.inner.reshape(-1, len(labels))
    (fitted,), _ = grid_search(
        principal[None],
        labels,
        halves.training,
        inner,
        device,
        progress,
        title,
        rescale=False,
    )
    scores = torch.baddbmm(
        fitted.bias[..., None], fitted.weight, principal.transpose(1, 2)
    )
    training, truth = (
        torch.as_tensor(halves.training, device=device),
        torch.as_tensor(labels, device=device),
    )
    problems = torch.arange(len(principal))[:, None, None]
    plan = plan_chunks(
        (len(principal), 2 * len(labels), principal.shape[-1]),
        2 * len(training),
        device,
    )

    @torch.no_grad()
    def curvature(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, Tensor]:
        some = slice(int(chunk[0]), int(chunk[-1]) + 1)
        states, scored, strength = (
            part[some].to(device).double()
            for part in (principal, scores, fitted.strength)
        )
        made = _newton_parts(states, scored, strength, training, truth)
        return made[0].float().cpu(), made[1].float().cpu()

    with true_float32():
        factors, steps = zip(*in_chunks(problems, plan, device, curvature), strict=True)
    sides = (halves.n_splits, 2)
    return CleanEvidence(
        principal,
        *(
            part.unflatten(1, sides)
            for part in (fitted.strength, scores, torch.cat(factors), torch.cat(steps))
        ),
    )


def _with_intercept(states: Tensor) -> Tensor:
    return torch.nn.functional.pad(states, (0, 1), value=1.0)


def _newton_parts(
    principal: Tensor,
    scores: Tensor,
    strength: Tensor,
    training: Tensor,
    labels: Tensor,
) -> tuple[Tensor, Tensor]:
    """Factor of each probe's Hessian [problem, training set, …], and every item's step."""
    states, sure = _with_intercept(principal), torch.sigmoid(scores)
    penalised = torch.ones(states.shape[-1], dtype=states.dtype, device=states.device)
    penalised[-1] = 0  # the intercept is free
    weight = strength[..., None] * training
    curvature = weight * sure * (1 - sure)
    factors, steps = [], []
    # in turn: all together would hold every item of every probe once more
    for probe in range(len(training)):
        hessian = (states * curvature[:, probe, :, None]).transpose(
            1, 2
        ) @ states + torch.diag(penalised)
        factor = torch.linalg.cholesky(hessian)
        whitened = torch.linalg.solve_triangular(
            factor, states.transpose(1, 2), upper=False
        )
        leverage = curvature[:, probe] * whitened.square().sum(1)
        factors.append(factor)
        steps.append(
            weight[:, probe]
            * (labels.to(states.dtype) - sure[:, probe])
            / (1 - leverage)
        )
    return torch.stack(factors, dim=1), torch.stack(steps, dim=1)
