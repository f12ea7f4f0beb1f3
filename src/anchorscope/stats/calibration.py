"""From a detector's log-odds to a probability that can be taken at its word: Platt scaling, and another prevalence.

Platt scaling is a logistic regression with one feature, the log-odds: slope · log-odds + intercept, the slope never
below 0, so that the order of the answers stays. It holds for data in which as many answers are true as where it was
fitted. Where another share is true, and the true answers among themselves and the false ones among themselves look
the same (prior shift), Bayes' rule adds a constant to the log-odds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

Floats = NDArray[np.float64]

_RIDGE = 1e-3
"""Penalty on the slope, in standard deviations of the log-odds: a thousandth of one item's say. Where a threshold parts
true and false without a mistake, the best slope is infinite; this one is finite."""
_MOST_STEPS = 100
_GRADIENT = 1e-10  # per unit of weight, at which the fit is done


@dataclass(frozen=True)
class Calibration:
    """How log-odds become a probability."""

    slope: float
    intercept: float
    prevalence: float
    """Share of true answers where it was fitted."""

    def probability(self, log_odds: ArrayLike, prevalence: float | None = None) -> Floats:
        """Probability of "truthful", for data with so large a share of true answers (none: as where it was fitted)."""
        scaled = self.slope * np.asarray(log_odds, np.float64) + self.intercept
        return expit(scaled if prevalence is None else at_prevalence(scaled, self.prevalence, prevalence))

    def to_dict(self) -> dict[str, float]:
        """As plain values, to store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Calibration":
        """Of stored values."""
        return cls(float(values["slope"]), float(values["intercept"]), float(values["prevalence"]))


def at_prevalence(log_odds: ArrayLike, trained_at: float, wanted: float) -> Floats:
    """Calibrated log-odds where another share of the answers is true (prior shift)."""
    for share in (trained_at, wanted):
        if not 0 < share < 1:
            raise ValueError(f"a prevalence lies between 0 and 1, both excluded; found {share:.4g}")
    return np.asarray(log_odds, np.float64) + (logit(wanted) - logit(trained_at))


def fit_platt(log_odds: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Calibration:
    """Platt scaling of log-odds [item] by weighted maximum likelihood (Newton's method, to the optimum)."""
    given, labels = np.asarray(log_odds, np.float64), np.asarray(truthful, bool)
    mass = np.ones(len(given)) if weights is None else np.asarray(weights, np.float64)
    true, false = float(mass[labels].sum()), float(mass[~labels].sum())
    if true <= 0 or false <= 0:
        raise ValueError("calibration needs answers of both kinds, true and false")
    if not np.isfinite(given).all():
        raise ValueError("log-odds to calibrate have to be finite")
    prevalence = true / (true + false)
    centre = np.average(given, weights=mass)
    spread = float(np.sqrt(np.average((given - centre) ** 2, weights=mass)))
    level = Calibration(0.0, float(logit(prevalence)), prevalence)
    if spread == 0:
        return level
    slope, intercept = _newton((given - centre) / spread, labels.astype(np.float64), mass, level.intercept)
    if slope <= 0:  # the likelihood is concave: where its top lies below 0, the best slope that is allowed is 0
        return level
    return Calibration(slope / spread, intercept - slope / spread * float(centre), prevalence)


def _newton(feature: Floats, label: Floats, mass: Floats, start: float) -> tuple[float, float]:
    """Slope and intercept of a weighted logistic regression on one standardised feature."""
    design = np.stack([feature, np.ones_like(feature)])
    ridge = np.array([_RIDGE, 0.0])
    whole = float(mass.sum())
    sign = 2 * label - 1

    def objective(theta: Floats) -> float:
        return float((mass * np.logaddexp(0, -sign * (theta @ design))).sum() + (ridge * theta**2).sum() / 2)

    theta = np.array([0.0, start])
    value = objective(theta)
    for _ in range(_MOST_STEPS):
        said = expit(theta @ design)
        gradient = design @ (mass * (said - label)) + ridge * theta
        if np.abs(gradient).max() <= _GRADIENT * whole:
            break
        curvature = (design * (mass * said * (1 - said))) @ design.T + np.diag(ridge)
        curvature[np.diag_indices(2)] += 1e-12 * whole  # keeps the step finite where all are sure
        step, length = np.linalg.solve(curvature, gradient), 1.0
        while (found := objective(theta - length * step)) > value and length > 1e-6:
            length /= 2
        theta, value = theta - length * step, found
    return float(theta[0]), float(theta[1])
