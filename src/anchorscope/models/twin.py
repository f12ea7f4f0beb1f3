"""A second body for a model: the same weights in modules of its own, so that the user's object is never written to.

The engine needs a model in evaluation mode whose attention asks the engine. Switching the user's model over for every
pass would break it for other threads, and for good where a pass is interrupted. A twin costs a few small objects: every
module is copied without what it holds, parameters and buffers are the very same tensors in the very same dictionaries
(weights that are trained, moved or replaced later are seen), and configurations are copied, so that the name of the
attention function can differ. Structure and settings are those of the moment when the twin is made.
"""

import copy
import functools
import types
from typing import Any

from torch import nn
from transformers import PretrainedConfig

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


def make_twin(model: Any, attention: str, moves_inputs: bool = False, learns: bool = True) -> Any:
    """The same model in evaluation mode, whose attention modules look up their function by the name `attention`.

    With `moves_inputs` accelerate's hooks, which bring inputs to the GPU of each part, work on the twin too; the engine
    does that by itself. Without `learns` no parameter asks for a gradient, whatever the model's own do.
    """
    return _Twin(attention, moves_inputs, learns).of(model)


class _Twin:
    """The copying of one model: what was copied is known, so that shared parts stay shared."""

    def __init__(self, attention: str, moves_inputs: bool, learns: bool) -> None:
        self.attention, self.moves_inputs, self.learns = attention, moves_inputs, learns
        self.modules: dict[int, nn.Module] = {}
        self.configs: dict[int, Any] = {}
        self.frozen: dict[int, nn.Parameter] = {}

    def of(self, model: nn.Module) -> nn.Module:
        """The twin of a whole model."""
        twin = self._module(model)
        for module in self.modules.values():
            for name, value in module.__dict__.items():
                if name not in ("_modules", "_parameters", "_buffers"):
                    module.__dict__[name] = self._moved(value)
        return twin

    def _module(self, module: nn.Module) -> nn.Module:
        if id(module) in self.modules:
            return self.modules[id(module)]
        twin = module.__class__.__new__(module.__class__)  # not copy.copy: quantised layers pack their state for it
        held = twin.__dict__
        held.update(module.__dict__)
        self.modules[id(module)] = twin
        for name in _HOOKS:
            if name in held:
                held[name] = held[name].copy()
        if "_hf_hook" in held:
            self._accelerated(module, held)
        if any(name.endswith("inv_freq") for name in module._buffers):
            held["_buffers"] = module._buffers.copy()  # some rotary embeddings write theirs when sequences grow
        if not self.learns:
            held["_parameters"] = {name: self._unlearning(one) for name, one in module._parameters.items()}
        held["training"] = False
        held["_modules"] = {name: None if one is None else self._module(one) for name, one in module._modules.items()}
        return twin

    def _accelerated(self, module: nn.Module, held: dict[str, Any]) -> None:
        if self.moves_inputs:
            held["_hf_hook"] = copy.copy(held["_hf_hook"])  # it remembers where its last input came from
            return
        own = held.get("_old_forward")
        for name in _OFFLOADING:
            held.pop(name, None)
        if own is not None and getattr(own, "__func__", None) is not type(module).forward:
            held["forward"] = own

    def _unlearning(self, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or not parameter.requires_grad:
            return parameter
        if id(parameter) not in self.frozen:
            self.frozen[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        return self.frozen[id(parameter)]

    def _moved(self, value: Any) -> Any:
        """What a module remembers beside its parts, with every mention of the model's own modules exchanged."""
        if isinstance(value, PretrainedConfig):
            return self._config(value)
        if isinstance(value, nn.Module):
            return self.modules.get(id(value), value)
        if isinstance(value, types.MethodType) and id(value.__self__) in self.modules:
            return types.MethodType(value.__func__, self.modules[id(value.__self__)])
        if isinstance(value, functools.partial):
            given = (self._moved(one) for one in value.args)
            named = {name: self._moved(one) for name, one in value.keywords.items()}
            return functools.update_wrapper(functools.partial(self._moved(value.func), *given, **named), value)
        if type(value) in (list, tuple) and any(id(one) in self.modules for one in value):
            return type(value)(self._moved(one) for one in value)
        if type(value) is dict and any(id(one) in self.modules for one in value.values()):
            return {name: self._moved(one) for name, one in value.items()}
        return value

    def _config(self, config: Any) -> Any:
        mine = copy.deepcopy(config, self.configs)  # one memory for all, so that a nested one is the same everywhere
        if mine._attn_implementation != self.attention:
            mine._attn_implementation = self.attention
        return mine
