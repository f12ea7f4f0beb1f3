"""The one door for models from outside: whatever a user names passes here before its weights are read.

The order is the protection. First our own bounded look at the files (no class of transformers involved), then the
configuration and its sizes, then the tensors that the weight files list, then the model's shapes without memory,
compared with those, then the tokenizer. All of it without the network: a hub id has been fetched into a folder before,
and what a configuration names beyond that (other repositories, kernels, base models of adapters) is never fetched.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from anchorscope.errors import UserError
from anchorscope.models import shapes, tokenizer_door
from anchorscope.models.config_door import check_raw, check_read, forget_kernels
from anchorscope.models.families import listed_family
from anchorscope.models.hub_files import fetch_settings, fetch_weights
from anchorscope.models.limits import CONFIG_BYTES
from anchorscope.models.meta_model import MetaModel, build_meta
from anchorscope.models.plain_files import Unfit, read_object
from anchorscope.models.process_settings import without_hub
from anchorscope.models.sources import gguf_file, is_hub_id, locate
from anchorscope.models.weight_files import SINGLE, StoredWeights, stored_weights, weight_names

_AGAIN = "download the model again, or choose another one."
_HINT = "save the model's tokenizer beside its weights (tokenizer.save_pretrained)."


@dataclass(frozen=True)
class Admitted:
    """A model that passed the door; its weights are still on the disk, or on the hub."""

    name: str
    """Display name."""
    config: Any
    """What transformers made of its configuration."""
    tokenizer: Any
    place: str
    """The folder that transformers is given."""
    extra: dict[str, Any]
    """Options to read it with."""
    meta: MetaModel
    """Its shapes."""


def admit(source: str, trust_remote_code: bool = False, with_weights: bool = False) -> Admitted:
    """What `source` names, looked at from all sides; a hub id's weights are fetched only if they are asked for."""
    if shapes.is_shape(source):
        return _shape(source)
    file = gguf_file(source)
    in_file = None if file is None else _checked_gguf(file, source)
    place, name, extra = locate(source)
    on_hub = is_hub_id(source) and place == source
    if on_hub:
        place = str(fetch_settings(source, trust_remote_code))
    options = {**extra, "trust_remote_code": trust_remote_code, "local_files_only": True}
    folder, gguf = Path(place), extra.get("gguf_file")
    with without_hub():
        raw = {} if gguf else _checked_files(folder, source)
        stored = None if on_hub else in_file if gguf else _stored(folder, source)
        config = _read_config(place, source, options)
        refuse_non_causal(config, source)
        _refuse_unreadable_quantisation(config, source)
        meta = _shapes(config, source, trust_remote_code, stored)
        tokenizer = _read_tokenizer(place, source, options, config, raw)
    if on_hub and with_weights:
        fetch_weights(source, folder)
        if meta.is_plain:
            meta.refuse_less(_stored(folder, source), source)
    return Admitted(name, config, tokenizer, place, options, meta)


def _shape(source: str) -> Admitted:
    """A known model's shape, with the embedded model's tokenizer."""
    place, _, extra = locate("smollm2-135m")
    options = {**extra, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(place, **options)
    config = shapes.config_of(source, len(tokenizer))
    return Admitted(shapes.title(source), config, tokenizer, place, options, build_meta(config, False))


def _checked_files(folder: Path, source: str) -> dict[str, Any]:
    """The configuration's own text, after a look at it."""
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"Model {source!r} holds an adapter (adapter_config.json), and the model that it belongs to is not "
            f"fetched; merge the two (merge_and_unload, save_pretrained), or load them in Python and hand them to "
            f"anchorscope.run."
        )
    try:
        raw = read_object(folder / "config.json", CONFIG_BYTES)
        check_raw(raw)
    except Unfit as error:
        raise UserError(f"Model {source!r} cannot be read: {error}; {_AGAIN}") from error
    return raw


