"""Stacking: logistic regressions on a few columns, of all training sets at once.

The columns of a training set are its own: log-odds of probes that never saw the item, and plain numbers. So each set
has a design matrix of its own, which the probes' solver does not know; with so few columns Newton's method does it in a
handful of steps. The penalty is chosen by the inner folds, and their fits give the scores of the training items.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.detectors.training import INNER_FOLDS, Training

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
"""Factors λ of ½‖w‖² beside the mean log-loss, for columns of deviation one."""
_STEPS = 25
_HALVINGS = 6
_DONE = 1e-7  # largest element of the gradient at which a fit is done
_AT_ONCE = 2**27  # numbers in the largest working tensor


@dataclass(frozen=True)
class Stacked:
    """Fitted regressions, acting on the columns as they are."""

    weight: Float[Tensor, "set fit column"]
    bias: Float[Tensor, "set fit"]
    scores: Float[Tensor, "set item"]
    """Log-odds of each item by a fit that never saw it."""
    inner_loss: Float[Tensor, " set"]
    """Mean log-loss on the inner folds."""


def fit_stack(
    columns: Float[Tensor, "set item column"], training: Training, penalties: tuple[float, ...] = PENALTIES
) -> Stacked:
    """A regression of truth on the columns, for every training set; the inner folds choose among the penalties."""
    n_sets, n_items, width = columns.shape
    step = max(1, _AT_ONCE // (4 * n_items * (width + 1)))
    parts = [
        _fit(columns[first : first + step].double(), training.take(slice(first, first + step)), penalties)
        for first in range(0, n_sets, step)
    ]
    return Stacked(*(torch.cat([getattr(one, name) for one in parts]) for name in Stacked.__dataclass_fields__))


def calibrated(scores: Float[Tensor, "set item"], training: Training) -> Stacked:
    """Platt scaling: slope and intercept that make scores log-odds, by hardly penalised regression."""
    return fit_stack(scores[..., None], training, (1e-4,))


def _fit(columns: Tensor, training: Training, penalties: tuple[float, ...]) -> Stacked:
    device = columns.device
    weights, targets = training.fitted_on(device).double(), training.targets(device).double()
    members = weights[:, INNER_FOLDS]
    share = (members / members.sum(-1, keepdim=True))[..., None]
    mean = (share * columns).sum(1, keepdim=True)
    deviation = (share * (columns - mean).square()).sum(1, keepdim=True).sqrt()
    varies = deviation > 1e-9 * (1 + mean.abs())
    scaled = torch.where(varies, (columns - mean) / torch.where(varies, deviation, 1.0), 0.0)
    design = torch.cat([scaled, torch.ones_like(scaled[..., :1])], dim=-1)
    held = training.held_out(device).double()
    found, losses = [], []
    for penalty in penalties:
        weight = newton(design, targets, weights, penalty)
        logits = weight @ design.transpose(1, 2)
        signed = logits[:, :INNER_FOLDS] * (1 - 2 * targets)[:, None]
        losses.append((softplus(signed) * held).sum((1, 2)) / held.sum((1, 2)))
        found.append((weight, logits))
    loss, chosen = torch.stack(losses).min(0)
    rows = torch.arange(len(chosen), device=device)
    weight = torch.stack([one for one, _ in found])[chosen, rows]
    logits = torch.stack([one for _, one in found])[chosen, rows]
    raw = torch.where(varies, weight[..., :-1] / torch.where(varies, deviation, 1.0), 0.0)
    bias = weight[..., -1] - (raw * mean).sum(-1)
    return Stacked(raw, bias, training.assemble(logits), loss)


def newton(
    design: Float[Tensor, "set item column"],
    targets: Float[Tensor, "set item"],
    weights: Float[Tensor, "set fit item"],
    penalty: float,
) -> Float[Tensor, "set fit column"]:
    """Minimises mean log-loss + ½λ‖w‖², the last column (the intercept) without penalty; damped Newton steps."""
    share = weights / weights.sum(-1, keepdim=True)
    ridge = torch.full((design.shape[-1],), penalty, dtype=design.dtype, device=design.device)
    ridge[-1] = 1e-9
    found = torch.zeros(*weights.shape[:2], design.shape[-1], dtype=design.dtype, device=design.device)
    sign = (1 - 2 * targets)[:, None]

    def objective(weight: Tensor) -> Tensor:
        logits = weight @ design.transpose(1, 2)
        return (softplus(logits * sign) * share).sum(-1) + (ridge * weight.square()).sum(-1) / 2

    now = objective(found)
    for _ in range(_STEPS):
        probability = torch.sigmoid(found @ design.transpose(1, 2))
        gradient = ((probability - targets[:, None]) * share) @ design + ridge * found
        if float(gradient.abs().max()) < _DONE:
            break
        curvature = probability * (1 - probability) * share
        hessian = (design[:, None] * curvature[..., None]).transpose(2, 3) @ design[:, None] + torch.diag(ridge)
        step = torch.linalg.solve(hessian, gradient[..., None])[..., 0]
        length = torch.ones_like(now)
        for _ in range(_HALVINGS):
            after = objective(found - length[..., None] * step)
            length = torch.where(after > now + 1e-12, length / 2, length)
        after = objective(found - length[..., None] * step)
        better = after <= now
        found = torch.where(better[..., None], found - length[..., None] * step, found)
        now = torch.where(better, after, now)
    return found
