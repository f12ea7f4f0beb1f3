"""From a name to a loaded model: the embedded one, a folder, a GGUF file, a hub id, or a shape.

Only safetensors and GGUF weights are read (a pickle can run code), and a model's own code runs only on request.
Settings come first: their size is limited, shapes are computed without memory, and weights that can't fit are refused.
A hub id is fetched into a folder first; after that nothing uses the network, whatever a configuration names.

transformers is imported only where a model is read: it takes seconds, and fits of kept states run no model.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from anchorscope.errors import UserError, unknown
from anchorscope.files import open_regular, read_regular
from anchorscope.models.devices import is_out_of_memory, refuse_too_large
from anchorscope.models.families import listed_family
from anchorscope.models.language_model import LanguageModel, context_length
from anchorscope.models.process_settings import quiet_transformers, without_hub
from anchorscope.models.sources import (
    build_shape,
    gguf_file,
    is_hub_id,
    is_shape,
    locate,
    shape_config,
    shape_title,
)
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Progress, Silent

if TYPE_CHECKING:  # a GPU box may have no `gguf`
    from anchorscope.models.gguf_files import GgufFile

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
BALANCED = "balanced"
"""The device that stands for all GPUs of this machine, with the layers spread over them."""
CONFIG_BYTES = 8 << 20
SETTINGS_BYTES = 200 << 20
"""The largest file of settings, vocabulary, merges or weight names that is read."""
LAYERS = 1_000
"""The most layers of a configuration: millions would keep a loop busy before any other check."""
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SETTINGS = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_AGAIN = "download the model again, or choose another one."


@dataclass(frozen=True)
class ModelFacts:
    name: str
    n_layers: int
    d_model: int
    parameters: int
    tokenizer: Any
    needs_bos: int | None
    random_weights: bool
    context: int | None = None


@dataclass(frozen=True)
class _Settings:
    name: str
    config: Any
    tokenizer: Any
    folder: str
    options: dict[str, Any]
    parameters: int
    gguf: "GgufFile | None" = None


def load(
    source: str,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> LanguageModel:
    """The model that `source` names, on one device, or spread over all GPUs where the device is `balanced`."""
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    target = checked_device(device)
    listener = progress or Silent()
    try:
        with quiet_transformers(), _report_loading(source, listener):
            settings = _read_settings(source, trust_remote_code, with_weights=True)
            needed = settings.parameters * DTYPES[dtype].itemsize
            if settings.gguf is not None:  # unpacked on the host, for any device
                refuse_too_large(
                    needed,
                    torch.device("cpu"),
                    False,
                    f"The dequantised weights of model {source!r}",
                )
            if getattr(settings.config, "quantization_config", None) is None:
                refuse_too_large(
                    needed,
                    target,
                    device == BALANCED,
                    f"The weights of model {source!r} in {dtype}",
                )
            if is_shape(source):
                if device == BALANCED:
                    raise UserError(
                        f"A shape ({source!r}) is built on one device, not {BALANCED}; choose cuda or cpu."
                    )
                model = build_shape(settings.config, DTYPES[dtype], target)
            else:
                model = _read_weights(settings, source, dtype, device, listener)
            if device != BALANCED:
                model = model.to(target)
            model.eval()  # ours: one made from a shape comes ready for training
            return wrap(
                model,
                settings.tokenizer,
                settings.name,
                source,
                random_weights=is_shape(source),
            )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"The weights of model {source!r} do not fit into the memory of {device} in {dtype}; choose a smaller "
            f"--dtype or model, or spread it over several GPUs with --device {BALANCED}."
        ) from None


def read_facts(source: str, trust_remote_code: bool = False) -> ModelFacts:
    with quiet_transformers():
        settings = _read_settings(source, trust_remote_code, with_weights=False)
    family, text = (
        listed_family(settings.config.model_type),
        settings.config.get_text_config(),
    )
    own = settings.tokenizer.bos_token_id
    bos = own if own is not None else text.bos_token_id
    return ModelFacts(
        name=settings.name,
        n_layers=int(text.num_hidden_layers),
        d_model=int(text.hidden_size),
        parameters=settings.parameters,
        tokenizer=settings.tokenizer,
        needs_bos=bos if family is not None and family.needs_bos else None,
        random_weights=is_shape(source),
        context=context_length(settings.config),
    )


def choose_device(device: str) -> str:
    """`auto` becomes the first GPU, if there is one."""
    return (
        ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    )


def choose_dtype(dtype: str, device: str) -> str:
    """`auto` becomes float32 on the CPU and bfloat16 elsewhere."""
    return ("float32" if device == "cpu" else "bfloat16") if dtype == "auto" else dtype


def checked_device(device: str) -> torch.device:
    """The device of this name; refused if this machine doesn't have it."""
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


