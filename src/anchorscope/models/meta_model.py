"""A model's shapes without its memory: what a configuration asks for, compared with what is on the disk.

Built on torch's `meta` device, where tensors have sides and no content. Making the modules still takes time, so they
are counted, and a configuration that asks for more of them than any model has is stopped on the way.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import AutoModelForCausalLM

from anchorscope.errors import UserError
from anchorscope.models.limits import MODULES
from anchorscope.models.weight_files import StoredWeights


@dataclass(frozen=True)
class MetaModel:
    """How large a model is."""

    parameters: Mapping[str, int]
    """Numbers in each of its parameters; those that are the same tensor are named once."""
    unsaved: frozenset[str]
    """Parameters that may be missing on the disk, as their model's class says."""
    buffers: int
    """Bytes of tables that it makes when it is built, whichever precision its weights have."""
    is_plain: bool
    """Whether its weights are kept as they are, one number for each of its parameters."""

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.parameters.values())

    def refuse_less(self, stored: StoredWeights, source: str) -> None:
        """Refuses weights that are fewer than the configuration asks for, before anything is allocated for them."""
        needed = sum(count for name, count in self.parameters.items() if name not in self.unsaved)
        if not stored.is_plain or stored.total >= needed:
            return
        missing = sorted(set(self.parameters) - self.unsaved - set(stored.values))
        is_named_alike = len(missing) < len(self.parameters)
        lacks = f"it lacks {missing[0]} ({len(missing)} in all), and has" if missing and is_named_alike else "it has"
        raise UserError(
            f"The weights of model {source!r} do not fit its config.json: {lacks} {stored.total:,} numbers where "
            f"{needed:,} are needed; download the model again, or take the config that belongs to it."
        )


def build_meta(config: Any, trust_remote_code: bool) -> MetaModel:
    """The shapes of the model that a configuration describes; whatever its class raises comes through."""
    with _few_modules(), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tensors without content, for one
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    parameters = {name: tensor.numel() for name, tensor in model.named_parameters()}
    patterns = [*(getattr(model, "_keys_to_ignore_on_load_missing", None) or ())]
    return MetaModel(
        parameters=parameters,
        unsaved=frozenset(name for name in parameters if any(re.search(one, name) for one in patterns)),
        buffers=sum(tensor.numel() * tensor.element_size() for tensor in model.buffers()),
        is_plain=getattr(config, "quantization_config", None) is None,
    )


@contextmanager
def _few_modules() -> Iterator[None]:
    made = 0

    def count(parent: nn.Module, name: str, module: nn.Module) -> None:
        nonlocal made
        made += 1
        if made > MODULES:
            raise ValueError(f"it has more than {MODULES:,} modules")

    hook = register_module_module_registration_hook(count)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
