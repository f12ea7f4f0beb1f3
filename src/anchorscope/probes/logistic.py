"""L2-regularised logistic regression for many layers, training sets and strengths at once.

The objective is scikit-learn's: C · Σ loss + ½‖w‖², intercept unpenalised, features standardised on the training set. A
problem is the states of one layer; its columns (training set × strength) share them.

Preconditioned non-linear conjugate gradients (Polak–Ribière with restarts), for all columns of all problems at once.
The preconditioner is a diagonal plus a low-rank term along the leading eigenvectors of the states' covariance, inverted
by the Woodbury identity; the curvature p(1 − p) that scales it is each column's own. The step length comes from the
self-concordance of the logistic loss, which guarantees descent without a line search. A column converges when the
largest element of the gradient of its mean loss is below `TOLERANCE`, and then stands still.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import one_hot, pad

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.standardise import Standardised, standardise

TOLERANCE = 2e-5
"""Largest element of the mean loss's gradient at which a probe counts as fitted (scikit-learn's default is 1e-4)."""
MAX_ITERATIONS = 400
"""Iterations after which a probe is reported as not converged."""
_PRECONDITIONER_UPDATES = (
    0,
    3,
    7,
    15,
    31,
    63,
)  # iterations at which the preconditioner takes the present p(1 − p)
_CHECK_EVERY = {"cpu": 1}  # iterations between two checks which columns have converged
_CHECK_EVERY_ELSEWHERE = 4  # a check makes a GPU wait
_COMPACT_SHARE = 0.15  # share of converged columns at which they leave: copying the rest costs less than carrying them


@dataclass(frozen=True)
class Columns:
    sample_weight: Float[Tensor, "#problem column row"]
    """Weight of each row in the mean loss, zero where a column does not learn from it."""
    labels: Float[Tensor, "#problem #column row"]
    """1 for true, 0 for false; all columns may share them."""
    scaling_one_hot: Float[Tensor, "#problem column scaling"]
    """1 at the training set whose mean and deviation standardise the column."""
    inverse_deviation: Float[Tensor, "problem column d_model"]
    penalty: Float[Tensor, "problem column"]
    """Factor λ of ½‖w‖² next to the mean loss."""
    n_samples: Float[Tensor, "#problem column"]

    def select(self, places: Int[Tensor, "problem place"]) -> "Columns":
        parts = (
            self.sample_weight,
            self.scaling_one_hot,
            self.inverse_deviation,
            self.penalty,
            self.n_samples,
        )
        sample_weight, scaling_one_hot, inverse_deviation, penalty, n_samples = (
            _select(part, places) for part in parts
        )
        labels = (
            self.labels if self.labels.shape[1] == 1 else _select(self.labels, places)
        )
        return Columns(
            sample_weight,
            labels,
            scaling_one_hot,
            inverse_deviation,
            penalty,
            n_samples,
        )


@dataclass(frozen=True)
class Solution:
    """The minimisers of all columns, in the coordinates that their scaling standardises."""

    weight: Float[Tensor, "problem column d_model"]
    intercept: Float[Tensor, "problem column"]
    logits: Float[Tensor, "problem column item"]
    converged: Bool[Tensor, "problem column"]


@dataclass
class _Iterate:
    weight: Float[Tensor, "problem column d_model"]
    intercept: Float[Tensor, "problem column"]
    logits: Float[Tensor, "problem column row"]
    probability: Float[Tensor, "problem column row"]
    gradient: Float[Tensor, "problem column d_model"]
    intercept_gradient: Float[Tensor, "problem column"]
    previous_gradient: Float[Tensor, "problem column d_model"]
    previous_intercept_gradient: Float[Tensor, "problem column"]
    previous_product: Float[Tensor, "problem column"]
    """gᵀM⁻¹g of the previous gradient g under the preconditioner M."""
    direction: Float[Tensor, "problem column d_model"]
    intercept_direction: Float[Tensor, "problem column"]
    active: Bool[Tensor, "problem column"]
    intercept_curvature: Float[Tensor, "problem column"]
    """Mean of p(1 − p): the preconditioner's entry for the intercept."""
    diagonal: Float[Tensor, "problem column"]
    """The preconditioner's entry for weights outside the leading eigenvectors."""
    woodbury: Float[Tensor, "problem column rank"]
    """What the Woodbury identity subtracts from 1 / diagonal along each leading eigenvector."""

    def select(self, places: Int[Tensor, "problem place"]) -> "_Iterate":
        return _Iterate(
            **{name: _select(value, places) for name, value in vars(self).items()}
        )


