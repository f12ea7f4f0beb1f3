"""What planning has to know of a model: asked of it once, so that passes can be planned without it."""

from anchorscope.engine.batching import automatic_tokens, compile_threshold, memory_facts
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import has_room_for_twin
from anchorscope.plan.passes import Planner


def planner_for(lm: LanguageModel, batch_tokens: int | None = None) -> Planner:
    """The planner of a model, with as many tokens together as its memory suggests, or as are asked for."""
    return Planner(
        n_layers=lm.n_layers,
        n_heads=lm.n_heads,
        windows=tuple(lm.sliding_window(layer) for layer in range(lm.n_layers)),
        batch_tokens=automatic_tokens(lm) if batch_tokens is None else batch_tokens,
        compile_from=compile_threshold(lm),
        context=lm.context,
        memory=memory_facts(lm),
        has_room_for_twin=has_room_for_twin(lm),
    )
