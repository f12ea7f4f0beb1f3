"""Grid search over the regularisation strength by grouped inner folds, then a refit on the whole training set.

scikit-learn's LogisticRegressionCV(refit=True) for all layers and training sets at once: the held-out log-loss of the
inner folds selects a strength per layer and training set. Both stages see the same standardised states, on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.logistic import TrainingSets, solve
from anchorscope.probes.standardise import standardise
from anchorscope.progress import Progress, Silent

STRENGTHS = tuple(float(c) for c in np.logspace(-6, -1, 8))
"""Inverse regularisation strengths (scikit-learn's C): states are wide and items few, so that weak ones overfit (on the
embedded model's states none above 0.04 was ever chosen)."""
INNER_FOLDS = 3


@dataclass(frozen=True)
class HeldOut:
    """Items held out by each inner fold, true and false ones apart, as padded tables of item numbers."""

    true_items: Int[Tensor, "training_set inner_fold place"]
    is_true: Float[Tensor, "training_set inner_fold place"]
    """1 for an item of `true_items`, 0 for padding."""
    false_items: Int[Tensor, "training_set inner_fold other_place"]
    is_false: Float[Tensor, "training_set inner_fold other_place"]


class Searched(NamedTuple):
    """Fitted probes of one place, in host memory."""

    weight: Float[Tensor, "layer training_set d_model"]
    bias: Float[Tensor, "layer training_set"]
    strength: Float[Tensor, "layer training_set"]
    inner_auc: Float[Tensor, "layer training_set"]
    converged: Bool[Tensor, "layer training_set"]
    inner_converged: Bool[Tensor, "layer training_set"]
    """Whether all fits of the inner folds were."""

    def unconverged(self, name: str, training_sets: Sequence[str]) -> tuple[str, ...]:
        """Names of the probes whose solver didn't converge, refits first."""
        return tuple(
            f"{name} layer {layer} {training_sets[index]}{stage}"
            for stage, converged in (
                ("", self.converged),
                (" (inner folds)", self.inner_converged),
            )
            for layer, index in (~converged).nonzero().tolist()
        )


def held_out_tables(
    inner: Int[np.ndarray, "training_set item"],
    labels: Bool[np.ndarray, " item"],
    n_inner: int,
    device: torch.device,
) -> HeldOut:
    """Tables for inner folds, -1 where an item is not in the training set."""
    held = inner[:, None, :] == np.arange(n_inner)[:, None]

    def table(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        most = int(chosen.sum(-1).max())
        items = np.argsort(~chosen, axis=-1, kind="stable")[..., :most]
        real = np.take_along_axis(chosen, items, axis=-1)
        return torch.as_tensor(items, device=device), torch.as_tensor(
            real.astype(np.float32), device=device
        )

    return HeldOut(*table(held & labels), *table(held & ~labels))


def select_strength(
    logits: Float[Tensor, "problem training_set inner_fold strength item"],
    tables: HeldOut,
) -> tuple[Int[Tensor, "problem training_set"], Float[Tensor, "problem training_set"]]:
    """Index of the strength with the lowest held-out log-loss, and its AUC within the inner folds."""
    true = logits.take_along_dim(tables.true_items[None, :, :, None], dim=-1)
    false = logits.take_along_dim(tables.false_items[None, :, :, None], dim=-1)
    loss = (softplus(-true).double() * tables.is_true[:, :, None]).sum(-1)
    loss += (softplus(false).double() * tables.is_false[:, :, None]).sum(-1)
    chosen = loss.sum(2).argmin(-1)
    at = chosen[:, :, None, None, None]
    true, false = (part.take_along_dim(at, dim=3)[:, :, :, 0] for part in (true, false))
    is_true, is_false = (
        table.expand(*true.shape[:3], -1) for table in (tables.is_true, tables.is_false)
    )
    targets = torch.cat([torch.ones_like(is_true), torch.zeros_like(is_false)], dim=-1)
    return chosen, weighted_auc(
        torch.cat([true, false], dim=-1),
        torch.cat([is_true, is_false], dim=-1),
        targets,
    )


def weighted_auc(
    scores: Float[Tensor, "*#more item"],
    weights: Float[Tensor, "*#more item"],
    targets: Float[Tensor, "*#more item"],
) -> Float[Tensor, "*fewer"]:
    """AUC within strata, the last axis but one, weighted by their pairs, ties half; on the scores' device.

    As `stats.auc.auc` with weights, for thousands of small sets at once (a test compares it with scikit-learn's).
    `targets` are 1 for true items and 0 for false ones.
    """
    ranked, order = scores.sort(-1)
    shape = torch.broadcast_shapes(scores.shape, weights.shape, targets.shape)
    ranked, order = ranked.expand(shape).contiguous(), order.expand(shape)
    positive = (weights * targets).expand(shape).gather(-1, order).double()
    negative = (weights * (1 - targets)).expand(shape).gather(-1, order).double()
    # false items before each place
    lower = torch.nn.functional.pad(negative.cumsum(-1), (1, 0))
    below, not_above = (
        lower.gather(-1, torch.searchsorted(ranked, ranked, right=right))
        for right in (False, True)
    )
    won = (positive * (below + not_above) / 2).sum((-1, -2))
    return won / (positive.sum(-1) * negative.sum(-1)).sum(-1).clamp(min=1e-12)


def grid_search(
    states: Shaped[Tensor, "place layer item d_model"],
    labels: Bool[np.ndarray, " item"],
    training: Bool[np.ndarray, "training_set item"],
    inner: Int[np.ndarray, "training_set item"],
    device: torch.device,
    progress: Progress | None = None,
    title: str = "probes",
    rescale: bool = True,
) -> tuple[list[Searched], tuple[str, ...]]:
    """Probes of every place, layer and training set, and notes where memory ran out.

    `inner` gives each training item's inner fold, -1 elsewhere; `rescale` as in `standardise`.
    """
    listener = progress or Silent()
    n_places, n_layers, n_items, width = states.shape
    listener.start(title, n_places * n_layers)
    plan = plan_chunks(
        (n_places * n_layers, n_items, width),
        len(training) * INNER_FOLDS * len(STRENGTHS),
        device,
        itemsize=states.element_size(),
    )
    search = _Search(labels, training, inner, device, rescale)
    found: list[Searched] = []
    notes: list[str] = []
    with true_float32():
        for chunk in in_chunks(states.flatten(0, 1), plan, device, search.fit, notes):
            found.append(chunk)
            listener.advance(len(chunk.bias))
    listener.finish()
    whole = [
        torch.cat(fields).unflatten(0, (n_places, n_layers))
        for fields in zip(*found, strict=True)
    ]
    by_place = [Searched(*(part[place] for part in whole)) for place in range(n_places)]
    return by_place, tuple(dict.fromkeys(notes))


class _Search:
    def __init__(
        self,
        labels: np.ndarray,
        training: np.ndarray,
        inner: np.ndarray,
        device: torch.device,
        rescale: bool,
    ) -> None:
        self.rescale = rescale
        n_sets, n_items = training.shape
        learned = training[:, None, :] & (
            inner[:, None, :] != np.arange(INNER_FOLDS)[:, None]
        )
        members = np.repeat(learned.reshape(-1, n_items), len(STRENGTHS), axis=0)
        self.strengths = torch.tensor(STRENGTHS, dtype=torch.double, device=device)
        refit = TrainingSets(
            labels=torch.as_tensor(labels),
            members=torch.as_tensor(training),
            scaled_on=torch.as_tensor(training),
            scaling=torch.arange(n_sets),
            strengths=torch.empty(0),  # what the grid chooses
        )
        grid = replace(
            refit,
            members=torch.as_tensor(members),
            scaling=torch.arange(n_sets).repeat_interleave(
                INNER_FOLDS * len(STRENGTHS)
            ),
            strengths=torch.tensor(STRENGTHS).repeat(len(members) // len(STRENGTHS)),
        )
        self.refit, self.grid = refit.to(device), grid.to(device)
        self.held_out = held_out_tables(inner, labels, INNER_FOLDS, device)

    @torch.no_grad()
    def fit(self, states: Tensor, plan: ChunkPlan) -> Searched:
        """Probes of a chunk of problems, [problem, training set, …]."""
        data = standardise(states, self.refit.scaled_on, rescale=self.rescale)
        inner = solve(data, self.grid, plan.columns)
        logits = inner.logits.unflatten(1, (-1, INNER_FOLDS, len(STRENGTHS)))
        chosen, inner_auc = select_strength(logits, self.held_out)
        inner_converged = inner.converged.unflatten(
            1, (-1, INNER_FOLDS * len(STRENGTHS))
        ).all(-1)
        del inner, logits
        strength = self.strengths[chosen]
        solution = solve(data, replace(self.refit, strengths=strength), plan.columns)
        weight, bias = data.to_raw(
            solution.weight, solution.intercept, self.refit.scaling
        )
        return Searched(
            *(
                part.cpu()
                for part in (
                    weight,
                    bias,
                    strength,
                    inner_auc,
                    solution.converged,
                    inner_converged,
                )
            )
        )
