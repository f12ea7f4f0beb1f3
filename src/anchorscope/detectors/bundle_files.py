"""The two files of a bundle, checked without torch: what is missing, altered or too large is refused at once."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorscope.detectors.hub_bundle import PREFIX, hub_folder
from anchorscope.errors import UserError
from anchorscope.files import read_regular

JSON, WEIGHTS = "detector.json", "weights.safetensors"
SCHEMA = "anchorscope-detector"
SCHEMA_VERSION = 2
"""Raised whenever the form changes."""
READ_VERSIONS = (1, 2)
"""Those that can be read: version 1 had no probes of every layer."""
MOST_BYTES = 5_000_000
"""Both files together: a detector is a small thing beside its model."""
_AGAIN = "copy the bundle again from where it was made, or train it again with anchorscope detect"


def bundle_files(place: str | Path) -> dict[str, bytes]:
    """The bytes of a bundle's two files, by name."""
    folder = hub_folder(str(place), (JSON, WEIGHTS), MOST_BYTES) if str(place).startswith(PREFIX) else Path(place)
    return {name: _read(folder, name) for name in (JSON, WEIGHTS)}


def checked_record(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """What `detector.json` says, if both files are as they were written; `name` is what an error calls the bundle."""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise refused(name, f"it has more than {MOST_BYTES / 1e6:g} MB, which no detector needs")
    record = _record(files[JSON], name)
    if hashlib.sha256(files[WEIGHTS]).hexdigest() != record.get("weights_sha256"):
        raise refused(name, f"{WEIGHTS} was altered or cut off (its sha256 is not the one in {JSON})")
    return record


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_regular(folder / name, MOST_BYTES)
    except OSError as error:
        found = f"{name} is missing" if folder.is_dir() else "there is no such folder"
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            found = f"{name} cannot be read ({error.strerror})"
        raise UserError(
            f"The bundle {str(folder)!r} cannot be read: {found}. Give the folder that holds {JSON} and {WEIGHTS}, "
            f"as anchorscope detect writes it."
        ) from None


def _record(data: bytes, name: str) -> dict[str, Any]:
    """What `detector.json` says, if it is whole."""
    try:
        record = json.loads(data, parse_constant=_no_constant)
        as_written = written(record)
    except (ValueError, RecursionError):
        raise refused(name, f"{JSON} is no JSON: it was altered or cut off") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise refused(name, f"{JSON} does not describe a detector")
    if record.get("schema_version") not in READ_VERSIONS:
        raise UserError(
            f"The bundle {name!r} has the schema version {record.get('schema_version')!r}, and this anchorscope reads "
            f"{' and '.join(map(str, READ_VERSIONS))}; use the version of anchorscope that made it, or train it again "
            f"with anchorscope detect."
        )
    content = {key: value for key, value in record.items() if key != "sha256"}
    if content_hash(content) != record.get("sha256") or as_written != data:
        raise refused(name, f"{JSON} was altered (its sha256 is not that of its content)")
    return record


def written(record: Mapping[str, Any]) -> bytes:
    """The one way in which a record is written; NaN is refused, since JSON has none."""
    return (json.dumps(record, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def content_hash(record: Mapping[str, Any]) -> str:
    """The sha256 of what a record says."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def refused(name: str, why: str) -> UserError:
    """The error of a bundle that cannot be used."""
    return UserError(f"The bundle {name!r} cannot be used: {why}; {_AGAIN}.")