def _select(values: Tensor, places: Tensor) -> Tensor:
    """Some of every problem's columns; what all problems share is repeated for each."""
    if len(values) == 1:
        return values[0][places]
    first = torch.arange(
        0, values.shape[0] * values.shape[1], values.shape[1], device=places.device
    )
    rows = (places + first[:, None]).flatten()
    return values.flatten(0, 1).index_select(0, rows).unflatten(0, places.shape)


def minimise(data: Standardised, columns: Columns) -> Solution:
    """Minimises every column of every problem, from zero."""
    iterate = _initial(data, columns)
    n_problems, n_columns = iterate.intercept.shape
    device = iterate.intercept.device
    every = _CHECK_EVERY.get(device.type, _CHECK_EVERY_ELSEWHERE)
    solution = Solution(
        torch.zeros_like(iterate.weight),
        torch.zeros_like(iterate.intercept),
        torch.zeros_like(iterate.logits[:, :, : data.n_items]),
        torch.zeros_like(iterate.active),
    )
    places = torch.arange(n_columns, device=device).expand(n_problems, -1)
    for k in range(MAX_ITERATIONS + 1):
        if k % every == 0 or k == MAX_ITERATIONS:
            # the only place where the device is waited for
            n_active = int(iterate.active.sum(1).max())
            finished = n_active == 0 or k == MAX_ITERATIONS
            if finished or n_active <= (1 - _COMPACT_SHARE) * places.shape[1]:
                order = iterate.active.int().argsort(
                    dim=1, descending=True, stable=True
                )
                staying, leaving = (
                    order[:, :n_active],
                    order[:, 0 if finished else n_active :],
                )
                _store(solution, iterate, places, leaving)
                if finished:
                    break
                columns, iterate = columns.select(staying), iterate.select(staying)
                places = places.gather(1, staying)
        if k in _PRECONDITIONER_UPDATES:
            _update_preconditioner(data, columns, iterate)
        _conjugate_gradient_step(data, columns, iterate)
    return solution


def _store(
    solution: Solution, iterate: _Iterate, places: Tensor, leaving: Tensor
) -> None:
    rows = torch.arange(len(places), device=places.device)[:, None]
    there = places.gather(1, leaving)
    n_items = solution.logits.shape[2]
    solution.weight[rows, there] = _select(iterate.weight, leaving)
    solution.intercept[rows, there] = iterate.intercept.gather(1, leaving)
    solution.logits[rows, there] = _select(iterate.logits, leaving)[:, :, :n_items]
    solution.converged[rows, there] = ~iterate.active.gather(1, leaving)


def _initial(data: Standardised, columns: Columns) -> _Iterate:
    """The iterate at zero, where every probability is one half."""
    weight, zero = (
        torch.zeros_like(columns.inverse_deviation),
        torch.zeros_like(columns.penalty),
    )
    probability = torch.full(
        (*zero.shape, columns.labels.shape[-1]), 0.5, device=zero.device
    )
    gradient, intercept_gradient = _gradient(data, columns, probability, weight)
    # With an infinite previous product beta is zero: the first direction is the preconditioned gradient itself.
    return _Iterate(
        weight=weight,
        intercept=zero,
        logits=torch.zeros_like(probability),
        probability=probability,
        gradient=gradient,
        intercept_gradient=intercept_gradient,
        previous_gradient=torch.zeros_like(gradient),
        previous_intercept_gradient=zero,
        previous_product=torch.full_like(zero, torch.inf),
        direction=torch.zeros_like(weight),
        intercept_direction=zero,
        active=_above_tolerance(gradient, intercept_gradient),
        intercept_curvature=zero,
        diagonal=zero,
        woodbury=zero[:, :, None],
    )


