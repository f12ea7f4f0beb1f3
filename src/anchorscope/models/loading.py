"""From what the user named to a loaded model: the embedded one, a folder, a GGUF file, a hub id, or a shape.

Only safetensors and GGUF weights are read (a pickle can run code), and code that comes with a model runs only when that
is asked for explicitly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from anchorscope.errors import UserError, unknown
from anchorscope.models import shapes
from anchorscope.models.context import context_length
from anchorscope.models.families import listed_family
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.memory import is_out_of_memory, refuse_too_large
from anchorscope.models.model_door import Admitted, admit, first_line
from anchorscope.models.process_settings import quiet_transformers, without_hub
from anchorscope.models.sources import ModelFiles as ModelFiles
from anchorscope.models.sources import gguf_file
from anchorscope.models.sources import model_files as model_files
from anchorscope.models.sources import source_signature as source_signature
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Progress, Silent

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions by their names on the command line."""
BALANCED = "balanced"
"""The device that stands for all GPUs of this machine, with the layers spread over them."""


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model without its weights."""

    name: str
    n_layers: int
    d_model: int
    parameters: int
    tokenizer: Any
    needs_bos: int | None
    random_weights: bool
    context: int | None = None
    """How many tokens it reads at once; None for no limit."""


def load(
    source: str,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> LanguageModel:
    """The model that `source` names, on one device, or spread over all GPUs where the device is `balanced`.

    `progress` shows how far it is.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    target = checked_device(device)
    try:
        with quiet_transformers(), _reading(source, progress or Silent()):
            given = admit(source, trust_remote_code, with_weights=True)
            needed = given.meta.total * DTYPES[dtype].itemsize + given.meta.buffers
            if "gguf_file" in given.extra:  # dequantised on the host, whichever device they go to
                refuse_too_large(needed, torch.device("cpu"), False, f"The dequantised weights of model {source!r}")
            if given.meta.is_plain:
                refuse_too_large(needed, target, device == BALANCED, f"The weights of model {source!r} in {dtype}")
            if shapes.is_shape(source):
                if device == BALANCED:
                    raise UserError(f"A shape ({source!r}) is built on one device, not {BALANCED}; choose cuda or cpu.")
                model = shapes.build(given.config, DTYPES[dtype], target)
            else:
                model = _read_weights(given, source, dtype, device)
            if device != BALANCED:
                model = model.to(target)
            model.eval()  # ours: one made from a shape comes ready for training
            return wrap(model, given.tokenizer, name=given.name, source=source, random_weights=shapes.is_shape(source))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"The weights of model {source!r} do not fit into the memory of {device} in {dtype}; choose a smaller "
            f"--dtype or model, or spread it over several GPUs with --device {BALANCED}."
        ) from None


@contextmanager
def _reading(source: str, progress: Progress) -> Iterator[None]:
    """Shows how far the reading of a model is, and makes transformers read a GGUF file quickly."""
    file = gguf_file(source)
    if file is None:
        progress.start("load model", 1)
        yield
        progress.advance(1)
        progress.finish()
        return
    if find_spec("gguf") is None:
        raise UserError(f"Model {source!r} is a GGUF file, and the package to read it is missing; pip install gguf")
    from anchorscope.models.gguf_files import fast_gguf

    with fast_gguf(f"read {file.name}", progress):
        yield


def read_facts(source: str, trust_remote_code: bool = False) -> ModelFacts:
    """Name, size and tokenizer of a model; its weights are not touched."""
    with quiet_transformers(), _reading(source, Silent()):
        given = admit(source, trust_remote_code)
    family, text = listed_family(given.config.model_type), given.config.get_text_config()
    own = given.tokenizer.bos_token_id
    bos = own if own is not None else text.bos_token_id
    return ModelFacts(
        name=given.name,
        n_layers=int(text.num_hidden_layers),
        d_model=int(text.hidden_size),
        parameters=given.meta.total,
        tokenizer=given.tokenizer,
        needs_bos=bos if family is not None and family.needs_bos else None,
        random_weights=shapes.is_shape(source),
        context=context_length(given.config),
    )


def choose_device(device: str) -> str:
    """`auto` becomes the first GPU where there is one; anything else stays."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def choose_dtype(dtype: str, device: str) -> str:
    """`auto` becomes float32 on the CPU and bfloat16 on anything faster; anything else stays."""
    return ("float32" if device == "cpu" else "bfloat16") if dtype == "auto" else dtype


def checked_device(device: str) -> torch.device:
    """The device that a name stands for, refused where this machine does not have it."""
    try:
        if device == BALANCED:
            return torch.empty(0, device="cuda").device
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise RuntimeError("not a device that models run on")
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"Device {device!r} cannot be used here ({reason}); allowed: auto, cpu, cuda, cuda:N, {BALANCED}."
        ) from error


def _read_weights(given: Admitted, source: str, dtype: str, device: str) -> Any:
    chosen: dict[str, Any] = {"use_safetensors": True}
    if device != "cpu":  # straight to the GPU: the host may not have the room
        chosen["device_map"] = BALANCED if device == BALANCED else {"": device}
    try:
        with without_hub():
            model, loaded = AutoModelForCausalLM.from_pretrained(
                given.place, config=given.config, dtype=DTYPES[dtype], output_loading_info=True, **chosen, **given.extra
            )
    except Exception as error:  # whatever a broken file makes the library say
        if is_out_of_memory(error):
            raise
        raise UserError(f"The weights of model {source!r} cannot be loaded: {first_line(error)}") from error
    if "gguf_file" in given.extra:
        from anchorscope.models.gguf_files import forget_quantisation

        forget_quantisation(model)
    _refuse_gaps(loaded, source)
    _refuse_not_finite(model, source)
    return model


def _refuse_not_finite(model: Any, source: str) -> None:
    """One wrong bit makes a weight infinite or no number; the states of most texts would never show it."""
    for name, tensor in model.named_parameters():
        if (
            tensor.dtype in DTYPES.values()
            and tensor.numel()
            and not torch.stack(torch.aminmax(tensor)).isfinite().all()
        ):
            raise UserError(
                f"The weights of model {source!r} cannot be used: {name} contains NaN or infinity; download the model "
                f"again, or try --dtype float32."
            )


def _refuse_gaps(loaded: dict[str, Any], source: str) -> None:
    """Weights that are missing would silently be drawn at random, those that have no place silently be left out."""
    for kind, what in (
        ("missing_keys", "lacks"),
        ("mismatched_keys", "has in another shape"),
        ("unexpected_keys", "has no place for"),
    ):
        names = sorted(str(name) for name in loaded.get(kind) or ())
        if names:
            raise UserError(
                f"The weights of model {source!r} do not fit its config.json: it {what} {names[0]} "
                f"({len(names)} in all); download the model again, or take the config that belongs to it."
            )
