"""A detector on disk: a folder with `detector.json` and `weights.safetensors`, nothing else, and no pickle.

`detector.json` holds everything that is no tensor, the sha256 of the weights' file, and the sha256 of its own content
(canonical JSON, without that entry). It is read only if its bytes are exactly what would be written for what it says:
so no byte of either file can change unseen. What cannot be read is refused in one line.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anchorscope.answers.template import Template
from anchorscope.detectors.bundle_files import JSON as JSON
from anchorscope.detectors.bundle_files import MOST_BYTES as MOST_BYTES
from anchorscope.detectors.bundle_files import (
    SCHEMA,
    SCHEMA_VERSION,
    checked_record,
    content_hash,
    refused,
    write_folder,
    written,
)
from anchorscope.detectors.bundle_files import WEIGHTS as WEIGHTS
from anchorscope.detectors.bundle_files import bundle_files as bundle_files
from anchorscope.detectors.fitted import TrainingRange, load_parts, store_parts
from anchorscope.detectors.layer_probes import LayerProbes
from anchorscope.detectors.trained import Card, DetectorSetting, TrainedDetector
from anchorscope.errors import UserError
from anchorscope.stats.calibration import Calibration, Threshold

_FITTED, _RANGE, _LAYERS = "fitted", "range", "layer_probes"
_BYTES_OF_A_LAYER = 400  # of text beside the weights of a layer's probe: its bias, AUC and means, at most


@dataclass(frozen=True)
class PackedDetector:
    """The bytes of both files."""

    json: bytes
    weights: bytes
    sha256: str
    """Of the content of `detector.json`, and through it of the weights."""

    @property
    def files(self) -> dict[str, bytes]:
        """Content by file name."""
        return {JSON: self.json, WEIGHTS: self.weights}

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.json) + len(self.weights)


def pack(trained: TrainedDetector) -> PackedDetector:
    """A detector as the files of a bundle; where the probes of all layers do not fit, evenly chosen ones of them."""
    packed, probes = _pack(trained), trained.layer_probes
    if packed.size > MOST_BYTES and probes is not None:
        packed = _pack(bare := replace(trained, layer_probes=None))
        each = 4 * probes.weight.shape[1] + _BYTES_OF_A_LAYER
        fitting = (MOST_BYTES - packed.size) // each
        if fitting > 0:
            packed = _pack(replace(bare, layer_probes=probes.thinned(-(-len(probes.layers) // fitting))))
    if packed.size > MOST_BYTES:
        raise UserError(
            f"Detector {trained.name!r} takes {packed.size / 1e6:.1f} MB, and a bundle may have "
            f"{MOST_BYTES / 1e6:g}; save one that reads fewer layers."
        )
    return packed


def _pack(trained: TrainedDetector) -> PackedDetector:
    tensors, stored = store_parts({_FITTED: trained.fitted})
    span = None
    if trained.range is not None:
        own, span = trained.range.stored()
        tensors |= {f"{_RANGE}/{name}": tensor for name, tensor in own.items()}
    layers = None
    if trained.layer_probes is not None:
        own, layers = trained.layer_probes.stored()
        tensors |= {f"{_LAYERS}/{name}": tensor for name, tensor in own.items()}
    _refuse_no_numbers(tensors, f"Detector {trained.name!r} cannot be saved")
    # Copies: the same weights may stand in two parts, and safetensors takes no tensors that share memory.
    weights = save_tensors({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
    record = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "name": trained.name,
        "parts": stored,
        "range": span,
        _LAYERS: layers,
        "calibration": asdict(trained.calibration),
        "thresholds": [asdict(threshold) for threshold in trained.thresholds],
        "setting": asdict(trained.setting),
        "card": asdict(trained.card),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    sha256 = content_hash(record)
    return PackedDetector(written({**record, "sha256": sha256}), weights, sha256)


def write_bundle(place: Path, trained: TrainedDetector) -> str:
    """Writes a detector as a folder, in the place of a bundle that may be there; its sha256.

    It is there whole or not at all, and never over a folder that is something else.
    """
    packed = pack(trained)
    write_folder(place, packed.files)
    return packed.sha256


def read_bundle(place: str | Path) -> TrainedDetector:
    """The detector of a bundle, a folder or `hub:USER/NAME`; refused in one line where it is not what was written."""
    return unpack(bundle_files(place), str(place))


def unpack(files: Mapping[str, bytes], name: str) -> TrainedDetector:
    """The detector of a bundle's two files; `name` is what an error calls it."""
    record = checked_record(files, name)
    try:
        tensors = load_tensors(files[WEIGHTS])
        trained = _trained(record, tensors)
    except UserError as error:
        raise UserError(f"The bundle {name!r} cannot be used: {error}.") from None
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        told = " ".join(str(error).split())[:120] or type(error).__name__
        raise refused(name, f"it lacks something or holds something else than a detector ({told})") from None
    _refuse_no_numbers(tensors, f"The bundle {name!r} cannot be used")
    return trained


def _trained(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TrainedDetector:
    parts = load_parts(tensors, record["parts"])
    own = _named(tensors, _RANGE)
    setting = record["setting"]
    layers = record.get(_LAYERS)
    probes = None if layers is None else LayerProbes.from_stored(_named(tensors, _LAYERS), layers)
    place = _checked(DetectorSetting, {**setting, "template": _checked(Template, setting["template"])})
    if probes is not None and (probes.layers[-1] >= place.n_layers or probes.weight.shape[1] != place.d_model):
        raise ValueError("the probes of its layers are those of another model")
    return TrainedDetector(
        name=str(record["name"]),
        fitted=parts[_FITTED],
        calibration=_checked(Calibration, record["calibration"]),
        setting=place,
        card=_checked(Card, record["card"]),
        thresholds=tuple(_checked(Threshold, one) for one in record["thresholds"]),
        range=None if record["range"] is None else TrainingRange.from_stored(own, record["range"]),
        sha256=str(record["sha256"]),
        layer_probes=probes,
    )


T = TypeVar("T")


def _checked(kind: type[T], record: Mapping[str, Any]) -> T:
    """A record of this kind, whose every entry is of its field's type."""
    return TypeAdapter(kind).validate_python(record)


def _named(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part, by their own names."""
    return {key.removeprefix(f"{part}/"): one for key, one in tensors.items() if key.startswith(f"{part}/")}


def _refuse_no_numbers(tensors: Mapping[str, Tensor], what: str) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{what}: its weights {name!r} hold NaN or infinity; train it again.")
