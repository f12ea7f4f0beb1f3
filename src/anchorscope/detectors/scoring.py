"""From features to decisions: log-odds, probability, verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from anchorscope.detectors.features import Features
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.stats.calibration import Calibration
from anchorscope.stats.risk_control import Threshold

ACCEPT, ABSTAIN, OUT_OF_RANGE = "accept", "abstain", "out-of-range"
"""The verdicts: probable enough for the risk; not so; or unlike everything that the detector was trained on."""
HALF = 0.5
"""The probability from which on answers are accepted where no risk was measured."""


@runtime_checkable
class MeasuresPathway(Protocol):
    """A fitted detector that measures what the cut takes from its log-odds."""

    def pathway_score(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds under the cut less those of the clean run: negative where the question's key words carry truth."""
        ...


@dataclass(frozen=True)
class Score:
    """What a detector says of one answer."""

    question: str
    answer: str
    truth_probability: float | None
    """Probability that the answer is true; None for an empty answer."""
    log_odds: float | None
    """The same as log-odds."""
    verdict: str
    """`accept`, `abstain` or `out-of-range`."""
    warnings: tuple[str, ...] = field(default=())
    """What may make the number worth less."""
    pathway_score: float | None = None
    """What cutting the question's key words changes in the log-odds; None where the detector does not measure it."""

    def record(self) -> dict[str, Any]:
        """As a row of a result."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Decisions:
    """The same of several items, as arrays."""

    log_odds: Float[np.ndarray, " item"]
    """Calibrated."""
    probability: Float[np.ndarray, " item"]
    outside: Bool[np.ndarray, " item"]
    """Whether a state lies outside the training range; the numbers are then the fallback's, where there is one."""
    pathway: Float[np.ndarray, " item"] | None

    def verdicts(self, threshold: Threshold | None) -> list[str]:
        """What follows for a risk."""
        least = HALF if threshold is None else threshold.probability
        accepted = np.zeros(len(self.outside), bool) if least is None else self.probability >= least
        return [
            OUT_OF_RANGE if outside else ACCEPT if taken else ABSTAIN
            for outside, taken in zip(self.outside, accepted, strict=True)
        ]


def decide(trained: TrainedDetector, features: Features) -> Decisions:
    """Calibrated log-odds and probabilities of items; a fallback speaks for those outside the training range."""
    log_odds, probability = _calibrated(trained.fitted.log_odds(features), trained.calibration)
    outside = np.zeros(features.n_items, dtype=bool)
    if trained.range is not None:
        outside = trained.range.is_outside(features)
    if trained.fallback is not None and outside.any():
        other = _calibrated(trained.fallback.fitted.log_odds(features), trained.fallback.calibration)
        log_odds, probability = (np.where(outside, new, old)
                                 for new, old in zip(other, (log_odds, probability), strict=True))  # fmt: skip
    pathway = trained.fitted.pathway_score(features) if isinstance(trained.fitted, MeasuresPathway) else None
    return Decisions(log_odds, probability, outside, pathway)


def _calibrated(
    log_odds: Float[np.ndarray, " item"], calibration: Calibration
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    return calibration.slope * log_odds + calibration.intercept, calibration.probability(log_odds)


def threshold_notes(threshold: Threshold | None) -> Sequence[str]:
    """What has to be said of every verdict."""
    if threshold is None:
        return (f"no risk was measured: accepted from probability {HALF:g} on",)
    if threshold.probability is None:
        return (f"a risk of {threshold.risk:g} could not be reached in training: nothing is accepted",)
    return ()
