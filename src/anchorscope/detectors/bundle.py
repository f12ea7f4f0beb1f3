"""A detector ready for use, and on disk: `detector.json` and `weights.safetensors`, nothing else, and no pickle.

It reads the states of one model under one prompt; anything else gives numbers without meaning. So what it was trained
with is part of it (`DetectorSetting`), and is compared when it is loaded. `detector.json` holds everything that is no
tensor, the sha256 of the weights' file, and that of its own content (canonical JSON, without that entry). It is read
only if its bytes are exactly what would be written for what it says: so no byte of either file can change unseen. A
linear detector can also be exported as one vector with a JSON card. Both formats are in docs/bundle-format.md.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anchorscope.answers.template import Template
from anchorscope.detectors.bundle_files import (
    JSON,
    MOST_BYTES,
    PROBE,
    SCHEMA,
    SCHEMA_VERSION,
    WEIGHTS,
    bundle_files,
    checked_record,
    refused,
    write_folder,
    written,
)
from anchorscope.detectors.features import CLEAN, Needs, refuse_unknown
from anchorscope.detectors.fitted import (
    Fitted,
    LinearProbe,
    TrainingRange,
    load,
    load_detector,
    store,
    store_detector,
)
from anchorscope.errors import UserError
from anchorscope.evidence.source_use import UseCalibration
from anchorscope.files import canonical_hash
from anchorscope.stats.calibration import Calibration, Threshold, without_dominated

HALF = 0.5
"""The probability that separates the verdicts `true` and `false` where no risk was measured."""


class VerdictLimits(NamedTuple):
    """The probabilities at which verdicts change; between them an answer is `unsure`."""

    true_from: float
    """Infinity where the risk could not be reached: no answer is called `true`."""
    false_to: float


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
    def of(
        cls, model: Mapping[str, Any], template: Template, position: str, **others: Any
    ) -> "DetectorSetting":
        """The setting of a run's model, as its manifest has it, and prompt; `others` are the rest of its fields."""
        same = ("source", "fingerprint", "tokenizer", "n_layers", "d_model", "dtype")
        facts = {name: model[name] for name in same}
        return cls(
            model=model["name"], template=template, position=position, **facts, **others
        )


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
        return Needs.together(
            [self.fitted.needs, *([] if self.range is None else [self.range.needs])]
        )

    def threshold(self, risk: float | None = None) -> Threshold | None:
        """The threshold for the largest risk that is not above this one; where none is named, the first that can be
        reached; None where there is none."""
        if risk is None:
            reached = [
                threshold
                for threshold in self.thresholds
                if threshold.probability is not None
            ]
            return next(iter([*reached, *self.thresholds]), None)
        allowed = [
            threshold for threshold in self.thresholds if threshold.risk <= risk + 1e-9
        ]
        if allowed:
            return max(allowed, key=lambda threshold: threshold.risk)
        risks = (
            ", ".join(f"{threshold.risk:g}" for threshold in self.thresholds) or "none"
        )
        raise UserError(
            f"Detector {self.name!r} has no threshold for the risk {risk:g} or a smaller one; it was trained for: "
            f"{risks}. Choose one of these or a larger one, or train it again with the risk that you want."
        )

    def verdict_limits(self, risk: float | None = None) -> VerdictLimits:
        """An answer is `true` from the threshold of the risk on, and `false` if it is true with at most that risk."""
        threshold = self.threshold(risk)
        if threshold is None:
            return VerdictLimits(true_from=HALF, false_to=HALF)
        return VerdictLimits(
            true_from=threshold.lowest, false_to=min(threshold.risk, HALF)
        )

    def threshold_notes(self, risk: float | None) -> list[str]:
        """What has to be said of every verdict for a risk, or for none that was named."""
        threshold = self.threshold(risk)
        if threshold is None:
            return [f"no risk was measured: answers are true from {HALF:g} on"]
        if threshold.probability is None:
            return [
                f"a risk of {threshold.risk:g} could not be reached in training: no answer is called true"
            ]
        if risk is not None and threshold.risk < risk - 1e-9:
            return [
                f"no threshold accepts more at a risk of {risk:g}: that of {threshold.risk:g} is used"
            ]
        first = self.thresholds[0]
        if risk is None and first.probability is None:
            return [
                f"a risk of {first.risk:g} could not be reached in training: {threshold.risk:g} is used"
            ]
        return []


_FITTED, _RANGE = "fitted", "range"
_RECORDS: dict[str, Any] = {
    "calibration": Calibration,
    "setting": DetectorSetting,
    "card": Card,
    "thresholds": tuple[Threshold, ...],
    "context_use": UseCalibration | None,
}
"""Parts of a detector that hold no tensors."""


