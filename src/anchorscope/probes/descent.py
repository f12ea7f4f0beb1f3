"""The descent: a preconditioned non-linear conjugate gradient for all columns of all problems at once.

The leading directions of the states, which make the problem badly conditioned, are known and serve every column; how
much curvature the column's own chances leave is looked up again now and then. A step is as long as the loss, which is
self-concordant, surely falls: that needs no trial steps. An iteration is two matrix products and some eighty small
operations for all columns together. A column has converged when the largest element of the gradient of its mean loss
is below `TOLERANCE`; from then on it stands still, so that it does not matter when one looks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.probes.coordinates import Coordinates

TOLERANCE = 2e-5
"""Largest element of the mean loss's gradient at which a probe counts as fitted (scikit-learn's default is 1e-4)."""
MAX_ITERATIONS = 400
"""After so many iterations a probe is reported as not converged."""
_CURVATURE_AT = (0, 3, 7, 15, 31, 63)  # iterations at which the preconditioner looks at the chances again
_LOOK_EVERY = {"cpu": 1}  # iterations between two looks at who has converged
_LOOK_ELSEWHERE = 4  # a look makes a GPU wait
_LEAVE_SHARE = 0.15  # fitted columns leave when so many of them are: copying the rest costs less than carrying them


@dataclass(frozen=True)
class Columns:
    """What each column minimises, [problem, column, …]."""

    share: Tensor
    """Weight of each row in the mean loss, zero where a column does not learn from it, [problem or 1, column, row]."""
    labels: Tensor
    """1 for true, 0 for false, [row]."""
    own: Tensor
    """1 at the column's own scaling, [problem or 1, column, scaling]."""
    gain: Tensor
    """1 / deviation of the column's scaling, [problem, column, d_model]."""
    penalty: Tensor
    """[problem, column]."""
    count: Tensor
    """Number of items learned from, [problem or 1, column]."""

    def take(self, places: Tensor) -> "Columns":
        """Some of each problem's columns, [problem, place]."""
        parts = (self.share, self.own, self.gain, self.penalty, self.count)
        share, own, gain, penalty, count = (_taken(part, places) for part in parts)
        return Columns(share, self.labels, own, gain, penalty, count)


@dataclass(frozen=True)
class Solution:
    """Where the columns of all problems ended, in the coordinates of their scaling."""

    weight: Tensor
    """[problem, column, d_model]."""
    intercept: Tensor
    """[problem, column]."""
    logits: Tensor
    """Of every item, learned from or not, [problem, column, item]."""
    converged: Tensor
    """[problem, column], bool."""
    iterations: Tensor
    """Steps that each column made, [problem, column]."""


@dataclass
class _Walk:
    """Where the columns that still move stand, and where the last step went, [problem, column, …]."""

    weight: Tensor
    intercept: Tensor
    logits: Tensor
    chance: Tensor
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
    moving: Tensor
    iterations: Tensor
    curvature: Tensor
    """Of the intercept, when it was last looked at."""
    floor: Tensor
    """Of the weights outside the leading directions, likewise."""
    less: Tensor
    """How much shorter than outside a step along each leading direction is, [problem, column, direction]."""

    def take(self, places: Tensor) -> "_Walk":
        return _Walk(**{name: _taken(value, places) for name, value in vars(self).items()})


def _taken(values: Tensor, places: Tensor) -> Tensor:
    """Rows of every problem's columns; what all problems share is spread out."""
    if len(values) == 1:
        return values[0][places]
    first = torch.arange(0, values.shape[0] * values.shape[1], values.shape[1], device=places.device)
    rows = (places + first[:, None]).flatten()
    return values.flatten(0, 1).index_select(0, rows).unflatten(0, places.shape)


def minimise(known: Coordinates, columns: Columns) -> Solution:
    """Fits every column of every problem, from zero."""
    walk = _start(known, columns)
    n_problems, n_columns = walk.slope.shape
    every = _LOOK_EVERY.get(walk.slope.device.type, _LOOK_ELSEWHERE)
    solution = Solution(
        torch.zeros_like(walk.weight), torch.zeros_like(walk.intercept),
        torch.zeros_like(walk.logits[:, :, : known.n_items]), torch.zeros_like(walk.moving),
        torch.zeros_like(walk.iterations),
    )  # fmt: skip
    places = torch.arange(n_columns, device=walk.slope.device).expand(n_problems, -1)
    for iteration in range(MAX_ITERATIONS + 1):
        if iteration % every == 0 or iteration == MAX_ITERATIONS:
            width = int(walk.moving.sum(1).max())  # the only place where the device is waited for
            over = width == 0 or iteration == MAX_ITERATIONS
            if over or width <= (1 - _LEAVE_SHARE) * places.shape[1]:
                order = walk.moving.int().argsort(dim=1, descending=True, stable=True)
                staying, leaving = order[:, :width], order[:, 0 if over else width :]
                _keep(solution, walk, places, leaving)
                if over:
                    break
                columns, walk, places = columns.take(staying), walk.take(staying), places.gather(1, staying)
        if iteration in _CURVATURE_AT:
            _look_at_curvature(known, columns, walk)
        _advance(known, columns, walk)
    return solution


