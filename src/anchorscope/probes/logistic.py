"""Logistic regression for many training sets and strengths at once, on one layer's states.

The objective is scikit-learn's: C · Σ loss + ½‖w‖², intercept unpenalised, features standardised on the training set.
All columns (training set × strength) share the states, so that one iteration is two matrix products for all of them;
standardisation is folded into the columns. The method is a preconditioned non-linear conjugate gradient: the leading
directions of the states, which make the problem badly conditioned, are known once and serve every column, and the line
search is a Newton search on numbers at hand. A column has converged when the largest element of the gradient of its
mean loss is below `TOLERANCE`; it then stands still.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 2e-5
"""Largest element of the mean loss's gradient at which a probe counts as fitted (scikit-learn's default is 1e-4)."""
MAX_ITERATIONS = 400
"""After so many iterations a probe is reported as not converged."""
_DIRECTIONS = 64  # leading directions in the preconditioner; more cost more per iteration than they save
_LEAVE_SHARE = 0.2  # fitted columns leave when so many of them are: copying the rest costs less than carrying them
_LINE_STEPS = 3  # Newton steps along a direction; the function is smooth and convex, so few are needed


@dataclass(frozen=True)
class TrainingSets:
    """Which items each column learns from."""

    labels: Tensor
    """1 for true, 0 for false, [item]."""
    members: Tensor
    """1 where a column learns from an item, [item, column]."""
    scaled_on: Tensor
    """1 where an item belongs to the training set that the features are standardised on, [item, scaling]."""
    scaling: Tensor
    """The scaling that each column uses, [column]."""
    strengths: Tensor
    """C of each column, [column]."""


@dataclass(frozen=True)
class Fit:
    """Fitted probes of one layer, acting on the raw states."""

    weight: Tensor
    """[d_model, column]."""
    bias: Tensor
    """[column]."""
    logits: Tensor
    """Log-odds of "true" for every item, learned from or not, [item, column]."""
    converged: Tensor
    """[column], bool."""
    iterations: int
    """Of the column that took longest."""


@torch.no_grad()
def fit_layer(states: Tensor, sets: TrainingSets) -> Fit:
    """Fits every column on one layer's states, [item, d_model], in float32."""
    problem = _Problem(states.float(), sets)
    weight, intercept, logits, converged, iterations = _minimise(problem)
    raw, bias = problem.to_raw(weight, intercept)
    return Fit(weight=raw, bias=bias, logits=logits, converged=converged, iterations=iterations)


