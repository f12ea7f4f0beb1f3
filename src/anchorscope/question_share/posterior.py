"""What can be said of single items: a share with an interval, and a call only where two groups show.

Two models look at ẑ (what the cut state explains) against z (the clean log-odds).
Graded: an item of share λ keeps (1 − λ) of its log-odds, up to the noise that a random cut leaves; how λ is distributed
over the items is found by maximum likelihood without a form (Kiefer and Wolfowitz 1956), and gives every item a
posterior. An item whose z is near zero tells nothing, and its interval is as wide as the distribution.
Two groups: question items explain nothing of z, answer items as much as under a random cut or at least half of that;
the gate between them may know the predicted share ℓ(x). Labels play no part in either.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GRID = np.linspace(0.0, 1.0, 41)
"""Shares that an item can have."""
SURE = 0.9
"""A call needs a posterior above this, or below its complement."""
LEAST_GAIN = 0.01
"""Held-out log-likelihood per item by which two groups must beat one regression before anyone is called."""
QUESTION, ANSWER, UNDETERMINED = "question", "answer", "undetermined"
_MOST_TILT = 60.0  # beyond it every item is at one end
_STEPS = 200  # of every EM algorithm here; all have long settled by then
_LEAST_SPREAD = 0.05  # of z's deviation: no group is sharper than that


class ItemShares(NamedTuple):
    """Posterior of every item's share."""

    mean: Float[np.ndarray, " item"]
    low: Float[np.ndarray, " item"]
    high: Float[np.ndarray, " item"]
    distribution: Float[np.ndarray, " share"]
    """How shares are distributed over the items, on `GRID`."""


class Line(NamedTuple):
    """ẑ ≈ level + slope · z, with a spread."""

    level: float
    slope: float
    spread: float


@dataclass(frozen=True)
class TwoGroups:
    """A fitted mixture."""

    gate: tuple[float, float]
    """Level and slope of the log-odds of "question" along ℓ(x)."""
    question: Line
    answer: Line

    def log_densities(self, z: Floats, explained: Floats, predicted: Floats) -> tuple[Floats, Floats]:
        """Of an item as a question item and as an answer item, gate included."""
        odds = self.gate[0] + self.gate[1] * predicted
        return (
            -np.logaddexp(0, -odds) + _log_normal(explained, z, self.question),
            -np.logaddexp(0, odds) + _log_normal(explained, z, self.answer),
        )

    def probability(self, z: Floats, explained: Floats, predicted: Floats) -> Floats:
        """That an item is a question item."""
        question, answer = self.log_densities(z, explained, predicted)
        return 1 / (1 + np.exp(np.clip(answer - question, -50, 50)))


def fit_line(z: Floats, explained: Floats, weight: Floats | None = None, least_slope: float = -np.inf) -> Line:
    """Weighted least squares; a slope below the least one is raised to it."""
    weight = np.ones_like(z) if weight is None else weight
    total = max(weight.sum(), 1e-9)
    mean_z, mean_e = (weight * z).sum() / total, (weight * explained).sum() / total
    variance = (weight * (z - mean_z) ** 2).sum()
    slope = (weight * (z - mean_z) * (explained - mean_e)).sum() / max(variance, 1e-12)
    slope = max(float(slope), least_slope)
    level = mean_e - slope * mean_z
    spread = np.sqrt((weight * (explained - level - slope * z) ** 2).sum() / total)
    return Line(float(level), slope, max(float(spread), _LEAST_SPREAD * float(z.std()), 1e-9))


def _log_normal(explained: Floats, z: Floats, line: Line) -> Floats:
    standard = (explained - line.level - line.slope * z) / line.spread
    return -0.5 * standard**2 - np.log(line.spread) - 0.5 * np.log(2 * np.pi)


def item_shares(
    z: Float[np.ndarray, " item"],
    explained: Float[np.ndarray, " item"],
    under_random: Line,
    had: Float[np.ndarray, " item"] | None = None,
    share: float = 0.5,
) -> ItemShares:
    """Posterior of the items' shares; `under_random` is what a random cut leaves of z.

    With the evidence that each item `had`, the items agree with their common `share` Λ.
    """
    kept = (1 - GRID) * under_random.slope
    level = fit_line(z, explained).level
    likelihood = np.exp(-0.5 * ((explained[:, None] - level - kept * z[:, None]) / under_random.spread) ** 2) + 1e-12
    distribution = np.full(len(GRID), 1 / len(GRID))
    for _ in range(_STEPS):
        distribution = _posterior(likelihood, distribution).mean(0)
    posterior = _posterior(likelihood, distribution)
    if had is not None:
        distribution = _tilted(likelihood, distribution, had, share)
        posterior = _posterior(likelihood, distribution)
    below = posterior.cumsum(1)
    low, high = (GRID[np.minimum((below < tail).sum(1), len(GRID) - 1)] for tail in (0.025, 0.975))
    return ItemShares(posterior @ GRID, low, high, distribution)


