"""Where bundles are written: whole or not at all, and never over a folder that is something else."""

from pathlib import Path

from anchorscope.artefacts.durable import make_folder, replacing
from anchorscope.detectors.bundle import JSON, WEIGHTS, pack
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.errors import UserError


def write_bundle(place: Path, trained: TrainedDetector) -> str:
    """Writes a detector as a folder, in the place of a bundle that may be there; its sha256."""
    packed = pack(trained)
    others = sorted(one.name for one in place.iterdir() if one.name not in (JSON, WEIGHTS)) if place.is_dir() else []
    if others or (place.exists() and not place.is_dir()):
        found = f"it holds {others[0]!r}" if others else "it is a file"
        raise UserError(f"{str(place)!r} is no bundle ({found}) and is not replaced; choose another folder.")
    make_folder(place.parent)
    with replacing(place) as half_made:
        half_made.mkdir()
        for name, content in packed.files.items():
            (half_made / name).write_bytes(content)
    return packed.sha256
