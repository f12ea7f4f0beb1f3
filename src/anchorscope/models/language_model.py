"""A causal language model with its tokenizer and the table of its parts: all that the engine works on."""

import copy
import functools
import hashlib
import json
import math
import threading
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from anchorscope.errors import UserError
from anchorscope.json_text import to_json
from anchorscope.models.families import (
    ATTENTION,
    Attends,
    BlockOutput,
    Family,
    part_at,
    register_attention,
    run_block,
)

# some rotary embeddings keep a table that grows with the longest sequence
_ROTARY = threading.Lock()


@dataclass(frozen=True)
class ModelIdentity:
    name: str
    source: str
    architecture: str
    n_layers: int
    d_model: int
    parameters: int
    device: str
    dtype: str
    fingerprint: str
    tokenizer: str
    random_weights: bool = False


@dataclass(frozen=True)
class LanguageModel:
    name: str
    source: str
    """What the user named: a hub id, a folder, a file."""
    model: Any
    """The transformers model as it was given, the user's own object: read, and never written to or switched over."""
    tokenizer: Any
    family: Family
    random_weights: bool = False
    """Whether the weights were drawn at random: such a model knows nothing, and every output says so."""
    twin: Any = field(init=False, repr=False, compare=False)
    """What the engine runs: the same weights in modules of its own, in evaluation mode, with the engine's attention."""

    def __post_init__(self) -> None:
        register_attention()
        object.__setattr__(self, "twin", make_twin(self.model, ATTENTION))

    def without_learning(self) -> "LanguageModel":
        """The same model with no trainable parameter; those of the user's object stay as they are."""
        other = copy.copy(self)
        object.__setattr__(other, "twin", make_twin(self.twin, ATTENTION, learns=False))
        return other

    @cached_property
    def config(self) -> Any:
        return self.model.config.get_text_config()

    @property
    def stack(self) -> nn.Module:
        return part_at(self.twin, self.family.stack)

    @property
    def layers(self) -> nn.ModuleList:
        return getattr(self.stack, self.family.layers)

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def d_model(self) -> int:
        return int(self.config.hidden_size)

    @property
    def n_heads(self) -> int:
        """Number of query heads of a block; several may share their keys."""
        return int(self.config.num_attention_heads)

    @property
    def device(self) -> torch.device:
        """Where the embedding is, and with it the input."""
        return self.embedding.weight.device  # type: ignore[return-value,union-attr]

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype  # type: ignore[return-value,union-attr]

    @property
    def embedding(self) -> nn.Module:
        return getattr(self.stack, self.family.embedding)

    @property
    def context(self) -> int | None:
        return context_length(self.model.config)

    @property
    def needs_bos(self) -> int | None:
        """The token that every prompt has to begin with, also where the tokenizer does not put it there."""
        bos = getattr(self.tokenizer, "bos_token_id", None)
        return (
            (bos if bos is not None else self.config.bos_token_id)
            if self.family.needs_bos
            else None
        )

    def embed(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "#batch pos"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """The stream before the first block, from token ids at their positions."""
        stream = self.embedding(ids)
        if self.family.position_embedding is None:
            return stream
        table = getattr(self.stack, self.family.position_embedding)
        if int(positions.max()) >= table.num_embeddings:
            raise UserError(
                f"An item has {int(positions.max()) + 1} tokens, and model {self.name!r} reads at most "
                f"{table.num_embeddings}; leave such questions out, or choose a model that reads more."
            )
        return stream + table(positions)

    def refuse_unknown_tokens(self, ids: Int[Tensor, "*token"]) -> None:
        """Refuses tokens without an embedding; ids on a GPU are not checked, since the model chose them itself."""
        rows = int(self.embedding.weight.shape[0])  # type: ignore[union-attr,arg-type,index]
        largest = int(ids.max()) if not ids.is_cuda and ids.numel() else 0
        if largest >= rows:
            raise UserError(
                f"An item holds the token {self.tokenizer.convert_ids_to_tokens(largest)!r} (number {largest}), and "
                f"model {self.name!r} has embeddings for {rows:,} tokens; leave such questions and answers out."
            )

    def rotary(
        self,
        layer: int,
        stream: Float[Tensor, "batch pos d_model"],
        positions: Int[Tensor, "#batch pos"],
    ) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines of a layer for the given positions; None for a model without."""
        if self.family.rotary is None:
            return None
        module = getattr(self.stack, self.family.rotary)
        given = (
            (self.config.layer_types[layer],)
            if self.family.rotary_per_layer_type
            else ()
        )
        with _ROTARY:
            return module(stream, positions.to(stream.device), *given)

    def rotary_kind(self, layer: int) -> str:
        """Layers of one kind share their rotary embedding."""
        return (
            str(self.config.layer_types[layer])
            if self.family.rotary_per_layer_type
            else ""
        )

    def run_block(
        self,
        layer: int,
        stream: Float[Tensor, "1 token d_model"],
        rotary: tuple[Tensor, Tensor] | None,
        attends: Attends,
        compiled: bool = False,
        read: Int[Tensor, " read"] | None = None,
    ) -> BlockOutput:
        device = self.layer_device(layer)
        there = None if rotary is None else (rotary[0].to(device), rotary[1].to(device))
        run = compiled_run_block() if compiled else run_block
        wanted = None if read is None else read.to(device)
        return run(
            self.family, self.layers[layer], stream.to(device), there, attends, wanted
        )

    def layer_device(self, layer: int) -> torch.device:
        held, name = self._first_weights[layer]
        return held[name].device

    @cached_property
    def _first_weights(self) -> list[tuple[dict[str, Any], str]]:
        """The dictionary and key of each block's first parameter; searching for it every time is slow."""
        return [
            next(
                (module._parameters, name)
                for module in block.modules()
                for name, parameter in module._parameters.items()
                if parameter is not None
            )
            for block in self.layers
        ]

    def logits(
        self, stream: Float[Tensor, "*token d_model"]
    ) -> Float[Tensor, "*token vocab"]:
        norm, head = (
            getattr(self.stack, self.family.final_norm),
            self.twin.get_output_embeddings(),
        )
        # the two are placed together
        logits = head(norm(stream.to(head.weight.device)))
        cap = getattr(self.config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def sliding_window(self, layer: int) -> int | None:
        """How far back a layer's attention reaches; None for everything."""
        window = getattr(self.config, "sliding_window", None)
        if window is None or not getattr(self.config, "use_sliding_window", True):
            return None
        kinds = getattr(self.config, "layer_types", None)
        return (
            int(window)
            if kinds is None or kinds[layer] == "sliding_attention"
            else None
        )

    def identity(self) -> ModelIdentity:
        return ModelIdentity(
            name=self.name,
            source=self.source,
            architecture=type(self.model).__name__,
            n_layers=self.n_layers,
            d_model=self.d_model,
            parameters=sum(tensor.numel() for tensor in self.model.parameters()),
            device=", ".join(
                dict.fromkeys(
                    str(self.layer_device(layer)) for layer in range(self.n_layers)
                )
            ),
            dtype=str(self.dtype).removeprefix("torch."),
            fingerprint=self.fingerprint(),
            tokenizer=tokenizer_fingerprint(self.tokenizer),
            random_weights=self.random_weights,
        )

    def fingerprint(self) -> str:
        """See `model_fingerprint`."""
        return model_fingerprint(self.model)


@cache
def compiled_run_block() -> Callable[..., BlockOutput]:
    """A block compiled by `torch.compile`: all layers are one graph with a variable number of tokens."""
    return torch.compile(run_block, dynamic=True)


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""torch's dictionaries of hooks: those that are there go on to work, those that the twin gets later stay its own."""
_OFFLOADING = ("_hf_hook", "_old_forward", "forward")
"""What accelerate puts on a module that it moves inputs for."""


def make_twin(
    model: Any, attention: str, moves_inputs: bool = False, learns: bool = True
) -> Any:
    """The same model in evaluation mode, whose attention modules look up their function by the name `attention`.

    Switching the user's model for every pass would break it for other threads, and for good where a pass is
    interrupted. A twin costs a few small objects: modules are copied without their contents, parameters and buffers are
    the same tensors in the same dictionaries (later training, moves and replacements are seen), and configurations are
    copied.

    With `moves_inputs` accelerate's hooks work on the twin too. Without `learns` no parameter requires a gradient.
    """
    return _Twin(attention, moves_inputs, learns).of(model)


class _Twin:
    """Copies one model and remembers what it copied, so that shared parts stay shared."""

    def __init__(self, attention: str, moves_inputs: bool, learns: bool) -> None:
        self.attention, self.moves_inputs, self.learns = attention, moves_inputs, learns
        self.modules: dict[int, nn.Module] = {}
        self.configs: dict[int, Any] = {}
        self.frozen: dict[int, nn.Parameter] = {}

    def of(self, model: nn.Module) -> nn.Module:
        twin = self._copy_module(model)
        for module in self.modules.values():
            for name, value in module.__dict__.items():
                if name not in ("_modules", "_parameters", "_buffers"):
                    module.__dict__[name] = self._moved(value)
        return twin

    def _copy_module(self, module: nn.Module) -> nn.Module:
        if id(module) in self.modules:
            return self.modules[id(module)]
        # not copy.copy: quantised layers pack their state for it
        twin = module.__class__.__new__(module.__class__)
        held = twin.__dict__
        held.update(module.__dict__)
        self.modules[id(module)] = twin
        for name in _HOOKS:
            if name in held:
                held[name] = held[name].copy()
        if "_hf_hook" in held:
            self._handle_accelerate(module, held)
        if any(name.endswith("inv_freq") for name in module._buffers):
            # some rotary embeddings write theirs when sequences grow
            held["_buffers"] = module._buffers.copy()
        if not self.learns:
            held["_parameters"] = {
                name: self._freeze_parameter(sub)
                for name, sub in module._parameters.items()
            }
        held["training"] = False
        held["_modules"] = {
            name: None if sub is None else self._copy_module(sub)
            for name, sub in module._modules.items()
        }
        return twin

    def _handle_accelerate(self, module: nn.Module, held: dict[str, Any]) -> None:
        if self.moves_inputs:
            held["_hf_hook"] = copy.copy(
                held["_hf_hook"]
            )  # it remembers where its last input came from
            return
        own = held.get("_old_forward")
        for name in _OFFLOADING:
            held.pop(name, None)
        if (
            own is not None
            and getattr(own, "__func__", None) is not type(module).forward
        ):
            held["forward"] = own

    def _freeze_parameter(self, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or not parameter.requires_grad:
            return parameter
        if id(parameter) not in self.frozen:
            self.frozen[id(parameter)] = nn.Parameter(
                parameter.detach(), requires_grad=False
            )
        return self.frozen[id(parameter)]

    def _moved(self, value: Any) -> Any:
        """A module's other attributes, with every reference to the model's own modules replaced."""
        from transformers import PretrainedConfig

        if isinstance(value, PretrainedConfig):
            return self._config(value)
        if isinstance(value, nn.Module):
            return self.modules.get(id(value), value)
        if isinstance(value, types.MethodType) and id(value.__self__) in self.modules:
            return types.MethodType(value.__func__, self.modules[id(value.__self__)])
        if isinstance(value, functools.partial):
            given = (self._moved(part) for part in value.args)
            named = {name: self._moved(part) for name, part in value.keywords.items()}
            return functools.update_wrapper(
                functools.partial(self._moved(value.func), *given, **named), value
            )
        if type(value) in (list, tuple) and any(
            id(part) in self.modules for part in value
        ):
            return type(value)(self._moved(part) for part in value)
        if type(value) is dict and any(
            id(part) in self.modules for part in value.values()
        ):
            return {name: self._moved(part) for name, part in value.items()}
        return value

    def _config(self, config: Any) -> Any:
        # one memory for all, so that a nested one is the same everywhere
        mine = copy.deepcopy(config, self.configs)
        if mine._attn_implementation != self.attention:
            mine._attn_implementation = self.attention
        return mine


_CONTEXT_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)
"""What configurations call the longest context; the first one with a number counts."""
_NO_LIMIT = 10**9
"""A configuration that states this many tokens, or more, states no limit."""


def context_length(config: Any) -> int | None:
    """The longest context in tokens; None where the configuration states none.

    Sliding windows are no limit: positions continue. The tokenizer's `model_max_length` is often a placeholder.
    """
    text = config.get_text_config()
    stated = next(
        (
            count
            for name in _CONTEXT_NAMES
            if (count := _count(getattr(text, name, None)))
        ),
        None,
    )
    return None if stated is None else max(stated, _scale_context(text, stated))


def _scale_context(text: Any, stated: int) -> int:
    """The context of a scaled rotary embedding; Llama 3, LongRoPE and linear scaling state the scaled length."""
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None)
    if not isinstance(rope, dict):
        return stated
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if (
        kind not in ("yarn", "dynamic")
        or not isinstance(factor, int | float)
        or not math.isfinite(factor)
    ):
        return stated
    return (
        _count(
            factor * (_count(rope.get("original_max_position_embeddings")) or stated)
        )
        or stated
    )


def _count(value: Any) -> int | None:
    return (
        int(value)
        if isinstance(value, int | float) and 1 <= value < _NO_LIMIT
        else None
    )


_WORDS = 2**16  # words of one pair of sums
_ROWS_AT_ONCE = {"cpu": 1}  # a row of words and its products fit the cache of a core
_ROWS_ELSEWHERE = 64  # 32 MB of products
_BYTES = 8  # of a word
_MULTIPLIER, _INCREMENT = (
    6364136223846793005,
    1442695040888963407,
)  # Knuth's MMIX generator


def model_fingerprint(model: Any, dtype: torch.dtype | None = None) -> str:
    """sha256 over the configuration and over name, shape, precision and every bit of all tensors.

    Every 65,536 64-bit words become two wrapping sums, Σ xᵢ·(2i + 1) and Σ xᵢ·mᵢ with mᵢ odd and well mixed: no single
    changed word goes unnoticed (δ times an odd number is never 0 modulo 2⁶⁴), and two that cancel in one sum don't in
    the other. Integer sums depend on neither threads nor devices. With `dtype`: of the model in another precision.
    """
    settings, own = model.config.to_dict(), model.dtype
    for name in ("_name_or_path", "transformers_version"):
        # where a model lies and who saved it changes no number
        settings.pop(name, None)
    if dtype is not None:
        settings = _replace_precision(settings, own, dtype)
    digest = hashlib.sha256(to_json(settings, sort_keys=True, other=str).encode())
    sums: dict[tuple[Any, ...], bytes] = {}
    for name, tensor in sorted(model.state_dict().items()):
        is_cast = (
            dtype not in (None, own)
            and isinstance(tensor, Tensor)
            and tensor.dtype == own
        )
        # A copy's memory may be given to the next one: what is known by its place is no copy.
        _add(
            digest,
            name,
            tensor.to(dtype) if is_cast else tensor,
            {} if is_cast else sums,
        )
    return digest.hexdigest()


def _replace_precision(
    settings: dict[str, Any], own: torch.dtype, wanted: torch.dtype
) -> dict[str, Any]:
    """The configuration with every mention of its precision replaced."""
    old, new = (str(dtype).removeprefix("torch.") for dtype in (own, wanted))
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            changed[name] = _replace_precision(value, own, wanted)
        else:
            is_named = (
                name in ("dtype", "torch_dtype")
                and str(value).removeprefix("torch.") == old
            )
            changed[name] = new if is_named else value
    return changed


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """sha256 over a tokenizer's kind, rules, vocabulary, special tokens and chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else {}
    for name in ("truncation", "padding"):
        rules.pop(name, None)  # left over from the last call
    record = {
        "kind": type(tokenizer).__name__,
        "rules": rules,
        "vocabulary": tokenizer.get_vocab(),
        "special": getattr(tokenizer, "special_tokens_map", {}),
        "template": getattr(tokenizer, "chat_template", None),
    }
    return hashlib.sha256(
        to_json(record, sort_keys=True, other=str).encode()
    ).hexdigest()


def tensor_sums(tensor: Tensor) -> Int[Tensor, "row 2"]:
    """The two sums of every 65,536 words of a tensor's bytes, the last ones filled up with zeros, on its device."""
    if tensor.numel() == 0:
        return torch.zeros(0, 2, dtype=torch.int64, device=tensor.device)
    flat = tensor.detach().reshape(-1)
    if flat.data_ptr() % _BYTES:
        # a part of another tensor that begins in the middle of a word
        flat = flat.clone()
    data: UInt8[Tensor, " byte"] = flat.view(torch.uint8)
    whole = data.numel() // (_WORDS * _BYTES)
    rows = data[: whole * _WORDS * _BYTES].view(torch.int64).view(whole, _WORDS)
    weights = _weights(tensor.device)
    at_once = _ROWS_AT_ONCE.get(tensor.device.type, _ROWS_ELSEWHERE)
    sums = [_sums(part, weights) for part in rows.split(at_once)] if whole else []
    rest = data[whole * _WORDS * _BYTES :]
    if rest.numel():
        last = torch.zeros(
            -(-rest.numel() // _BYTES) * _BYTES, dtype=torch.uint8, device=tensor.device
        )
        last[: rest.numel()] = rest
        words = last.view(torch.int64)
        sums.append(_sums(words[None], weights[:, : len(words)]))
    return torch.cat(sums)


def _add(
    digest: Any, name: str, value: Any, sums: dict[tuple[Any, ...], bytes]
) -> None:
    """One entry of a state: mostly a tensor; quantised layers also keep tensors with scales, tuples and settings."""
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _add(digest, f"{name}.{index}", part, sums)
    elif isinstance(value, Mapping):
        for key, part in sorted(value.items()):
            _add(digest, f"{name}.{key}", part, sums)
    elif not isinstance(value, Tensor):
        digest.update(f"{name} {value!r}".encode())
    elif value.is_quantized:
        scales = (
            value.q_per_channel_scales()
            if "channel" in str(value.qscheme())
            else value.q_scale()
        )
        digest.update(f"{name} {value.qscheme()}".encode())
        _add(digest, f"{name}.values", value.int_repr(), sums)
        _add(digest, f"{name}.scales", scales, sums)
    else:
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if key not in sums:  # a tied head is the embedding
            sums[key] = tensor_sums(value).cpu().numpy().tobytes()
        digest.update(sums[key])


@cache
def _weights(device: torch.device) -> Int[Tensor, "2 word"]:
    index = torch.arange(_WORDS, dtype=torch.int64, device=device)
    mixed = index * _MULTIPLIER + _INCREMENT
    mixed = (mixed ^ (mixed >> 29)) * _MULTIPLIER
    return torch.stack((2 * index + 1, (mixed ^ (mixed >> 32)) | 1))


def _sums(
    words: Int[Tensor, "row word"], weights: Int[Tensor, "2 word"]
) -> Int[Tensor, "row 2"]:
    return torch.stack([(words * weights[way]).sum(dim=1) for way in range(2)], dim=1)
