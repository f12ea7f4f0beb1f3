"""From what the user named to a loaded model: the embedded one, a folder, a GGUF file, a hub id, or a shape.

Only safetensors and GGUF weights are read (a pickle can run code), and code that comes with a model runs only when that
is asked for explicitly.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from anchorscope.errors import UserError, unknown
from anchorscope.models import shapes
from anchorscope.models.converted import convert
from anchorscope.models.families import listed_family
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.memory import is_out_of_memory
from anchorscope.models.process_settings import quiet_transformers
from anchorscope.models.sources import ModelFiles as ModelFiles
from anchorscope.models.sources import gguf_file, locate
from anchorscope.models.sources import model_files as model_files
from anchorscope.models.sources import source_signature as source_signature
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Progress

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


def load(
    source: str,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> LanguageModel:
    """The model that `source` names, on one device, or spread over all GPUs where the device is `balanced`.

    A GGUF file is converted first, once; `progress` is told.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    target = checked_device(device)
    try:
        with quiet_transformers():
            make_ready(source, progress)
            name, config, tokenizer, place, extra = _read_all_but_weights(source, trust_remote_code)
            if shapes.is_shape(source):
                if device == BALANCED:
                    raise UserError(f"A shape ({source!r}) is built on one device, not {BALANCED}; choose cuda or cpu.")
                model = shapes.build(config, DTYPES[dtype], target)
            else:
                model = _read_weights(place, source, extra, config, dtype, device)
            if device != BALANCED:
                model = model.to(target)
            model.eval()  # ours: one made from a shape comes ready for training
            return wrap(model, tokenizer, name=name, source=source, random_weights=shapes.is_shape(source))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"The weights of model {source!r} do not fit into the memory of {device} in {dtype}; choose a smaller "
            f"--dtype or model, or spread it over several GPUs with --device {BALANCED}."
        ) from None


def make_ready(source: str, progress: Progress | None = None) -> None:
    """What has to be done once before a model can be loaded: a GGUF file is converted into the cache."""
    file = gguf_file(source)
    if file is None:
        return
    with quiet_transformers():
        _read_all_but_weights(source, trust_remote_code=False)  # one that cannot be used is refused before
        try:
            convert(file, progress, lambda loaded: _refuse_gaps(loaded, source))
        except UserError:
            raise
        except Exception as error:  # whatever a broken file makes the library say
            if is_out_of_memory(error):
                raise
            raise UserError(f"The weights of model {source!r} cannot be loaded: {_first_line(error)}") from error


def read_facts(source: str, trust_remote_code: bool = False) -> ModelFacts:
    """Name, size and tokenizer of a model; its weights are not touched."""
    with quiet_transformers():
        name, config, tokenizer, _, _ = _read_all_but_weights(source, trust_remote_code)
    family, text = listed_family(config.model_type), config.get_text_config()
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else text.bos_token_id
    return ModelFacts(
        name=name,
        n_layers=int(text.num_hidden_layers),
        d_model=int(text.hidden_size),
        parameters=_count_parameters(config, trust_remote_code),
        tokenizer=tokenizer,
        needs_bos=bos if family is not None and family.needs_bos else None,
        random_weights=shapes.is_shape(source),
    )


def _count_parameters(config: Any, trust_remote_code: bool) -> int:
    with torch.device("meta"):  # shapes only, no memory
        return int(AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code).num_parameters())


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


def _read_all_but_weights(source: str, trust_remote_code: bool) -> tuple[str, Any, Any, str, dict[str, Any]]:
    """Display name, configuration, tokenizer, where the weights are, and options to read them with."""
    if shapes.is_shape(source):
        place, _, extra = locate("smollm2-135m")
        tokenizer = _read_tokenizer(place, source, extra)
        return shapes.title(source), shapes.config_of(source, len(tokenizer)), tokenizer, place, extra
    place, name, extra = locate(source)
    extra["trust_remote_code"] = trust_remote_code
    config = _read_config(place, source, extra)
    _refuse_non_causal(config, source)
    return name, config, _read_tokenizer(place, source, extra), place, extra


def _read_config(place: str, source: str, extra: dict[str, Any]) -> Any:
    try:
        return AutoConfig.from_pretrained(place, **extra)
    except Exception as error:  # whatever a broken file makes the library say
        reason = _first_line(error)
        allowed = " Allow it with --trust-remote-code, if you trust its authors." if "custom code" in reason else ""
        raise UserError(
            f"Model {source!r} cannot be read: {reason.rstrip('.')}. Check the name and, for a hub id, the network "
            f"or the hub's cache.{allowed}"
        ) from error


def _read_tokenizer(place: str, source: str, extra: dict[str, Any]) -> Any:
    hint = "save the model's tokenizer beside its weights (tokenizer.save_pretrained)."
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **extra)
    except Exception as error:  # as above
        raise UserError(
            f"Model {source!r} has no tokenizer that can be loaded ({_first_line(error)}); {hint}"
        ) from error
    if not tokenizer.is_fast or len(tokenizer) == 0 or not tokenizer("a b").input_ids:
        raise UserError(
            f"Model {source!r} has no usable tokenizer (a fast one, which knows the characters of its tokens, is "
            f"needed); {hint}"
        )
    return tokenizer


def _read_weights(place: str, source: str, extra: dict[str, Any], config: Any, dtype: str, device: str) -> Any:
    chosen: dict[str, Any] = {"use_safetensors": True}
    if device != "cpu":  # straight to the GPU: the host may not have the room
        chosen["device_map"] = BALANCED if device == BALANCED else {"": device}
    try:
        model, loaded = AutoModelForCausalLM.from_pretrained(
            place, dtype=DTYPES[dtype], output_loading_info=True, **chosen, **extra
        )
    except Exception as error:  # as above
        if is_out_of_memory(error):
            raise
        raise UserError(f"The weights of model {source!r} cannot be loaded: {_first_line(error)}") from error
    _refuse_gaps(loaded, source)
    return model


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


def _refuse_non_causal(config: Any, source: str) -> None:
    kinds = getattr(config, "architectures", None) or []
    brings_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    known = brings_code or config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    causal = known and not getattr(config, "is_encoder_decoder", False)
    if not causal or any(
        kind.endswith(("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")) for kind in kinds
    ):
        found = ", ".join(kinds) or config.model_type
        raise UserError(
            f"Model {source!r} is not a causal language model (found: {found}); "
            f"choose one that generates text, such as a ...ForCausalLM."
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
