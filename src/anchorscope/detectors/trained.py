"""A detector that is ready for use: what was fitted, how its log-odds become decisions, and where it may be used.

A detector reads the states of one model under one prompt; anything else gives numbers without meaning. So what it was
trained with is part of it (`DetectorSetting`), and whoever loads it compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorscope.answers.template import Template
from anchorscope.detectors.features import Needs
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.layer_probes import LayerProbes
from anchorscope.detectors.training_range import TrainingRange
from anchorscope.errors import UserError
from anchorscope.models.language_model import ModelIdentity
from anchorscope.stats.calibration import Calibration, Threshold


@dataclass(frozen=True)
class DetectorSetting:
    """The model and the prompt that a detector was trained with, and where in a run it reads."""

    model: str
    """Display name."""
    source: str
    """What the user named: a hub id, a folder, a file; loaded where scoring names no other."""
    fingerprint: str
    """Of the weights, see `model_fingerprint`."""
    tokenizer: str
    """Of the tokenizer."""
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
    """Longest answer that is generated."""

    @classmethod
    def of(cls, identity: ModelIdentity, template: Template, position: str, **others: Any) -> "DetectorSetting":
        """The setting of a run's model and prompt; `others` are the rest of its fields."""
        same = {
            name: getattr(identity, name)
            for name in ("source", "fingerprint", "tokenizer", "n_layers", "d_model", "dtype")
        }
        return cls(model=identity.name, template=template, position=position, **same, **others)


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
    """What it cannot do."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of anchorscope and the libraries that made it."""
    calibration: tuple[Mapping[str, Any], ...] = ()
    """What was so where it said so, in bins of its probability (`low`, `high`): `n` training answers, each judged by a
    fit that never saw it, and at their natural share of true ones the mean probability (`said`) and the share of true
    answers (`true`)."""


@dataclass(frozen=True)
class Calibrated:
    """A fitted detector with the probabilities of its log-odds."""

    fitted: Fitted
    calibration: Calibration


@dataclass(frozen=True)
class TrainedDetector:
    """A detector with all that its use needs."""

    name: str
    """As in `catalogue.DETECTORS`."""
    fitted: Fitted
    calibration: Calibration
    setting: DetectorSetting
    card: Card
    thresholds: tuple[Threshold, ...] = ()
    """For several risks; where none is named, the first that could be reached is used."""
    range: TrainingRange | None = None
    """States like those of training; None where any state will do."""
    fallback: Calibrated | None = None
    """What speaks in its place where a state lies outside the range; None where it speaks all the same."""
    sha256: str | None = None
    """Of the bundle that it was read from."""
    layer_probes: LayerProbes | None = None
    """Probes of every layer, by which single answers are looked at; no part of the score."""

    @property
    def needs(self) -> Needs:
        """What is read of an item, the range's state and the fallback's numbers included."""
        parts = [self.fitted.needs]
        if self.range is not None:
            parts.append(Needs(states=(self.range.key,)))
        if self.fallback is not None:
            parts.append(self.fallback.fitted.needs)
        return Needs.together(parts)

    def threshold(self, risk: float | None = None) -> Threshold | None:
        """The threshold of a risk; where none is named, the first that can be reached; None where there is none."""
        if risk is None:
            reached = [one for one in self.thresholds if one.probability is not None]
            return next(iter([*reached, *self.thresholds]), None)
        for one in self.thresholds:
            if abs(one.risk - risk) < 1e-9:
                return one
        known = ", ".join(f"{one.risk:g}" for one in self.thresholds) or "none"
        raise UserError(
            f"Detector {self.name!r} has no threshold for the risk {risk:g}; it was trained for: {known}. Choose one "
            f"of these, or train it again with the risk that you want."
        )
