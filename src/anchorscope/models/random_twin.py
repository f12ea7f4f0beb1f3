"""A model of the same shape whose weights were drawn at random: it knows nothing, and what a probe finds in it is no
knowledge."""

import copy

import torch

from anchorscope.models.language_model import LanguageModel
from anchorscope.models.shapes import build
from anchorscope.models.wrapping import wrap

_SPARE = 1.2  # memory that a second model needs, over that of its weights


def without_knowledge(lm: LanguageModel) -> LanguageModel:
    """The twin, on the model's own device."""
    model = build(copy.deepcopy(lm.model.config), lm.model.dtype, torch.device(lm.device)).eval()
    return wrap(model, lm.tokenizer, lm.name, lm.source, random_weights=True)


def has_room_for_twin(lm: LanguageModel) -> bool:
    """Whether the twin fits beside the model: asked when nothing but the weights is in memory."""
    if lm.device.type != "cuda":
        return True
    needed = _SPARE * sum(one.numel() * one.element_size() for one in lm.model.parameters())
    return torch.cuda.mem_get_info(lm.device)[0] >= needed
