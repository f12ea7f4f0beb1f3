"""The two files of a bundle, from a folder or the hub, checked without torch: missing, altered, too large is refused.

On the hub a bundle is `hub:USER/NAME`, or `hub:USER/NAME@COMMIT` for one version of it. Only its two files are fetched,
JSON and safetensors; nothing from there is run. What was fetched once is used from the cache of huggingface_hub where
the hub can't be reached.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.files import make_folder, read_regular, replacing

JSON, WEIGHTS = "detector.json", "weights.safetensors"
SCHEMA = "anchorscope-detector"
SCHEMA_VERSION = 2
"""Raised whenever the form changes."""
READ_VERSIONS = (1, 2)
"""Those that can be read: version 1 had no probes of every layer."""
MOST_BYTES = 5_000_000
"""Both files together: a detector is a small thing beside its model."""
DEMO = Path(__file__).parents[1] / "serve" / "demo_detector"
"""The bundle that comes along, for the embedded model."""
_AGAIN = "copy the bundle again from where it was made, or train it again with anchorscope detect"


def bundle_files(place: str | Path) -> dict[str, bytes]:
    """The bytes of a bundle's two files, by name."""
    folder = hub_folder(str(place), (JSON, WEIGHTS), MOST_BYTES) if str(place).startswith(PREFIX) else Path(place)
    return {name: _read(folder, name) for name in (JSON, WEIGHTS)}


def write_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Writes a folder of these files, whole or not at all, in the place of one that holds the same and nothing else."""
    others = sorted(path.name for path in place.iterdir() if path.name not in files) if place.is_dir() else []
    if others or (place.exists() and not place.is_dir()):
        found = f"it holds {others[0]!r}" if others else "it is a file"
        raise UserError(f"{str(place)!r} is no bundle ({found}) and is not replaced; choose another folder.")
    make_folder(place.parent)
    with replacing(place) as half_made:
        half_made.mkdir()
        for name, content in files.items():
            (half_made / name).write_bytes(content)


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


PREFIX = "hub:"
"""How the place of a bundle on the hub begins."""
_PLACE = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
_HOW = "Write hub:USER/NAME, or hub:USER/NAME@COMMIT"


def hub_folder(place: str, names: Sequence[str], most_bytes: int) -> Path:
    """The folder of the hub client's cache that holds these files of a repository, fetched if they are not there."""
    named = _PLACE.fullmatch(place.removeprefix(PREFIX))
    if named is None:
        raise UserError(f"{place!r} names no repository of the hub. {_HOW}.")
    repository, revision = named.groups()
    api = hub_api()

    def fetch(local_files_only: bool) -> Path:
        options = {"revision": revision, "local_files_only": local_files_only}
        files = [Path(api.hf_hub_download(repository, name, **options)) for name in names]
        return files[0].parent

    try:
        with hub_errors(place):
            info = api.model_info(repository, revision=revision, files_metadata=True)
    except _NoHub as error:
        try:
            return fetch(local_files_only=True)
        except (OSError, ValueError):  # nothing of it in the cache
            raise error from None
    sizes = {file.rfilename: file.size for file in info.siblings or ()}
    missing = [name for name in names if name not in sizes]
    if missing:
        raise UserError(f"{place!r} is no detector: it has no {missing[0]}. Name what detector push has published.")
    if sum(sizes[name] or 0 for name in names) > most_bytes:
        raise UserError(f"{place!r} has more than {most_bytes / 1e6:g} MB, which no detector needs; it is not fetched.")
    with hub_errors(place):
        return fetch(local_files_only=False)


def hub_api() -> Any:
    """The hub's client: the address that HF_ENDPOINT gives, the token that HF_TOKEN or `hf auth login` gave."""
    from huggingface_hub import HfApi  # only here: help has to come at once
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="anchorscope")


class _NoHub(UserError):
    """The hub cannot be reached."""


@contextmanager
def hub_errors(place: str, doing: str = "read") -> Iterator[None]:
    """What goes wrong with the hub, in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client, its transport and the cache raise dozens of unrelated types
        code = getattr(getattr(error, "response", None), "status_code", None)
        raise _refusal(place, doing, code, error) from None


_REFUSALS = {
    401: "The hub does not know you (401), so {place!r} cannot be {doing}. Log in with hf auth login, or set HF_TOKEN "
    "to a token that is valid.",
    403: "The hub does not let you (403): {place!r} cannot be {doing}. Use a token that has the right, or a name of "
    "your own.",
    404: "The hub has no {place!r} that you may see (404). Check the name; a private one needs a token (HF_TOKEN).",
    409: "{place!r} is on the hub already (409). Choose another name, or add --update.",
}


def _refusal(place: str, doing: str, code: int | None, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    if type(error).__name__ == "HFValidationError":
        return UserError(f"{place!r} is no name of a repository ({reason}). {_HOW}.")
    if code in _REFUSALS:
        return UserError(_REFUSALS[code].format(place=place, doing=doing))
    if code is not None:
        return UserError(f"The hub answered with {code}: {place!r} cannot be {doing} ({reason}). Try again later.")
    return _NoHub(
        f"The hub cannot be reached, so {place!r} cannot be {doing} ({reason}). Check the connection, HF_ENDPOINT and "
        f"HF_HUB_OFFLINE."
    )
