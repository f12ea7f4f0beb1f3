"""What a model's name points to, found without loading any weights: a folder, a file, a hub id, or a shape."""

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError, unknown
from anchorscope.models import shapes
from anchorscope.models.embedded import EMBEDDED, file_hashes, installed_path

EPOCH = 1
"""Raised whenever the same GGUF file would be read into other numbers."""
_LONGEST_NAME = 1000  # no file system takes more, and some raise instead of saying no
_ALLOWED = "give a folder with safetensors, a .gguf file, or a hub id (OWNER/NAME)."
_NEVER_OPENED = (
    ".bin",
    ".pt",
    ".pth",
    ".pkl",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".ot",
    ".onnx",
    ".tflite",
    ".mlmodel",
    ".npz",
    ".md",
    ".png",
    ".jpg",
    ".jpeg",
    ".svg",
    ".gif",
    ".pdf",
)
"""Endings of files that lie beside a model and are no part of it here: weights in other formats, pictures, texts."""

ModelFiles = Mapping[str, Mapping[str, Any]]
"""`size` and `sha256` of every file of a model, by its path relative to the model's folder."""


def locate(source: str) -> tuple[str, str, dict[str, Any]]:
    """Where transformers finds it, the display name, and extra loading options: a GGUF file has `gguf_file`."""
    if source in EMBEDDED:
        folder = installed_path(source)
        if folder is None:
            raise UserError(
                f"The embedded model {source!r} is not installed yet; run: anchorscope models --install {source}"
            )
        return str(folder), EMBEDDED[source].title, {}
    path = _checked_path(source)
    kind = _kind(path, source)
    if kind == "file":
        if path.suffix.lower() != ".gguf":
            raise UserError(
                f"Model file {source!r} is not a GGUF file; give a folder with safetensors, a .gguf file or a hub id."
            )
        return str(path.parent), path.stem, {"gguf_file": path.name}
    if kind == "folder":
        try:
            _check_folder(path, source)
        except OSError as error:
            raise UserError(f"Model folder {source!r} cannot be read ({error.strerror}); {_ALLOWED}") from error
        return str(path), path.resolve().name, {}
    if is_hub_id(source):
        return source, source.rsplit("/", 1)[1], {}
    if "/" in source:
        what = "file" if source.lower().endswith(".gguf") else "folder"
        raise UserError(f"Model {what} {source!r} does not exist; {_ALLOWED}")
    raise unknown(
        "model", source, EMBEDDED, "A hub id (OWNER/NAME), a folder, a .gguf file or shape:NAME is allowed too."
    )


def gguf_file(source: str) -> Path | None:
    """The GGUF file that a name points to; None for anything else."""
    if source in EMBEDDED or shapes.is_shape(source) or len(source) > _LONGEST_NAME:
        return None
    try:
        path = Path(source).expanduser()
        return path if path.suffix.lower() == ".gguf" and path.is_file() else None
    except (OSError, RuntimeError):  # a name that no file system takes, or the home folder of nobody
        return None


def model_files(model: str) -> ModelFiles | None:
    """The files that a name points to, weights and tokenizer, each with size and sha256; None where none are here.

    They are read once, and again when they were written to: a copy, or a file that was only touched, is the same.
    """
    try:
        found = _found(model)
        if found is None:
            return None
        folder, files = found
        hashes = file_hashes(files)
        return {
            file.relative_to(folder).as_posix(): {"size": file.stat().st_size, "sha256": digest}
            for file, digest in zip(files, hashes, strict=True)
        }
    except (OSError, RuntimeError):  # a file that went away, a name that no file system takes, nobody's home folder
        return None


def source_signature(model: str, files: ModelFiles | None = None) -> str | None:
    """What a name points to, as one hash of the contents of its files (`model_files`, where they are not given).

    As long as it stays the same, the weights need not be loaded to know that they are the same. None where it cannot be
    told: no such model is here.
    """
    if shapes.is_shape(model):
        return model
    found = model_files(model) if files is None else files
    if found is None:
        return None
    made_by = f"GGUF, epoch {EPOCH}" if gguf_file(model) is not None else ""
    return hashlib.sha256(json.dumps([made_by, found], sort_keys=True).encode()).hexdigest()


def _found(model: str) -> tuple[Path, list[Path]] | None:
    """The folder of a model and its files."""
    if shapes.is_shape(model):
        return None
    if model in EMBEDDED:
        folder = installed_path(model)
    elif (file := gguf_file(model)) is not None:
        return file.parent, [file]
    elif len(model) <= _LONGEST_NAME and Path(model).expanduser().is_dir():
        folder = Path(model).expanduser()
    else:
        folder = _snapshot(model)
    return None if folder is None else (folder, _files(folder))


def _files(folder: Path) -> list[Path]:
    """The files of a model; hidden ones are left out, which version control and caches of the hub's client make."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.suffix.lower() not in _NEVER_OPENED
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _checked_path(source: str) -> Path:
    """A name as a path; refused where it can be none, or none that could be written into a result."""
    if len(source) > _LONGEST_NAME:
        raise UserError(f"Model {source[:40]!r}… is {len(source)} characters long; give a name, a folder or a file.")
    if not source.strip() or "\0" in source:
        raise UserError(f"Model {source!r} is no name; {_ALLOWED}")
    try:
        source.encode()
        return Path(source).expanduser()
    except UnicodeEncodeError as error:
        raise UserError(f"Model {source!r} has a name that is not UTF-8; rename it.") from error
    except RuntimeError as error:
        raise UserError(
            f"Model {source!r} is in the home folder of a user who is not known here; {_ALLOWED}"
        ) from error


def _kind(path: Path, source: str) -> str | None:
    """What is there: a file or a folder, or nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"Model {source!r} cannot be read ({error.strerror}); {_ALLOWED}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"Model {source!r} is neither a folder nor a regular file; {_ALLOWED}")
    return "folder" if stat.S_ISDIR(mode) else "file"


def is_hub_id(source: str) -> bool:
    """Whether a name has the form OWNER/NAME."""
    return source.count("/") == 1 and not source.startswith((".", "/", "~")) and not source.lower().endswith(".gguf")


def _snapshot(model: str) -> Path | None:
    """The folder in the hub's cache that a hub id would be loaded from; its name is the commit."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if not is_hub_id(model):
        return None
    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _check_folder(path: Path, source: str) -> None:
    if not (path / "config.json").is_file() and (path / "adapter_config.json").exists():
        raise UserError(
            f"Model folder {source!r} holds an adapter without its model; merge the two (merge_and_unload, "
            f"save_pretrained), or load them in Python and hand them to anchorscope.run."
        )
    if not (path / "config.json").is_file():
        found = ", ".join(sorted(entry.name for entry in path.iterdir())[:5]) or "nothing"
        raise UserError(
            f"Model folder {source!r} has no config.json (found: {found}); give the folder that holds the model itself."
        )
    if not any(path.glob("*.safetensors")):
        pickled = (entry.name for entry in path.iterdir() if entry.suffix in (".bin", ".pt", ".pth", ".gguf"))
        found = ", ".join(sorted(pickled)) or "no weights"
        raise UserError(
            f"Model folder {source!r} has no safetensors weights (found: {found}); pickled weights are not loaded "
            f"because they can run code. Save the model again with save_pretrained(), or name a .gguf file itself."
        )
