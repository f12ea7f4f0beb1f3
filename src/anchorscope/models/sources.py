"""What a model's name refers to, without loading weights: a folder, a file, a hub id, or a shape."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.errors import UserError, unknown
from anchorscope.json_text import to_json
from anchorscope.models.embedded import EMBEDDED, file_hashes, installed_path

if TYPE_CHECKING:  # the list of shapes is shown by commands that must come at once
    import torch

EPOCH = 1
"""Raised whenever the same GGUF file would be read into different numbers."""
_LONGEST_NAME = 100  # of a name in a message
_ALLOWED = "give a folder with safetensors, a .gguf file, or a hub id (OWNER/NAME)."
_NEVER_OPENED = re.compile(
    r"\.(bin|pt|pth|pkl|ckpt|h5|msgpack|ot|onnx|tflite|mlmodel|npz|md|png|jpg|jpeg|svg|gif|pdf)",
    re.IGNORECASE,
)
"""Files beside a model that aren't part of it: other weight formats, pictures, texts."""

ModelFiles = Mapping[str, Mapping[str, Any]]
"""`size` and `sha256` of every file of a model, by its path relative to the model's folder."""
_SHAPE = "shape:"
MARK = "RANDOM WEIGHTS"
"""What every output of such a model says."""


def locate(source: str) -> tuple[str, str]:
    """The folder for transformers (that of a GGUF file), or the hub id, and the display name."""
    if source in EMBEDDED:
        folder = installed_path(source)
        if folder is None:
            raise UserError(
                f"The embedded model {source!r} is not installed yet; run: anchorscope models --install {source}"
            )
        return str(folder), EMBEDDED[source].title
    path = _path(source)
    try:
        if path is not None and path.is_dir():
            _check_folder(path, source)
            return str(path), path.resolve().name
        if path is not None and path.exists():
            if path.suffix.lower() != ".gguf" or not path.is_file():
                raise UserError(f"Model file {source!r} is not a GGUF file; {_ALLOWED}")
            return str(path.parent), path.stem
    except OSError as error:
        raise UserError(
            f"Model {source!r} cannot be read ({error.strerror}); {_ALLOWED}"
        ) from error
    if is_hub_id(source):
        return source, source.rsplit("/", 1)[1]
    if "/" in source:
        what = "file" if source.lower().endswith(".gguf") else "folder"
        raise UserError(
            f"Model {what} {source[:_LONGEST_NAME]!r} does not exist; {_ALLOWED}"
        )
    raise unknown(
        "model",
        source,
        EMBEDDED,
        "A hub id (OWNER/NAME), a folder, a .gguf file or shape:NAME is allowed too.",
    )


def _path(source: str) -> Path | None:
    try:
        source.encode()
        return (
            Path(source).expanduser() if source.strip() and "\0" not in source else None
        )
    except (UnicodeEncodeError, RuntimeError):  # not UTF-8, or an unknown home folder
        return None


def gguf_file(source: str) -> Path | None:
    path = None if source in EMBEDDED or is_shape(source) else _path(source)
    return (
        path
        if path is not None and path.suffix.lower() == ".gguf" and path.is_file()
        else None
    )


def model_files(model: str) -> ModelFiles | None:
    """Size and sha256 of a model's files, weights and tokenizer; None if it has none."""
    try:
        if (located := _locate_files(model)) is None:
            return None
        folder, files = located
        return {
            file.relative_to(folder).as_posix(): {
                "size": file.stat().st_size,
                "sha256": digest,
            }
            for file, digest in zip(files, file_hashes(files), strict=True)
        }
    except OSError:  # a file that went away, or a name that no file system takes
        return None


def source_signature(model: str, files: ModelFiles | None = None) -> str | None:
    """One hash of the contents of a model's files; None if it has none."""
    if is_shape(model):
        return model
    files = model_files(model) if files is None else files
    if files is None:
        return None
    made_by = f"GGUF, epoch {EPOCH}" if gguf_file(model) is not None else ""
    return hashlib.sha256(
        to_json([made_by, files], sort_keys=True).encode()
    ).hexdigest()


def _locate_files(model: str) -> tuple[Path, list[Path]] | None:
    if is_shape(model):
        return None
    path = _path(model)
    if model in EMBEDDED:
        folder = installed_path(model)
    elif (file := gguf_file(model)) is not None:
        return file.parent, [file]
    elif path is not None and path.is_dir():
        folder = path
    else:
        folder = _snapshot(model)
    if folder is None:
        return None
    return folder, sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and not _NEVER_OPENED.fullmatch(file.suffix)
        and not any(
            part.startswith(".") for part in file.relative_to(folder).parts
        )  # of version control and caches
    )


def is_hub_id(source: str) -> bool:
    return (
        source.count("/") == 1
        and not source.startswith((".", "/", "~"))
        and not source.lower().endswith(".gguf")
    )


def _snapshot(model: str) -> Path | None:
    """The folder in the hub's cache of a hub id; its name is the commit."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if not is_hub_id(model):
        return None
    try:
        config = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def _check_folder(path: Path, source: str) -> None:
    if not (path / "config.json").is_file():
        names = (
            ", ".join(sorted(entry.name for entry in path.iterdir())[:5]) or "nothing"
        )
        raise UserError(
            f"Model folder {source!r} has no config.json (found: {names}); give the folder that holds the model itself."
        )
    if not any(path.glob("*.safetensors")):
        pickled = (
            entry.name
            for entry in path.iterdir()
            if entry.suffix in (".bin", ".pt", ".pth", ".gguf")
        )
        names = ", ".join(sorted(pickled)) or "no weights"
        raise UserError(
            f"Model folder {source!r} has no safetensors weights (found: {names}); pickled weights are not loaded "
            f"because they can run code. Save the model again with save_pretrained(), or name a .gguf file itself."
        )


@dataclass(frozen=True)
class Shape:
    """Sizes of a published model: `shape:NAME` has random weights, `shape:NAME/N` is N times narrower.

    Its answers and labels must be supplied; it uses the embedded model's tokenizer.
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
        "llama",
        576,
        1536,
        30,
        9,
        3,
        64,
        49152,
        True,
        8192,
        {"rope_type": "default", "rope_theta": 100000.0},
        1e-5,
    ),
    "llama-3.2-1b": Shape(
        "llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 131072, _LLAMA_ROPE, 1e-5
    ),
    "llama-3.2-3b": Shape(
        "llama", 3072, 8192, 28, 24, 8, 128, 128256, True, 131072, _LLAMA_ROPE, 1e-5
    ),
    "qwen3-8b": Shape(
        "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6
    ),
    "qwen3-32b": Shape(
        "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6
    ),
}


def is_shape(source: str) -> bool:
    return source.startswith(_SHAPE)


def shape_title(source: str) -> str:
    return f"{source.removeprefix(_SHAPE)} ({MARK})"


def shape_config(source: str, tokens: int) -> Any:
    """The configuration of `shape:NAME` or `shape:NAME/N`; `tokens` is the size of the tokenizer's vocabulary."""
    name, _, divisor_text = source.removeprefix(_SHAPE).partition("/")
    if name not in SHAPES:
        raise unknown(
            "shape", name, SHAPES, "A shape N times narrower is shape:NAME/N."
        )
    if divisor_text and not (divisor_text.isdecimal() and 1 <= int(divisor_text) <= 64):
        raise UserError(
            f"Shape {source!r} cannot be scaled by {divisor_text!r}; allowed: shape:NAME/1 to /64."
        )
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
    """The model with random weights, the same at every call on one kind of device."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
