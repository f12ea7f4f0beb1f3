"""Probes for many layers and training sets at once, along principal directions: what most detectors are made of.

One grid search serves all: the inner folds' log-loss chooses a strength per problem and training set, and the fits of
the inner folds at that strength are kept beside the fit on the whole set, so that every training item has log-odds by
a probe that never saw it.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.detectors.training import FITS, INNER_FOLDS, Training
from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.grid_search import STRENGTHS, weighted_auc
from anchorscope.probes.logistic import TrainingSets, solve
from anchorscope.probes.standardise import standardise


@dataclass(frozen=True)
class Bank:
    """Fitted probes, acting on states along principal directions."""

    weight: Float[Tensor, "problem set fit direction"]
    bias: Float[Tensor, "problem set fit"]
    strength: Float[Tensor, "problem set"]
    """Chosen C."""
    inner_loss: Float[Tensor, "problem set"]
    """Mean log-loss on the inner folds at that strength."""
    inner_auc: Float[Tensor, "problem set"]
    """AUC within the inner folds."""

    def log_odds(self, problem: int, states: Float[Tensor, "item direction"]) -> Float[Tensor, "set fit item"]:
        """Log-odds of states by one problem's probes."""
        return self.weight[problem] @ states.T + self.bias[problem][..., None]


def fit_bank(
    states: Shaped[Tensor, "problem item direction"],
    training: Training,
    device: torch.device,
    labels: Shaped[Tensor, "set item"] | None = None,
    weights: Float[Tensor, "set item"] | None = None,
) -> Bank:
    """Probes of every problem and training set.

    `labels` take the place of the training's own (a gate learns another thing than truth), `weights` multiply those of
    the items in every set (an expert learns more from some items than from others).
    """
    targets = training.targets(device) if labels is None else labels.to(device).float()
    fitted, held = training.fitted_on(device), training.held_out(device)
    if weights is not None:
        fitted, held = fitted * weights.to(device)[:, None], held * weights.to(device)[:, None]
    n_sets, n_strengths = training.n_sets, len(STRENGTHS)
    strengths = torch.tensor(STRENGTHS, device=device)
    refit = TrainingSets(
        labels=targets,
        members=fitted[:, INNER_FOLDS],
        scaled_on=fitted[:, INNER_FOLDS] > 0,
        scaling=torch.arange(n_sets, device=device),
        strengths=torch.empty(0, device=device),
    )
    grid = replace(
        refit,
        labels=targets.repeat_interleave(INNER_FOLDS * n_strengths, 0),
        members=fitted[:, :INNER_FOLDS].flatten(0, 1).repeat_interleave(n_strengths, 0),
        scaling=torch.arange(n_sets, device=device).repeat_interleave(INNER_FOLDS * n_strengths),
        strengths=strengths.repeat(n_sets * INNER_FOLDS),
    )
    n_problems, n_items, width = states.shape
    plan = plan_chunks((n_problems, n_items, width), len(grid.members), device, None, states.element_size())

    @torch.no_grad()
    def fit(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, ...]:
        data = standardise(chunk, refit.scaled_on, plan.items, rescale=False)
        inner = solve(data, grid, plan.columns)
        logits = inner.logits.unflatten(1, (n_sets, INNER_FOLDS, n_strengths))
        losses = _held_out_loss(logits, targets, held)
        chosen = losses.argmin(-1)
        strength = strengths[chosen]
        whole = solve(data, replace(refit, strengths=strength), plan.columns)
        weight, bias = data.to_raw(inner.weight, inner.intercept, grid.scaling)
        full_weight, full_bias = data.to_raw(whole.weight, whole.intercept, refit.scaling)
        parts = (
            torch.cat([_at(weight.unflatten(1, logits.shape[1:4]), chosen), full_weight[:, :, None]], dim=2),
            torch.cat([_at(bias.unflatten(1, logits.shape[1:4]), chosen), full_bias[:, :, None]], dim=2),
            strength,
            losses.amin(-1),
            weighted_auc(_at(logits, chosen), held, targets[:, None]),
        )
        return tuple(part.to(device) for part in parts)

    with true_float32():
        found = list(in_chunks(states, plan, device, fit))
    bank = Bank(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    assert bank.weight.shape[2] == FITS, "a fit without each inner fold, and one on all"
    return bank


def _at(values: Tensor, chosen: Int[Tensor, "problem set"]) -> Tensor:
    """Values [problem, set, inner fold, strength, …] at the chosen strength."""
    index = chosen.view(*chosen.shape, 1, 1, *[1] * (values.dim() - 4))
    return values.take_along_dim(index, dim=3)[:, :, :, 0]


def _held_out_loss(logits: Tensor, targets: Tensor, held: Tensor) -> Tensor:
    """Weighted mean log-loss of the inner folds' held-out items, [problem, set, strength]."""
    total = torch.zeros(*logits.shape[:2], logits.shape[3], dtype=torch.double, device=logits.device)
    for fold in range(INNER_FOLDS):  # one at a time: all together would be twice the grid's own memory
        signed = logits[:, :, fold] * (1 - 2 * targets)[:, None]
        total += (softplus(signed) * held[:, fold, None]).double().sum(-1)
    return total / held.sum((1, 2)).double()[:, None]
