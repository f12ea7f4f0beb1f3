"""From features to decisions: log-odds, probability, verdict."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from anchorscope.catalogue import KNOCKOUT
from anchorscope.detectors.features import CLEAN, Features
from anchorscope.detectors.fitted import Fitted, LinearProbe
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.stats.calibration import Calibration, Threshold

ACCEPT, ABSTAIN, OUT_OF_RANGE = "accept", "abstain", "out-of-range"
"""The verdicts: probable enough for the risk; not so; or unlike everything that the detector was trained on."""
HALF = 0.5
"""The probability from which on answers are accepted where no risk was measured."""


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
    """What cutting the question's key words changes in a probe's log-odds: negative where they carry the evidence; None
    where the detector does not read both states."""

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
        log_odds, probability = (
            np.where(outside, new, old) for new, old in zip(other, (log_odds, probability), strict=True)
        )
    pair = probe_pair(trained.fitted)
    pathway = None if pair is None else pair[1].log_odds(features) - pair[0].log_odds(features)
    return Decisions(log_odds, probability, outside, pathway)


def probe_pair(fitted: Fitted) -> tuple[LinearProbe, LinearProbe] | None:
    """The first probe inside a detector that reads a place both in the clean run and under the knockout."""
    probes = list(_probes(fitted))
    for clean in probes:
        for cut in probes:
            same_place = clean.key[0] == CLEAN and cut.key == (KNOCKOUT, *clean.key[1:])
            if same_place and cut.bias == clean.bias and torch.equal(cut.weight, clean.weight):
                return clean, cut
    return None


def _probes(part: object) -> Iterator[LinearProbe]:
    """Every linear probe of a detector, whatever it is inside of."""
    if isinstance(part, LinearProbe):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _probes(one)
    elif is_dataclass(part):
        for one in fields(part):
            yield from _probes(getattr(part, one.name))


def _calibrated(
    log_odds: Float[np.ndarray, " item"], calibration: Calibration
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    return calibration.slope * log_odds + calibration.intercept, calibration.probability(log_odds)


def threshold_notes(trained: TrainedDetector, risk: float | None) -> list[str]:
    """What has to be said of every verdict for a risk, or for none that was named."""
    threshold = trained.threshold(risk)
    if threshold is None:
        return [f"no risk was measured: accepted from probability {HALF:g} on"]
    if threshold.probability is None:
        return [f"a risk of {threshold.risk:g} could not be reached in training: nothing is accepted"]
    first = trained.thresholds[0]
    if risk is None and first.probability is None:
        return [f"a risk of {first.risk:g} could not be reached in training: accepted at {threshold.risk:g}"]
    return []
