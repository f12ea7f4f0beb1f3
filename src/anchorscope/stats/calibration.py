"""Log-odds made probabilities: a slope and an intercept (Platt scaling), at the share of true answers they were fitted
at."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit


@dataclass(frozen=True)
class Calibration:
    """How log-odds become a probability."""

    slope: float
    intercept: float
    prevalence: float
    """The share of true answers that it was fitted at."""

    def probability(self, log_odds: Float[np.ndarray, " item"]) -> Float[np.ndarray, " item"]:
        """Probability that each answer is true."""
        return expit(self.slope * np.asarray(log_odds, dtype=np.float64) + self.intercept)