def _gradient(
    data: Standardised, columns: Columns, probability: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient of mean loss + ½λ‖w‖² with respect to weights and intercept."""
    residual = (probability - columns.labels).mul_(columns.sample_weight)
    intercept_gradient = residual.sum(-1)
    # The row of the scaling's mean takes it out of every feature.
    residual[:, :, data.n_items :] = (
        columns.scaling_one_hot * -intercept_gradient[:, :, None]
    )
    gradient = data.design.rmatmat(residual).mul_(columns.inverse_deviation)
    return gradient.addcmul_(weight, columns.penalty[:, :, None]), intercept_gradient


def _above_tolerance(gradient: Tensor, intercept_gradient: Tensor) -> Tensor:
    largest = torch.maximum(gradient.abs().amax(-1), intercept_gradient.abs())
    return ~(largest <= TOLERANCE)  # not ">", so that NaN is not taken for fitted


def _update_preconditioner(
    data: Standardised, columns: Columns, iterate: _Iterate
) -> None:
    """M = diagonal · I + Σ (low-rank entry) v vᵀ over the leading eigenvectors v, at the present p(1 − p)."""
    iterate.intercept_curvature = _dot(
        _bernoulli_variance(iterate.probability), columns.sample_weight
    ).clamp(min=1e-6)
    iterate.diagonal = (
        columns.penalty + data.residual_variance[:, None] * iterate.intercept_curvature
    )
    diagonal = iterate.diagonal[:, :, None]
    low_rank = data.eigenvalues[:, None] * iterate.intercept_curvature[:, :, None]
    iterate.woodbury = low_rank / (diagonal * (diagonal + low_rank))


def _conjugate_gradient_step(
    data: Standardised, columns: Columns, iterate: _Iterate
) -> None:
    """One step of the active columns, in place."""
    # M⁻¹g by the Woodbury identity: g / diagonal less its part along the leading eigenvectors.
    along = torch.bmm(iterate.gradient, data.eigenvectors.transpose(1, 2)).mul_(
        iterate.woodbury
    )
    outside = iterate.gradient / iterate.diagonal[:, :, None]
    preconditioned = torch.baddbmm(outside, along, data.eigenvectors, alpha=-1)
    preconditioned_intercept = iterate.intercept_gradient / iterate.intercept_curvature
    product = (
        _dot(iterate.gradient, preconditioned)
        + iterate.intercept_gradient * preconditioned_intercept
    )
    change = product - _dot(iterate.previous_gradient, preconditioned)
    change = change - iterate.previous_intercept_gradient * preconditioned_intercept
    # Polak–Ribière, never negative (PR+)
    beta = (change / iterate.previous_product.clamp(min=1e-30)).clamp(min=0)
    # gᵀd of the previous direction: where beta times it outweighs gᵀM⁻¹g the new direction would ascend, so restart.
    directional = (
        _dot(iterate.gradient, iterate.direction)
        + iterate.intercept_gradient * iterate.intercept_direction
    )
    beta = torch.where(beta * directional < product, beta, 0.0)
    descent = product - beta * directional
    iterate.direction.mul_(beta[:, :, None]).sub_(preconditioned)
    iterate.intercept_direction = (
        beta * iterate.intercept_direction - preconditioned_intercept
    )
    iterate.previous_gradient, iterate.previous_intercept_gradient = (
        iterate.gradient,
        iterate.intercept_gradient,
    )
    iterate.previous_product = product

    direction_logits = data.design.matmat(iterate.direction * columns.inverse_deviation)
    centring = (direction_logits[:, :, data.n_items :] * columns.scaling_one_hot).sum(
        -1
    )
    direction_logits += (iterate.intercept_direction - centring)[:, :, None]
    step = torch.where(
        iterate.active, _step_length(columns, iterate, direction_logits, descent), 0.0
    )
    iterate.weight.addcmul_(iterate.direction, step[:, :, None])
    iterate.intercept = iterate.intercept + step * iterate.intercept_direction
    iterate.logits.addcmul_(direction_logits, step[:, :, None])
    iterate.probability = torch.sigmoid(iterate.logits)
    iterate.gradient, iterate.intercept_gradient = _gradient(
        data, columns, iterate.probability, iterate.weight
    )
    iterate.active = iterate.active & _above_tolerance(
        iterate.gradient, iterate.intercept_gradient
    )


def _bernoulli_variance(probability: Tensor) -> Tensor:
    """p(1 − p), the logistic loss's second derivative."""
    return torch.addcmul(probability, probability, probability, value=-1)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(-1)


def _step_length(
    columns: Columns, iterate: _Iterate, direction_logits: Tensor, descent: Tensor
) -> Tensor:
    """A length at which the objective has provably fallen, close to the best one where the step is small.

    `descent` is −gᵀd. Along a line the loss is self-concordant (Bach 2010): its third derivative is at most
    `concordance` times its second. So the curvature grows at most exponentially, which gives the damped Newton step;
    and it never exceeds its value at p = ½ (Böhning and Lindsay 1988), which gives another. The longer one is taken.
    """
    penalty = (
        columns.penalty * torch.linalg.vector_norm(iterate.direction, dim=-1).square()
    )
    weighted = direction_logits * columns.sample_weight
    concordance = weighted.abs().amax(-1) * columns.n_samples
    weighted *= direction_logits
    curvature_bound = weighted.sum(-1) / 4 + penalty
    curvature = _dot(weighted, _bernoulli_variance(iterate.probability)) + penalty
    newton = descent / curvature.clamp(min=1e-30)
    damped_newton = torch.log1p(concordance * newton) / concordance.clamp(min=1e-30)
    return torch.maximum(
        damped_newton, descent / curvature_bound.clamp(min=1e-30)
    ).clamp(min=0)


@dataclass(frozen=True)
class TrainingSets:
    labels: Shaped[Tensor, " item"] | Shaped[Tensor, "column item"]
    """1 for true, 0 for false; for all columns, or for each its own."""
    members: Shaped[Tensor, "column item"]
    """1 where a column learns from an item, or the item's weight."""
    scaled_on: Bool[Tensor, "scaling item"]
    """1 where an item belongs to the training set that the features are standardised on."""
    scaling: Int[Tensor, " column"]
    strengths: Float[Tensor, "*problem column"] | Float[Tensor, "0"]
    """C of each column; empty where it has yet to be chosen."""

    def to(self, device: torch.device) -> "TrainingSets":
        return TrainingSets(
            *(getattr(self, field.name).to(device) for field in fields(self))
        )


@dataclass(frozen=True)
class Fit:
    weight: Float[Tensor, "problem column d_model"]
    bias: Float[Tensor, "problem column"]
    logits: Float[Tensor, "problem column item"]
    converged: Bool[Tensor, "problem column"]
    notes: tuple[str, ...] = ()


def fit_layers(
    states: Shaped[Tensor, "problem item d_model"],
    sets: TrainingSets,
    device: str | torch.device = "cpu",
) -> Fit:
    """Fits every column on the states of every problem; the result is in host memory."""
    device = torch.device(device)
    sets = sets.to(device)
    n_problems, n_items, width = states.shape
    plan = plan_chunks(
        (n_problems, n_items, width),
        len(sets.members),
        device,
        None,
        states.element_size(),
    )

    @torch.no_grad()
    def fit(chunk: Tensor, plan: ChunkPlan) -> list[Tensor]:
        data = standardise(chunk, sets.scaled_on)
        solution = solve(data, sets, plan.columns)
        raw = data.to_raw(solution.weight, solution.intercept, sets.scaling)
        return [part.cpu() for part in (*raw, solution.logits, solution.converged)]

    notes: list[str] = []
    with true_float32():
        fits = list(in_chunks(states, plan, device, fit, notes))
    weight, bias, logits, converged = (
        torch.cat(parts) for parts in zip(*fits, strict=True)
    )
    return Fit(weight, bias, logits, converged, tuple(notes))


def solve(data: Standardised, sets: TrainingSets, columns_at_once: int) -> Solution:
    """Fits every column on standardised states, that many columns of every problem at once."""
    parts = [
        minimise(data, _columns(data, sets, part))
        for part in torch.arange(len(sets.members), device=sets.members.device).split(
            columns_at_once
        )
    ]
    if len(parts) == 1:
        return parts[0]
    return Solution(
        *(
            torch.cat([getattr(part, field.name) for part in parts], dim=1)
            for field in fields(Solution)
        )
    )


def _columns(data: Standardised, sets: TrainingSets, places: Tensor) -> Columns:
    n_scalings = len(sets.scaled_on)
    # the scalings' means are rows, and teach nothing
    members = pad(sets.members[places].float(), (0, n_scalings))
    n_samples = members.sum(-1).clamp(min=1e-6)
    labels = sets.labels[None] if sets.labels.dim() == 1 else sets.labels[places]
    scaling = sets.scaling[places]
    penalty = 1 / (sets.strengths[..., places].float() * n_samples)
    return Columns(
        sample_weight=(members / n_samples[:, None])[None],
        labels=pad(labels.float(), (0, n_scalings))[None],
        scaling_one_hot=one_hot(scaling, n_scalings).float()[None],
        inverse_deviation=(1 / data.deviation).float()[:, scaling],
        penalty=penalty.expand(len(data.eigenvalues), -1).contiguous(),
        n_samples=n_samples[None],
    )