@contextmanager
def _report_loading(source: str, progress: Progress) -> Iterator[None]:
    """One unit for the whole model; a GGUF file's reader reports its megabytes itself."""
    if gguf_file(source) is not None:
        yield
        return
    progress.start("load model", 1)
    yield
    progress.advance(1)
    progress.finish()


def _read_settings(
    source: str, trust_remote_code: bool, with_weights: bool
) -> _Settings:
    """Configuration, size and tokenizer of what `source` names; a hub id's weights are fetched only if asked for."""
    if is_shape(source):
        return _shape_settings(source)
    from transformers import AutoTokenizer

    file = None
    path = gguf_file(source)
    folder, name = locate(source)
    on_hub = is_hub_id(source) and folder == source
    if on_hub:
        folder = str(
            _fetch(source, [*_SETTINGS, *(["*.py"] if trust_remote_code else [])], None)
        )
    options = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    read = partial(AutoTokenizer.from_pretrained, folder, **options)
    with without_hub():
        with _report_in_one_line(f"Model {source!r} cannot be read", _AGAIN):
            if path is None:
                _check_config_file(Path(folder))
            for pattern in _SETTINGS:
                for beside in Path(folder).glob(pattern):
                    with open_regular(beside) as stream:
                        if stream.seek(0, 2) > SETTINGS_BYTES:
                            raise ValueError(
                                f"{beside.name} has more than {SETTINGS_BYTES:,} bytes"
                            )
            if path is None:
                config = _read_config(folder, source, options)
            else:
                from anchorscope.models import gguf_files

                file = gguf_files.read_header(path)
                config = gguf_files.read_config(file)
                read = partial(gguf_files.read_tokenizer, file, config)
        _refuse_non_causal(config, source)
        if not on_hub and path is None:
            _check_weight_files(Path(folder), source)
        parameters = _count_parameters(config, source, trust_remote_code)
        tokenizer = _read_tokenizer(read, source, config)
    if on_hub and with_weights:
        _fetch_weights(source, Path(folder))
    return _Settings(name, config, tokenizer, folder, options, parameters, file)


