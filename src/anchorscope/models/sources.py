"""What a model's name points to, found without loading any weights: a folder, a file, a hub id, or a shape."""

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.errors import UserError, unknown
from anchorscope.models.embedded import EMBEDDED, file_hashes, installed_path

if TYPE_CHECKING:  # the list of shapes is shown by commands that must come at once
    import torch

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
_SHAPE = "shape:"
MARK = "RANDOM WEIGHTS"
"""What every output of such a model says."""


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
    if source in EMBEDDED or is_shape(source) or len(source) > _LONGEST_NAME:
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
    if is_shape(model):
        return model
    found = model_files(model) if files is None else files
    if found is None:
        return None
    made_by = f"GGUF, epoch {EPOCH}" if gguf_file(model) is not None else ""
    return hashlib.sha256(json.dumps([made_by, found], sort_keys=True).encode()).hexdigest()


def _found(model: str) -> tuple[Path, list[Path]] | None:
    """The folder of a model and its files."""
    if is_shape(model):
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


@dataclass(frozen=True)
class Shape:
    """Sizes of a published model, as its configuration states them.

    `shape:NAME` is its exact architecture with random weights, for tests and for speed; `shape:NAME/N` is N times
    narrower, with as many layers. Such a model knows nothing: its answers and labels have to be supplied, and every
    output says RANDOM WEIGHTS. The embedded model's tokenizer serves them all.
    """

    architecture: str
    d_model: int
    d_mlp: int
    layers: int
    heads: int
    key_value_heads: int
    d_head: int
    vocabulary: int
    tied: bool
    """Whether the head is the embedding."""
    positions: int
    rope: dict[str, Any]
    norm_epsilon: float


_LLAMA_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_QWEN_ROPE = {"rope_type": "default", "rope_theta": 1000000.0}
SHAPES: dict[str, Shape] = {
    "smollm2-135m": Shape(
        "llama", 576, 1536, 30, 9, 3, 64, 49152, True, 8192, {"rope_type": "default", "rope_theta": 100000.0}, 1e-5
    ),
    "llama-3.2-1b": Shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 131072, _LLAMA_ROPE, 1e-5),
    "llama-3.2-3b": Shape("llama", 3072, 8192, 28, 24, 8, 128, 128256, True, 131072, _LLAMA_ROPE, 1e-5),
    "qwen3-8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6),
    "qwen3-32b": Shape("qwen3", 5120, 25600, 64, 64, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6),
}


def is_shape(source: str) -> bool:
    """Whether the user named a shape."""
    return source.startswith(_SHAPE)


def shape_title(source: str) -> str:
    """The name on charts and in tables."""
    return f"{source.removeprefix(_SHAPE)} ({MARK})"


def shape_config(source: str, tokens: int) -> Any:
    """The configuration of `shape:NAME` or `shape:NAME/N`; `tokens` is the size of the tokenizer's vocabulary."""
    name, _, divisor_text = source.removeprefix(_SHAPE).partition("/")
    if name not in SHAPES:
        raise unknown("shape", name, SHAPES, "A shape N times narrower is shape:NAME/N.")
    if divisor_text and not (divisor_text.isdecimal() and 1 <= int(divisor_text) <= 64):
        raise UserError(f"Shape {source!r} cannot be scaled by {divisor_text!r}; allowed: shape:NAME/1 to /64.")
    from transformers import AutoConfig

    shape, by = SHAPES[name], int(divisor_text or 1)
    key_value_heads = max(1, shape.key_value_heads // by)
    heads = max(1, shape.heads // by // key_value_heads) * key_value_heads
    return AutoConfig.for_model(
        shape.architecture,
        hidden_size=max(16, shape.d_model // by),
        intermediate_size=max(16, shape.d_mlp // by),
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=max(8, shape.d_head // by // 2 * 2),  # even, for the rotary embedding
        vocab_size=shape.vocabulary if by == 1 else tokens,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=shape.positions,
        rope_parameters=dict(shape.rope),
        rms_norm_eps=shape.norm_epsilon,
    )


def build_shape(config: Any, dtype: "torch.dtype", device: "torch.device") -> Any:
    """The model with random weights, the same at every call on one kind of device, made where it will run."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