def _keep(solution: Solution, walk: _Walk, places: Tensor, leaving: Tensor) -> None:
    rows = torch.arange(len(places), device=places.device)[:, None]
    there = places.gather(1, leaving)
    n_items = solution.logits.shape[2]
    solution.weight[rows, there] = _taken(walk.weight, leaving)
    solution.intercept[rows, there] = walk.intercept.gather(1, leaving)
    solution.logits[rows, there] = _taken(walk.logits, leaving)[:, :, :n_items]
    solution.converged[rows, there] = ~walk.moving.gather(1, leaving)
    solution.iterations[rows, there] = walk.iterations.gather(1, leaving)


def _start(known: Coordinates, columns: Columns) -> _Walk:
    weight, none = torch.zeros_like(columns.gain), torch.zeros_like(columns.penalty)
    chance = torch.full((*none.shape, len(columns.labels)), 0.5, device=none.device)
    gradient, slope = _gradient(known, columns, chance, weight)
    # With an infinite last product the first direction is the preconditioned gradient itself.
    return _Walk(
        weight, none, torch.zeros_like(chance), chance, gradient, slope, torch.zeros_like(gradient), none,
        torch.full_like(none, torch.inf), torch.zeros_like(weight), none, _too_steep(gradient, slope),
        torch.zeros_like(none, dtype=torch.int32), none, none, none[:, :, None],
    )  # fmt: skip


def _gradient(known: Coordinates, columns: Columns, chance: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    error = (chance - columns.labels).mul_(columns.share)
    slope = error.sum(-1)
    error[:, :, known.n_items :] = columns.own * -slope[:, :, None]  # takes the scaling's mean out of every feature
    gradient = known.items.gathered(error).mul_(columns.gain)
    return gradient.addcmul_(weight, columns.penalty[:, :, None]), slope


def _too_steep(gradient: Tensor, slope: Tensor) -> Tensor:
    return ~(torch.maximum(gradient.abs().amax(-1), slope.abs()) <= TOLERANCE)  # so that NaN is not taken for fitted


def _look_at_curvature(known: Coordinates, columns: Columns, walk: _Walk) -> None:
    walk.curvature = _dot(_doubt(walk.chance), columns.share).clamp(min=1e-6)
    walk.floor = columns.penalty + known.rest[:, None] * walk.curvature
    lead = known.variances[:, None] * walk.curvature[:, :, None]
    walk.less = lead / (walk.floor[:, :, None] * (walk.floor[:, :, None] + lead))


def _preconditioned(known: Coordinates, walk: _Walk) -> Tensor:
    inside = torch.bmm(walk.gradient, known.directions.transpose(1, 2)).mul_(walk.less)
    return torch.baddbmm(walk.gradient / walk.floor[:, :, None], inside, known.directions, alpha=-1)


def _advance(known: Coordinates, columns: Columns, walk: _Walk) -> None:
    """One conjugate-gradient step of the moving columns."""
    nice, nice_slope = _preconditioned(known, walk), walk.slope / walk.curvature
    product = _dot(walk.gradient, nice) + walk.slope * nice_slope
    change = product - _dot(walk.last_gradient, nice) - walk.last_slope * nice_slope
    keep = (change / walk.last_product.clamp(min=1e-30)).clamp(min=0)  # Polak–Ribière, never negative
    before = _dot(walk.gradient, walk.direction) + walk.slope * walk.turn
    keep = torch.where(keep * before < product, keep, 0.0)  # else the direction would lead uphill: begin anew
    descent = product - keep * before
    walk.direction.mul_(keep[:, :, None]).sub_(nice)
    walk.turn = keep * walk.turn - nice_slope
    walk.last_gradient, walk.last_slope, walk.last_product = walk.gradient, walk.slope, product

    along = known.items.times(walk.direction * columns.gain)
    along += (walk.turn - (along[:, :, known.n_items :] * columns.own).sum(-1))[:, :, None]
    step = torch.where(walk.moving, _step(columns, walk, along, descent), 0.0)
    walk.weight.addcmul_(walk.direction, step[:, :, None])
    walk.intercept = walk.intercept + step * walk.turn
    walk.logits.addcmul_(along, step[:, :, None])
    walk.chance = torch.sigmoid(walk.logits)
    walk.gradient, walk.slope = _gradient(known, columns, walk.chance, walk.weight)
    walk.iterations += walk.moving
    walk.moving = walk.moving & _too_steep(walk.gradient, walk.slope)


def _doubt(chance: Tensor) -> Tensor:
    """Chance · (1 − chance)."""
    return torch.addcmul(chance, chance, chance, value=-1)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(-1)


def _step(columns: Columns, walk: _Walk, along: Tensor, descent: Tensor) -> Tensor:
    """A length at which the objective has surely fallen, close to the best one where the step is small.

    Along a line the loss's third derivative is at most `fastest` times its second. So the curvature found here grows at
    most exponentially; and it is never above its value at a chance of one half. Either bound gives a length, and the
    longer one is taken.
    """
    penalty = columns.penalty * torch.linalg.vector_norm(walk.direction, dim=-1).square()
    inside = along * columns.share
    fastest = inside.abs().amax(-1) * columns.count
    inside *= along
    at_most = inside.sum(-1) / 4 + penalty
    here = _dot(inside, _doubt(walk.chance)) + penalty
    newton = descent / here.clamp(min=1e-30)
    careful = torch.log1p(fastest * newton) / fastest.clamp(min=1e-30)
    return torch.maximum(careful, descent / at_most.clamp(min=1e-30)).clamp(min=0)