def pack(trained: TrainedDetector) -> dict[str, bytes]:
    tensors: dict[str, Tensor] = {}
    parts = {_FITTED: store_detector(trained.fitted, _FITTED, tensors)}
    span = None if trained.range is None else store(trained.range, _RANGE, tensors)
    _refuse_no_numbers(tensors, f"Detector {trained.name!r} cannot be saved")
    # Copies: the same weights may stand in two parts, and safetensors takes no tensors that share memory.
    weights = save_tensors(
        {
            name: tensor.detach().cpu().clone().contiguous()
            for name, tensor in tensors.items()
        }
    )
    values = {part: getattr(trained, part) for part in _RECORDS}
    record = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "name": trained.name,
        "parts": parts,
        _RANGE: span,
        **{
            part: TypeAdapter(_RECORDS[part]).dump_python(value)
            for part, value in values.items()
            if value is not None
        },
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    files = {
        JSON: written({**record, "sha256": canonical_hash(record)}),
        WEIGHTS: weights,
    }
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        raise UserError(
            f"Detector {trained.name!r} takes {size / 1e6:.1f} MB, and a bundle may have {MOST_BYTES / 1e6:g}; save "
            f"one that reads fewer layers."
        )
    return files


def write_bundle(folder: Path, trained: TrainedDetector) -> None:
    """Writes a detector as a folder, whole or not at all, and never over a folder that is something else."""
    write_folder(folder, pack(trained))


def read_bundle(folder: str | Path) -> TrainedDetector:
    """The detector of a bundle; refused in one line where it is not what was written."""
    return unpack(bundle_files(folder), str(folder))


def unpack(files: Mapping[str, bytes], name: str) -> TrainedDetector:
    """The detector of a bundle's two files; `name` is what an error calls it."""
    record = checked_record(files, name)
    try:
        tensors = load_tensors(files[WEIGHTS])
        parts = {
            part: TypeAdapter(kind).validate_python(record.get(part))
            for part, kind in _RECORDS.items()
        }
        trained = TrainedDetector(
            name=str(record["name"]),
            fitted=load_detector(tensors, record["parts"][_FITTED], _FITTED),
            range=None
            if record[_RANGE] is None
            else load(TrainingRange, tensors, record[_RANGE], _RANGE),
            sha256=str(record["sha256"]),
            **parts | {"thresholds": without_dominated(parts["thresholds"])},
        )
        for part in (trained.fitted, trained.range):
            if part is not None:
                part.check(trained.setting.d_model)
        refuse_unknown(trained.needs, trained.setting.n_layers)
    except UserError as error:
        raise UserError(
            f"The bundle {name!r} cannot be used: {str(error).rstrip('.')}."
        ) from None
    except (
        SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
    ) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise refused(
            name,
            f"it lacks something or holds something else than a detector ({reason})",
        ) from None
    _refuse_no_numbers(tensors, f"The bundle {name!r} cannot be used")
    return trained


def _refuse_no_numbers(tensors: Mapping[str, Tensor], what: str) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"{what}: its weights {name!r} hold NaN or infinity; train it again."
            )


_MEANINGS = {
    "final": "the answer's last token",
    "answer_end": "the last token of the answer's entity",
    "answer_before": "the token before the answer's entity",
    "attention": "what attention adds to the residual stream",
    "mlp": "what the feed-forward part adds to the residual stream",
    "residual": "the residual stream after the block",
}
"""Positions and sites in words."""


def linear_probe_files(trained: TrainedDetector) -> dict[str, bytes]:
    """A detector as one vector and a card, with its calibration folded in: sigmoid(state · weight + bias) is the
    probability that the answer is true."""
    fitted, setting, calibration = trained.fitted, trained.setting, trained.calibration
    if type(fitted) is not LinearProbe or fitted.key[0] != CLEAN:
        raise UserError(
            f"Detector {trained.name!r} is not one linear probe, so that one vector cannot replace it; export one that "
            f"is: anchorscope detect RUN --bundles probe."
        )
    _, site, layer = fitted.key
    tensors = save_tensors(
        {
            "weight": (calibration.slope * fitted.weight.double())
            .float()
            .cpu()
            .contiguous()
        }
    )
    facts = ("model", "source", "fingerprint", "n_layers", "d_model", "dtype")
    record = {
        "schema": "anchorscope-linear-probe",
        "schema_version": 1,
        "detector": trained.name,
        "bundle_sha256": trained.sha256,
        "model": {name: getattr(setting, name) for name in facts},
        "layer": layer,
        "site": site,
        "site_means": _MEANINGS[site],
        "position": setting.position,
        "position_means": _MEANINGS[setting.position],
        "prompt": asdict(setting.template),
        "bias": calibration.slope * fitted.bias + calibration.intercept,
        "standardisation": "folded into weight and bias",
        "score": "sigmoid(state · weight + bias) = probability that the answer is true",
        "prevalence": calibration.prevalence,
        "thresholds": [asdict(threshold) for threshold in trained.thresholds],
        "data": trained.card.data,
        "limits": list(trained.card.limits),
        "weights_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    return dict(zip(PROBE, (written(record), tensors), strict=True))
