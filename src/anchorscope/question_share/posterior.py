"""What can be said of single items: a share with an interval, and a call only where two groups show.

Two models look at ẑ (what the cut state explains) against z (the clean log-odds). Labels play no part in either.
Graded: an item of share λ keeps (1 − λ) of its log-odds, up to noise. Before its item is looked at every λ is possible,
those at the ends somewhat more (Jeffreys' prior). How much of the spread of ẑ is noise nobody can tell, so all of it
counts; intervals are wide, and in simulated worlds hold what was planted. Narrower ones did not.
Two groups: question items explain nothing of z, answer items as much as under a random cut or at least half of that;
the gate between them may know the predicted share ℓ(x).

When single items may be called: three things have to agree, as each of them alone finds groups where there are none.

Something is lost at all; items that are predicted to lose more do lose more, held out; and two groups explain what is
left of the evidence better than one regression.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import norm

Floats = NDArray[np.float64]

GRID = np.linspace(0.0, 1.0, 41)
"""Shares that an item can have."""
SURE, SURE_ANSWER = 0.9, 0.01
"""A question item is called above the first posterior, an answer item below the second: noise in z that the cut state
explains makes items look like answer items, and in simulated worlds 17 to 43 % of those below 0.1 were none."""
LEAST_GAIN = 0.01
"""Held-out log-likelihood per item by which two groups must beat one regression before anyone is called."""
QUESTION, ANSWER, UNDETERMINED = "question", "answer", "undetermined"
_AT_THE_ENDS = 0.0125  # half a step of the grid: the prior has no end there
_MOST_TILT = 60.0  # beyond it every item is at one end
_STEPS, _SETTLED = 200, 1e-4  # of the EM algorithm; it ends when no posterior moves by more
_LEAST_SPREAD = 0.05  # of z's deviation: no group is sharper than that


class ItemShares(NamedTuple):
    """Posterior of every item's share."""

    mean: Float[np.ndarray, " item"]
    low: Float[np.ndarray, " item"]
    high: Float[np.ndarray, " item"]
    distribution: Float[np.ndarray, " share"]
    """What was thought of every item before it was looked at, on `GRID`."""


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
    kept, line = (1 - GRID) * under_random.slope, fit_line(z, explained)
    spread = max(under_random.spread, line.spread)
    likelihood = np.exp(-0.5 * ((explained[:, None] - line.level - kept * z[:, None]) / spread) ** 2) + 1e-12
    inside = np.clip(GRID, _AT_THE_ENDS, 1 - _AT_THE_ENDS)
    distribution = (inside * (1 - inside)) ** -0.5
    distribution /= distribution.sum()
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
        tilted = distribution * np.exp(tilt * (GRID - 0.5))
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
        before, question_share = question_share, TwoGroups(gate, question, answer).probability(z, explained, predicted)
        if np.abs(question_share - before).max() < _SETTLED:
            break
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
        UNDETERMINED if not allowed or SURE_ANSWER <= one <= SURE else QUESTION if one > SURE else ANSWER
        for one in probability.tolist()
    ]


SIGNIFICANT = 0.05
"""The first of the three needs a p-value below this."""


def beyond_zero(lost: Float[np.ndarray, " item"], groups: Int[np.ndarray, " item"]) -> tuple[float, float]:
    """T and its one-sided p-value: truth is independent of the clean evidence, given the cut state."""
    _, member = np.unique(groups, return_inverse=True)
    sums = np.bincount(member, weights=lost)
    spread = sums.std(ddof=1) * np.sqrt(len(sums))
    statistic = float(sums.sum() / spread) if spread > 0 else 0.0
    return statistic, float(norm.sf(statistic))


def may_call(p_value: float, thirds_low: float, gain: float) -> bool:
    """Whether items are called: p of `beyond_zero`, lower end of the thirds' difference, mean gain of the mixture."""
    return p_value < SIGNIFICANT and thirds_low > 0 and gain > LEAST_GAIN