def _tilted(likelihood: Floats, distribution: Floats, had: Floats, share: float) -> Floats:
    """The distribution under which the items' mean share, weighted by their evidence, is Λ.

    A probe of few items has noise in its z that the cut state explains as well as its evidence; so items seem to keep
    more than they do.
    """
    low, high = -_MOST_TILT, _MOST_TILT
    for _ in range(60):
        tilt = (low + high) / 2
        tilted = (distribution + 1e-6) * np.exp(tilt * (GRID - 0.5))
        tilted /= tilted.sum()
        below = had @ (_posterior(likelihood, tilted) @ GRID) < share * had.sum()
        low, high = (tilt, high) if below else (low, tilt)
    return np.asarray(tilted)


def _posterior(likelihood: Floats, distribution: Floats) -> Floats:
    found = likelihood * distribution
    return np.asarray(found / found.sum(1, keepdims=True))


def fit_two_groups(z: Floats, explained: Floats, predicted: Floats, least_slope: float) -> TwoGroups:
    """The mixture by expectation maximisation, begun at the items' predicted shares."""
    question_share = 1 / (1 + np.exp(-(predicted - predicted.mean()) / max(predicted.std(), 1e-9)))
    gate = (0.0, 0.0)
    for _ in range(_STEPS):
        answer = fit_line(z, explained, 1 - question_share, least_slope)
        total = max(question_share.sum(), 1e-9)
        level = float((question_share * explained).sum() / total)
        spread = float(np.sqrt((question_share * (explained - level) ** 2).sum() / total))
        question = Line(level, 0.0, max(spread, _LEAST_SPREAD * float(z.std()), 1e-9))
        gate = _fit_gate(predicted, question_share, gate)
        question_share = TwoGroups(gate, question, answer).probability(z, explained, predicted)
    return TwoGroups(gate, question, answer)


def _fit_gate(predicted: Floats, target: Floats, begin: tuple[float, float]) -> tuple[float, float]:
    """A few Newton steps of logistic regression with a weak penalty on the slope."""
    design = np.stack([np.ones_like(predicted), predicted], axis=1)
    found = np.array(begin)
    for _ in range(3):
        sure = 1 / (1 + np.exp(-np.clip(design @ found, -30, 30)))
        gradient = design.T @ (sure - target) + [0, found[1]]
        hessian = (design * (sure * (1 - sure))[:, None]).T @ design + np.diag([1e-3, 1.0])
        found = np.clip(found - np.linalg.solve(hessian, gradient), -10, 10)
    return float(found[0]), float(found[1])


class Mixture(NamedTuple):
    """Out-of-fold probabilities of "question item", and what two groups gain over one regression."""

    probability: Float[np.ndarray, " item"]
    gain: Float[np.ndarray, " item"]
    """Held-out log-likelihood of two groups minus that of one regression."""


def held_out_mixture(
    z: Float[np.ndarray, " item"],
    explained: Float[np.ndarray, " item"],
    predicted: Float[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
    under_random: Line,
) -> Mixture:
    """Every fold by the mixture of the others."""
    probability, gain = np.empty_like(z), np.empty_like(z)
    scaled = (predicted - predicted.mean()) / max(float(predicted.std()), 1e-9)
    for fold in np.unique(folds):
        inside, others = folds == fold, folds != fold
        line = fit_line(z[others], explained[others])
        groups = fit_two_groups(z[others], explained[others], scaled[others], 0.5 * under_random.slope)
        held_out = z[inside], explained[inside], scaled[inside]
        probability[inside] = groups.probability(*held_out)
        gain[inside] = np.logaddexp(*groups.log_densities(*held_out)) - _log_normal(*held_out[1::-1], line)
    return Mixture(probability, gain)


def calls(probability: Float[np.ndarray, " item"], allowed: bool) -> list[str]:
    """What each item is called; nothing where the gate is shut."""
    return [
        UNDETERMINED if not allowed or 1 - SURE <= one <= SURE else QUESTION if one > SURE else ANSWER
        for one in probability.tolist()
    ]