def _checked_gguf(file: Path, source: str) -> StoredWeights:
    from anchorscope.models.gguf_files import check_gguf

    try:
        return check_gguf(file)
    except Unfit as error:
        raise UserError(f"Model {source!r} cannot be read: {error}; {_AGAIN}") from error


def _stored(folder: Path, source: str) -> StoredWeights:
    try:
        missing = [name for name in weight_names(folder) if not (folder / name).exists()]
        if missing:
            raise Unfit(f"{missing[0]} is missing" + ("" if missing[0] != SINGLE else " (safetensors are needed)"))
        return stored_weights(folder)
    except Unfit as error:
        raise UserError(f"The weights of model {source!r} cannot be loaded: {error}; {_AGAIN}") from error


def _read_config(place: str, source: str, options: dict[str, Any]) -> Any:
    try:
        config = AutoConfig.from_pretrained(place, **options)
        check_read(config)
        forget_kernels(config)
    except Unfit as error:
        raise UserError(f"Model {source!r} cannot be read: {error}; {_AGAIN}") from error
    except Exception as error:  # whatever a broken file makes the library say
        if "trust_remote_code" in str(error) and not options["trust_remote_code"]:
            raise UserError(
                f"Model {source!r} cannot be read: it needs code of its own, custom code that would run here; allow it "
                f"with --trust-remote-code, if you trust its authors."
            ) from error
        raise UserError(f"Model {source!r} cannot be read: {first_line(error).rstrip('.')}; {_AGAIN}") from error
    return config


def refuse_non_causal(config: Any, source: str) -> None:
    """Refuses a model that does not go on with a text from left to right."""
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


def _refuse_unreadable_quantisation(config: Any, source: str) -> None:
    """Quantised weights need packages, some of them a GPU: what is missing is told at once."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return
    from transformers.quantizers.auto import AutoHfQuantizer

    try:
        AutoHfQuantizer.from_config(settings, pre_quantized=True).validate_environment()
    except Exception as error:  # whatever unknown methods and missing packages make the library say
        raise UserError(
            f"The weights of model {source!r} are quantised in a way that cannot be read here ({first_line(error)}); "
            f"install what is missing, or give plain safetensors or a GGUF file."
        ) from error


def _shapes(config: Any, source: str, trust_remote_code: bool, stored: StoredWeights | None) -> MetaModel:
    """The model without memory, if its configuration describes one and the weights on the disk are enough for it."""
    layers = config.get_text_config().num_hidden_layers
    if stored is not None and layers > len(stored.values):
        raise UserError(
            f"The weights of model {source!r} do not fit its config.json: {layers} layers are needed, and the files "
            f"hold {len(stored.values)} tensors; {_AGAIN}"
        )
    try:
        meta = build_meta(config, trust_remote_code)
    except Exception as error:  # whatever numbers and names that do not fit together make the model's class say
        raise UserError(
            f"Model {source!r} cannot be read: no model can be built from its config.json "
            f"({type(error).__name__}: {first_line(error)}); {_AGAIN}"
        ) from error
    if stored is not None and meta.is_plain:
        meta.refuse_less(stored, source)
    return meta


def _read_tokenizer(place: str, source: str, options: dict[str, Any], config: Any, raw: dict[str, Any]) -> Any:
    try:
        tokenizer_door.check_files(Path(place), raw)  # a GGUF file's neighbours are read too
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        family = listed_family(config.model_type)
        tokenizer_door.check_usable(tokenizer, config.get_text_config(), family is not None and family.needs_bos)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # as above; what breaks in the compiled library is no Exception
        raise UserError(
            f"Model {source!r} has no tokenizer that can be loaded ({first_line(error)}); {_HINT}"
        ) from error
    return tokenizer


def first_line(error: BaseException) -> str:
    """What an error of a library says, short enough for one line."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    said = f"{first} {more[0].strip()}" if more and first.endswith(":") else first
    return said[:300]