def _shape_settings(source: str) -> _Settings:
    from transformers import AutoTokenizer

    folder, _ = locate("smollm2-135m")
    options = {"local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    config = shape_config(source, len(tokenizer))
    return _Settings(
        shape_title(source),
        config,
        tokenizer,
        folder,
        options,
        _count_parameters(config, source, False),
    )


@contextmanager
def _report_in_one_line(what: str, advice: str) -> Iterator[None]:
    """Reports whatever a library raises on a broken file in one line."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # what breaks in compiled tokenizers is no Exception
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"{what}: {_first_line(error).rstrip('.')}; {advice}"
        ) from error


def _first_line(error: BaseException) -> str:
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    return (f"{first} {more[0].strip()}" if more and first.endswith(":") else first)[
        :300
    ]


def _check_config_file(folder: Path) -> None:
    """Refuses a configuration that is too large, not a JSON object, or asks for too many layers."""
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"Model {str(folder)!r} holds an adapter (adapter_config.json), and the model that it belongs to is not "
            f"fetched; merge the two (merge_and_unload, save_pretrained), or load them in Python and hand them to "
            f"anchorscope.run."
        )
    try:
        config = json.loads(read_regular(folder / "config.json", CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"config.json is not JSON that can be read ({_first_line(error)})"
        ) from error
    if not isinstance(config, dict):
        raise ValueError(
            f"config.json holds {type(config).__name__} instead of an object"
        )
    for part in (config, config.get("text_config")):
        if not isinstance(part, dict):
            continue
        for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
            if (
                isinstance(layers := part.get(key), int | float)
                and not 1 <= layers <= LAYERS
            ):
                raise ValueError(
                    f"config.json says {key} = {layers}; allowed: 1 to {LAYERS:,}"
                )
        for key in ("hidden_size", "n_embd", "d_model"):
            if isinstance(width := part.get(key), int | float) and width < 1:
                raise ValueError(
                    f"config.json says {key} = {width}; allowed: 1 or more"
                )


def _read_config(folder: str, source: str, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, **options)
    except Exception as error:
        if "trust_remote_code" not in str(error) or options["trust_remote_code"]:
            raise
        raise UserError(
            f"Model {source!r} cannot be read: it needs code of its own, custom code that would run here; allow it "
            f"with --trust-remote-code, if you trust its authors."
        ) from error
    # kernels are code: transformers chooses among its own
    config._attn_implementation = None
    config._experts_implementation = None
    vars(config).pop("transformers_weights", None)  # it may name a pickle
    return config


def _refuse_non_causal(config: Any, source: str) -> None:
    """Refuses a model that does not continue a text from left to right."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kinds = getattr(config, "architectures", None) or []
    brings_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    listed = brings_code or config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    causal = listed and not getattr(config, "is_encoder_decoder", False)
    others = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    if not causal or any(str(kind).endswith(others) for kind in kinds):
        raise UserError(
            f"Model {source!r} is not a causal language model (found: {', '.join(kinds) or config.model_type}); "
            f"choose one that generates text, such as a ...ForCausalLM."
        )


def _count_parameters(config: Any, source: str, trust_remote_code: bool) -> int:
    from transformers import AutoModelForCausalLM

    with (
        _report_in_one_line(
            f"Model {source!r} cannot be read: no model can be built from its config.json",
            _AGAIN,
        ),
        torch.device("meta"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of tensors without content
        model = AutoModelForCausalLM.from_config(
            config, trust_remote_code=trust_remote_code
        )
    return sum(tensor.numel() for tensor in model.parameters())


def _read_tokenizer(read: Callable[[], Any], source: str, config: Any) -> Any:
    """The tokenizer, if it is a fast one and has no token without an embedding.

    Added tokens beyond the embedding are accepted (models have them for pictures): text that spells one out is refused
    later.
    """
    hint = "save the model's tokenizer beside its weights (tokenizer.save_pretrained)."
    with _report_in_one_line(
        f"Model {source!r} has no tokenizer that can be loaded", hint
    ):
        tokenizer = read()
        ids = (
            tokenizer("a b").input_ids
            if getattr(tokenizer, "is_fast", False) and len(tokenizer)
            else []
        )
        if not ids:
            raise ValueError(
                "a fast one, which knows the characters of its tokens, is needed"
            )
        family, text = listed_family(config.model_type), config.get_text_config()
        largest = max(
            tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values(),
            default=0,
        )
        first = (
            tokenizer.bos_token_id
            if tokenizer.bos_token_id is not None
            else text.bos_token_id
        )
        needs_bos = family is not None and family.needs_bos and first is not None
        beyond = max(largest, *ids, first if needs_bos else 0)
        if beyond >= text.vocab_size:
            raise ValueError(
                f"it has a token number {beyond}, and the model has {text.vocab_size:,} embeddings"
            )
    return tokenizer


def _fetch(source: str, names: list[str], commit: str | None) -> Path:
    """Files of the repository that the user named, in the hub's cache."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                source, revision=commit, allow_patterns=names, ignore_patterns=["*/*"]
            )
        )
    # a wrong name, no network, no permission, no such file in the cache
    except Exception as error:
        raise UserError(
            f"Model {source!r} cannot be read: {_first_line(error).rstrip('.')}. Check the name, the network and the "
            f"hub's cache."
        ) from error
    if not (folder / "config.json").is_file():
        raise UserError(
            f"Model {source!r} has no config.json on the hub; name a model that transformers can load."
        )
    return folder


def _fetch_weights(source: str, folder: Path) -> None:
    if not (folder / _SINGLE).exists():
        _fetch(source, [_SINGLE], folder.name)
    if not (folder / _SINGLE).exists() and (folder / _INDEX).exists():
        _fetch(source, _weight_names(folder, source), folder.name)
    _check_weight_files(folder, source)


def _check_weight_files(folder: Path, source: str) -> None:
    """Refuses a folder whose weight files are missing or not regular files."""
    with _report_in_one_line(
        f"The weights of model {source!r} cannot be loaded", _AGAIN
    ):
        for name in _weight_names(folder, source):
            if not (folder / name).exists():
                raise ValueError(
                    f"{name} is missing"
                    + (" (safetensors are needed)" if name == _SINGLE else "")
                )
            open_regular(folder / name).close()


def _weight_names(folder: Path, source: str) -> list[str]:
    if not (folder / _INDEX).exists() or (folder / _SINGLE).exists():
        return [_SINGLE]
    with _report_in_one_line(
        f"The weights of model {source!r} cannot be loaded: {_INDEX} cannot be read",
        _AGAIN,
    ):
        names = sorted(
            set(
                json.loads(read_regular(folder / _INDEX, SETTINGS_BYTES))[
                    "weight_map"
                ].values()
            )
        )
        for name in names:
            if not name.endswith(".safetensors") or Path(name).name != name:
                raise ValueError(
                    f"it names {name[:100]!r}; allowed: safetensors files in the same folder"
                )
    return names


def _read_weights(
    settings: _Settings, source: str, dtype: str, device: str, progress: Progress
) -> Any:
    from transformers import AutoModelForCausalLM

    placing: dict[str, Any] = {}
    if device != "cpu":  # straight to the GPU: the host may not have the room
        placing["device_map"] = BALANCED if device == BALANCED else {"": device}
    with (
        _report_in_one_line(
            f"The weights of model {source!r} cannot be loaded", _AGAIN
        ),
        without_hub(),
    ):
        if settings.gguf is None:
            model, report = AutoModelForCausalLM.from_pretrained(
                settings.folder,
                config=settings.config,
                dtype=DTYPES[dtype],
                use_safetensors=True,
                output_loading_info=True,
                **placing,
                **settings.options,
            )
        else:
            from anchorscope.models.gguf_files import read_model

            model, report = read_model(
                settings.gguf, settings.config, DTYPES[dtype], progress, **placing
            )
    _refuse_gaps(report, source)
    _refuse_not_finite(model, source)
    return model


def _refuse_not_finite(model: Any, source: str) -> None:
    """A flipped bit makes a weight infinite or NaN; the states of most texts wouldn't show it."""
    for name, tensor in model.named_parameters():
        is_number = tensor.dtype in DTYPES.values() and tensor.numel()
        if is_number and not torch.stack(torch.aminmax(tensor)).isfinite().all():
            raise UserError(
                f"The weights of model {source!r} cannot be used: {name} contains NaN or infinity; download the model "
                f"again, or try --dtype float32."
            )


def _refuse_gaps(report: dict[str, Any], source: str) -> None:
    """transformers would initialise missing weights at random and ignore unexpected ones."""
    for kind, verb in (
        ("missing_keys", "lacks"),
        ("mismatched_keys", "has in another shape"),
        ("unexpected_keys", "has no place for"),
    ):
        names = sorted(str(name) for name in report.get(kind) or ())
        if names:
            raise UserError(
                f"The weights of model {source!r} do not fit its config.json: it {verb} {names[0]} "
                f"({len(names)} in all); download the model again, or take the config that belongs to it."
            )
