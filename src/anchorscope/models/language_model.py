"""A causal language model with its tokenizer and the table of its parts: all that the engine works on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anchorscope.models.families import Family, family_of

_SAMPLED_VALUES = 4096  # per tensor: enough to tell two checkpoints apart, in a second even for 32 billion parameters


@dataclass(frozen=True)
class ModelIdentity:
    """Which model gave the numbers."""

    name: str
    """Display name."""
    source: str
    """What the user named."""
    architecture: str
    n_layers: int
    d_model: int
    parameters: int
    device: str
    dtype: str
    fingerprint: str
    """sha256 of the weights, see `LanguageModel.fingerprint`."""


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model."""

    name: str
    """Display name, the title of the chart."""
    source: str
    """What the user named: a hub id, a folder, a file."""
    model: Any
    """The transformers model, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""
    family: Family
    """Where its parts are."""

    @property
    def stack(self) -> nn.Module:
        """The decoder stack."""
        return getattr(self.model, self.family.stack)

    @property
    def layers(self) -> nn.ModuleList:
        """The blocks, in order."""
        return getattr(self.stack, self.family.layers)

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        return len(self.layers)

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the embedding is, and with it the input."""
        return self.embedding.weight.device  # type: ignore[return-value,union-attr]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the residual stream."""
        return self.embedding.weight.dtype  # type: ignore[return-value,union-attr]

    @property
    def embedding(self) -> nn.Module:
        """The token embedding."""
        return getattr(self.stack, self.family.embedding)

    def rotary(self, stream: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for the given positions, [batch, pos]."""
        return getattr(self.stack, self.family.rotary)(stream, positions)

    def logits(self, stream: Tensor) -> Tensor:
        """Next-token logits from the stream after the last block."""
        return self.model.get_output_embeddings()(getattr(self.stack, self.family.final_norm)(stream))

    def sliding_window(self, layer: int) -> int | None:
        """How far back a layer's attention reaches; None for everything."""
        config = self.model.config
        window = getattr(config, "sliding_window", None)
        if window is None or not getattr(config, "use_sliding_window", True):
            return None
        kinds = getattr(config, "layer_types", None)
        return int(window) if kinds is None or kinds[layer] == "sliding_attention" else None

    def identity(self) -> ModelIdentity:
        """Name, size, place and fingerprint."""
        return ModelIdentity(
            name=self.name,
            source=self.source,
            architecture=type(self.model).__name__,
            n_layers=self.n_layers,
            d_model=self.d_model,
            parameters=sum(tensor.numel() for tensor in self.model.parameters()),
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            fingerprint=self.fingerprint(),
        )

    def fingerprint(self) -> str:
        """sha256 over the configuration and the name, shape, precision and evenly spaced values of every tensor."""
        settings = self.model.config.to_dict()
        for name in ("_name_or_path", "transformers_version"):
            settings.pop(name, None)  # where a model lies and who saved it changes no number
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            flat = tensor.detach().reshape(-1)
            count = min(_SAMPLED_VALUES, flat.numel())
            places = torch.arange(count, device=flat.device) * (flat.numel() - 1) // max(1, count - 1)
            values = flat[places].to("cpu", torch.float32).contiguous()
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(values.numpy().tobytes())
        return digest.hexdigest()


def decode_exactly(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of token ids as it is: a tokenizer that tidies up spaces would move every later character."""
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def wrap(
    model: Any, tokenizer: Any, name: str | None = None, source: str = "an object already loaded"
) -> LanguageModel:
    """A transformers model that is already in memory (adapters, quantised weights), made ready for the engine."""
    title = name or str(getattr(model.config, "_name_or_path", "") or model.config.model_type)
    model.eval()
    if model.config._attn_implementation not in ("sdpa", "eager"):
        model.set_attn_implementation("sdpa")  # other kernels take no mask per item
    return LanguageModel(name=title, source=source, model=model, tokenizer=tokenizer, family=family_of(model, title))
