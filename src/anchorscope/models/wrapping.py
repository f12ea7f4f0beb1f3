"""A transformers model that is in memory (loaded here, or by the user: adapters, quantised weights), made ready."""

from typing import Any

from anchorscope.errors import UserError
from anchorscope.models.families import FAMILIES
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.self_check import fitted


def wrap(
    model: Any,
    tokenizer: Any,
    name: str | None = None,
    source: str = "an object already loaded",
    random_weights: bool = False,
) -> LanguageModel:
    """The model with the table of its parts, proven on it."""
    title = name or str(getattr(model.config, "_name_or_path", "") or model.config.model_type)
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()  # adapters live inside the base model's own parts
    model.eval()
    elsewhere = {tensor.device.type for tensor in model.parameters()} - {"cpu", "cuda"}
    if "meta" in elsewhere:
        raise UserError(
            f"Model {title!r} has weights that are not in memory (found: meta); it must fit into the memory of the "
            f"GPUs or of the CPU: use more GPUs, a smaller --dtype, or quantised weights."
        )
    if elsewhere:
        raise UserError(
            f"Model {title!r} is on a device that is not supported (found: {', '.join(sorted(elsewhere))}); "
            f"allowed: cpu, cuda. Move it with model.to(...)."
        )
    return fitted(LanguageModel(title, source, model, tokenizer, FAMILIES[0], random_weights))
