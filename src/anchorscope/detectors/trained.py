"""A detector ready for use: what was fitted, where it may be used, and how features become decisions.

A detector reads the states of one model under one prompt; anything else gives numbers without meaning. So what it was
trained with is part of it (`DetectorSetting`), and is compared when it is loaded.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from anchorscope.answers.template import Template
from anchorscope.detectors.features import Features, Needs
from anchorscope.detectors.fitted import Fitted, TrainingRange
from anchorscope.errors import UserError
from anchorscope.evidence.source_use import UseCalibration
from anchorscope.stats.calibration import Calibration, Threshold


@dataclass(frozen=True)
class DetectorSetting:
    """The model and the prompt that a detector was trained with, and where in a run it reads."""

    model: str
    source: str
    """What the user named: a hub id, a folder, a file; loaded where scoring names no other."""
    fingerprint: str
    """Of the weights, see `model_fingerprint`."""
    tokenizer: str
    n_layers: int
    d_model: int
    dtype: str
    """Precision of the model when the states were read."""
    template: Template
    """The whole text around a question, solved examples included."""
    position: str
    """The token that is read, one of `catalogue.POSITIONS`."""
    edges: str = "all"
    """Which later tokens lose the question's key words under the knockout."""
    exact_tokens: str = "auto"
    """Who chooses the key words."""
    max_new_tokens: int = 16

    @classmethod
    def of(cls, model: Mapping[str, Any], template: Template, position: str, **others: Any) -> "DetectorSetting":
        """The setting of a run's model, as its manifest has it, and prompt; `others` are the rest of its fields."""
        same = ("source", "fingerprint", "tokenizer", "n_layers", "d_model", "dtype")
        facts = {name: model[name] for name in same}
        return cls(model=model["name"], template=template, position=position, **facts, **others)


@dataclass(frozen=True)
class Card:
    """What a user has to know before trusting a detector."""

    data: str = ""
    """What it was trained on, in words, with numbers."""
    quality: tuple[Mapping[str, Any], ...] = ()
    """What was measured: rows of `detectors.csv`."""
    shifts: tuple[str, ...] = ()
    """Other data and prompts that it was tried on."""
    limits: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    calibration: tuple[Mapping[str, Any], ...] = ()
    """What was so where it said so, in bins of its probability (`low`, `high`): `n` training answers, each judged by a
    fit that never saw it, and at their natural share of true ones the mean probability (`said`) and the share of true
    answers (`true`)."""


@dataclass(frozen=True)
class TrainedDetector:
    """A detector with all that its use needs."""

    name: str
    fitted: Fitted
    calibration: Calibration
    setting: DetectorSetting
    card: Card
    thresholds: tuple[Threshold, ...] = ()
    """For several risks; where none is named, the first that could be reached is used."""
    range: TrainingRange | None = None
    """States like those of training; None where any state will do."""
    sha256: str | None = None
    context_use: UseCalibration | None = None
    """How `context_used` becomes a probability; None where the runs did not show what answers went by."""

    @property
    def needs(self) -> Needs:
        """What is read of an item, the range's state included."""
        return Needs.together([self.fitted.needs, *([] if self.range is None else [self.range.needs])])

    def threshold(self, risk: float | None = None) -> Threshold | None:
        """The threshold of a risk; where none is named, the first that can be reached; None where there is none."""
        if risk is None:
            reached = [threshold for threshold in self.thresholds if threshold.probability is not None]
            return next(iter([*reached, *self.thresholds]), None)
        for threshold in self.thresholds:
            if abs(threshold.risk - risk) < 1e-9:
                return threshold
        risks = ", ".join(f"{threshold.risk:g}" for threshold in self.thresholds) or "none"
        raise UserError(
            f"Detector {self.name!r} has no threshold for the risk {risk:g}; it was trained for: {risks}. Choose one "
            f"of these, or train it again with the risk that you want."
        )

    def threshold_notes(self, risk: float | None) -> list[str]:
        """What has to be said of every verdict for a risk, or for none that was named."""
        threshold = self.threshold(risk)
        if threshold is None:
            return [f"no risk was measured: accepted from probability {HALF:g} on"]
        if threshold.probability is None:
            return [f"a risk of {threshold.risk:g} could not be reached in training: nothing is accepted"]
        first = self.thresholds[0]
        if risk is None and first.probability is None:
            return [f"a risk of {first.risk:g} could not be reached in training: accepted at {threshold.risk:g}"]
        return []


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
    verdict: str
    warnings: tuple[str, ...] = field(default=())
    """What may make the number worth less."""

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Decisions:
    """The same of several items, as arrays; `outside` the training range or not."""

    log_odds: Float[np.ndarray, " item"]
    probability: Float[np.ndarray, " item"]
    outside: Bool[np.ndarray, " item"]

    @classmethod
    def of(cls, trained: TrainedDetector, features: Features) -> "Decisions":
        """Calibrated log-odds and probabilities of items, and which of them lie outside the training range."""
        raw, calibration = trained.fitted.log_odds(features), trained.calibration
        outside = np.zeros(len(raw), bool) if trained.range is None else trained.range.is_outside(features)
        return cls(calibration.slope * raw + calibration.intercept, calibration.probability(raw), outside)

    def verdicts(self, threshold: Threshold | None) -> list[str]:
        least = HALF if threshold is None else threshold.probability
        accepted = self.probability >= (np.inf if least is None else least)
        return np.where(self.outside, OUT_OF_RANGE, np.where(accepted, ACCEPT, ABSTAIN)).tolist()