class _Problem:
    """One layer's objective for all columns, in standardised coordinates."""

    def __init__(self, states: Tensor, sets: TrainingSets) -> None:
        # First bring all features to one scale: only a change of coordinates, but outlier features (values of hundreds
        # with a spread of one) would cost float32 its digits. Around the median, so that one wild item cannot move all
        # others away from zero.
        self.center = states.median(0).values.double()
        spread = states.double().std(0, correction=0)
        self.spread = torch.where(spread > 0, spread, 1.0)
        exact = (states.double() - self.center) / self.spread
        self.x = exact.float()
        self.members = sets.members.float()
        self.n = self.members.sum(0).clamp(min=1)
        self.penalty = (1 / sets.strengths.float()) / self.n
        self.labels = sets.labels.float()[:, None]
        self._scale(exact, sets)
        self._lead()

    def _scale(self, exact: Tensor, sets: TrainingSets) -> None:
        share = sets.scaled_on.double()
        share = share / share.sum(0)
        mean = share.T @ exact  # [scaling, d_model]
        square = share.T @ exact.square()
        variance = square - mean.square()
        # What double precision cannot tell from zero is a feature that does not vary here, and is left as it is.
        deviation = torch.where(variance > 1e-12 * square, variance.clamp(min=0).sqrt(), 1.0)
        self.mean = mean[sets.scaling].T.float()  # [d_model, column]
        self.deviation = deviation[sets.scaling].T.float()

    def _lead(self) -> None:
        """Leading directions of the standardised states and their variances, by subspace iteration."""
        generator = torch.Generator().manual_seed(0)
        x = self.x - self.x.mean(0)  # the columns' own means are taken out of every gradient too
        count = min(_DIRECTIONS, *x.shape)
        start = torch.randn(x.shape[1], count, generator=generator).to(x.device)
        for _ in range(3):
            start = torch.linalg.qr(x.T @ (x @ start)).Q
        projected = x @ start
        values, turn = torch.linalg.eigh(projected.T @ projected / len(x))
        self.directions = start @ turn
        rest = (x.square().sum() / len(x) - values.sum()).clamp(min=0)
        tail = rest / max(1, x.shape[1] - count)
        self.floor = self.penalty + tail / 4  # curvature outside the leading directions, [column]
        lead = values.clamp(min=0)[:, None] / 4
        self.lead_gain = lead / (self.floor * (self.floor + lead))  # [direction, column]

    def logits_of(self, weight: Tensor, intercept: Tensor) -> Tensor:
        scaled = weight / self.deviation
        return self.x @ scaled - (self.mean * scaled).sum(0) + intercept

    def gradient(self, logits: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        error = self.members * (torch.sigmoid(logits) - self.labels) / self.n
        total = error.sum(0)
        return (self.x.T @ error - self.mean * total) / self.deviation + self.penalty * weight, total

    def precondition(self, gradient: Tensor) -> Tensor:
        return gradient / self.floor - self.directions @ (self.lead_gain * (self.directions.T @ gradient))

    def step_length(self, logits: Tensor, along: Tensor, weight: Tensor, direction: Tensor) -> Tensor:
        """How far along a direction the objective is smallest, per column, by a safeguarded Newton search."""
        cross = self.penalty * (weight * direction).sum(0)
        square = self.penalty * direction.square().sum(0)
        step = torch.zeros_like(self.n)
        masked = self.members * along / self.n
        for _ in range(_LINE_STEPS):
            chance = torch.sigmoid(logits + step * along)
            slope = (masked * (chance - self.labels)).sum(0) + cross + step * square
            curve = (masked * along * chance * (1 - chance)).sum(0) + square
            step = (step - slope / curve.clamp(min=1e-30)).clamp(min=0)
        return step

    def take(self, columns: Tensor) -> "_Problem":
        """The same problem for some of the columns."""
        other = copy.copy(self)
        for name in ("members", "n", "penalty", "mean", "deviation", "floor", "lead_gain"):
            setattr(other, name, getattr(self, name)[..., columns])
        return other

    def to_raw(self, weight: Tensor, intercept: Tensor) -> tuple[Tensor, Tensor]:
        scaled = (weight / self.deviation).double()
        raw = scaled / self.spread[:, None]
        bias = intercept.double() - (self.mean.double() * scaled).sum(0) - (self.center[:, None] * raw).sum(0)
        return raw.float(), bias.float()


@dataclass
class _Walk:
    """Where the columns that still move stand, and where the last step went."""

    weight: Tensor
    intercept: Tensor
    logits: Tensor
    gradient: Tensor
    slope: Tensor
    """Gradient with respect to the intercept."""
    last_gradient: Tensor
    last_slope: Tensor
    last_product: Tensor
    """Squared length of the last gradient, as the preconditioner measures it."""
    direction: Tensor
    turn: Tensor
    """The intercept's part of the direction."""

    def take(self, columns: Tensor) -> "_Walk":
        return _Walk(**{name: value[..., columns] for name, value in vars(self).items()})


def _minimise(problem: _Problem) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    walk = _start(problem)
    weight, intercept, logits = (torch.zeros_like(part) for part in (walk.weight, walk.intercept, walk.logits))
    converged = torch.zeros_like(walk.slope, dtype=torch.bool)
    places = torch.arange(len(converged), device=converged.device)
    for iteration in range(MAX_ITERATIONS + 1):
        moving = torch.maximum(walk.gradient.abs().amax(0), walk.slope.abs()) > TOLERANCE
        done = int((~moving).sum())
        over = done == len(moving) or iteration == MAX_ITERATIONS
        if over or done > _LEAVE_SHARE * len(moving):
            weight[:, places], intercept[places], logits[:, places] = walk.weight, walk.intercept, walk.logits
            converged[places] = ~moving
            if over:
                break
            staying = moving.nonzero()[:, 0]
            problem, walk, places = problem.take(staying), walk.take(staying), places[staying]
            moving = moving[staying]
        _advance(problem, walk, moving)
    return weight, intercept, logits, converged, iteration


def _start(problem: _Problem) -> _Walk:
    weight, intercept = torch.zeros_like(problem.mean), torch.zeros_like(problem.n)
    logits = torch.zeros_like(problem.members)
    gradient, slope = problem.gradient(logits, weight)
    # With an infinite last product the first direction is the preconditioned gradient itself.
    return _Walk(
        weight, intercept, logits, gradient, slope, gradient, slope, torch.full_like(slope, float("inf")),
        torch.zeros_like(weight), torch.zeros_like(intercept),
    )  # fmt: skip


def _advance(problem: _Problem, walk: _Walk, moving: Tensor) -> None:
    """One conjugate-gradient step of the moving columns."""
    nice, nice_slope = problem.precondition(walk.gradient), 4 * walk.slope
    change = ((walk.gradient - walk.last_gradient) * nice).sum(0) + (walk.slope - walk.last_slope) * nice_slope
    keep = (change / walk.last_product.clamp(min=1e-30)).clamp(min=0)  # Polak–Ribière, never negative
    direction, turn = keep * walk.direction - nice, keep * walk.turn - nice_slope
    uphill = (walk.gradient * direction).sum(0) + walk.slope * turn >= 0
    walk.direction = torch.where(uphill, -nice, direction)
    walk.turn = torch.where(uphill, -nice_slope, turn)
    walk.last_gradient, walk.last_slope = walk.gradient, walk.slope
    walk.last_product = (walk.gradient * nice).sum(0) + walk.slope * nice_slope

    along = problem.logits_of(walk.direction, walk.turn)
    step = torch.where(moving, problem.step_length(walk.logits, along, walk.weight, walk.direction), 0.0)
    walk.weight = walk.weight + step * walk.direction
    walk.intercept = walk.intercept + step * walk.turn
    walk.logits = walk.logits + step * along
    walk.gradient, walk.slope = problem.gradient(walk.logits, walk.weight)
