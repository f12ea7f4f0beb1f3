"""A transformers model in memory, loaded here or by the user, checked and wrapped.

Our run through the blocks must give what the model's own forward pass gives. Whenever a model is wrapped, a few tokens
are run: states and logits must agree with the model's own, and attention must obey the mask (with a token cut off,
later states don't depend on it; with nothing cut, they do). An unlisted model is tried with every family; if none
passes, it is refused.
"""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anchorscope.catalogue import LOADED
from anchorscope.errors import UserError
from anchorscope.models.families import (
    FAMILIES,
    OneSequence,
    all_families,
    listed_family,
    missing_part,
)
from anchorscope.models.language_model import LanguageModel, make_twin
from anchorscope.models.sources import build_shape
from anchorscope.plugins import plugins_of

_TOKENS = 12
_CUT = 3  # a token with others before and after it
_TOLERANCE = {
    torch.float32: 1e-3,
    torch.float16: 3e-2,
}  # relative; any other precision as below
_COARSE = 1e-1  # bfloat16 over tens of layers; a wrong layout is off by about the size of the states themselves


def wrap(
    model: Any,
    tokenizer: Any,
    name: str | None = None,
    source: str = LOADED,
    random_weights: bool = False,
) -> LanguageModel:
    """The model with its family, checked. The object itself is never written to."""
    title = name or str(
        getattr(model.config, "_name_or_path", "") or model.config.model_type
    )
    if hasattr(model, "get_base_model"):
        # adapters live inside the base model's own parts
        model = model.get_base_model()
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
    return _find_family(
        LanguageModel(title, source, model, tokenizer, FAMILIES[0], random_weights)
    )


def _find_family(lm: LanguageModel) -> LanguageModel:
    kind = lm.model.config.model_type
    listed = listed_family(kind)
    refusals: list[str] = []
    for family in all_families() if listed is None else [listed]:
        candidate, missing = replace(lm, family=family), missing_part(lm.model, family)
        if missing is None:
            reason = disagreement(candidate)
            if reason is None:
                return candidate
            refusals.insert(0, f"{family.name}: {reason}")  # the nearest miss says most
        else:
            refusals.append(f"{family.name}: {missing}")
    if listed is not None:
        plugin = plugins_of("families").get(listed.name)
        if plugin is not None:
            raise plugin.error(
                f"does not lay out the model {lm.name!r} as it is ({refusals[0]})"
            )
        raise UserError(
            f"Model {lm.name!r} does not compute what its architecture {kind!r} says ({refusals[0]}); check weights "
            f"and configuration, give the plain causal language model, or try --dtype float32."
        )
    model_types = ", ".join(
        sorted(kind for family in all_families() for kind in family.model_types)
    )
    raise UserError(
        f"Model {lm.name!r} is of the architecture {kind!r}, which follows no layout known here "
        f"({refusals[0]}); known: {model_types}. Choose a model of one of these."
    )


@torch.inference_mode()
def disagreement(lm: LanguageModel) -> str | None:
    """How our run through the blocks differs from the model's own forward pass, in words; None if it doesn't."""
    ids, other = _two_sequences(lm)
    try:
        own, logits = _run_blocks(lm, ids, cut=None)
        wanted, wanted_logits = _run_model(lm, ids)
        cut, _ = _run_blocks(lm, ids, cut=_CUT)
        cut_other, _ = _run_blocks(lm, other, cut=_CUT)
    except (
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        IndexError,
        KeyError,
    ) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return f"its parts cannot be called as the layout says: {(str(error) or type(error).__name__).splitlines()[0]}"
    if not all(
        bool(torch.isfinite(tensor).all()) for tensor in (*wanted, wanted_logits)
    ):
        return f"its own states contain NaN or infinity in {str(lm.dtype).removeprefix('torch.')}"
    tolerance = _TOLERANCE.get(lm.dtype, _COARSE)
    for layer, (mine, theirs) in enumerate(zip(own[:-1], wanted, strict=True)):
        # in low precision a mixture of experts may send one elsewhere
        off = float(_difference(mine, theirs).median())
        if not off <= tolerance:
            return f"states after block {layer} are off by {off:.1%}"
    off = float(_difference(logits, wanted_logits).median())
    if not off <= tolerance:
        return f"logits are off by {off:.1%}"
    later = slice(_CUT + 1, None)
    seen = max(
        float(_difference(a[:, later], b[:, later]).max())
        for a, b in zip(cut, cut_other, strict=True)
    )
    if not seen <= tolerance:
        return f"attention does not obey the mask: a token that is cut off still changes later states by {seen:.1%}"
    if all(
        torch.equal(a[:, later], b[:, later]) for a, b in zip(own, cut, strict=True)
    ):
        return "attention does not obey the mask: cutting a token off changes nothing"
    return None


def _two_sequences(lm: LanguageModel) -> tuple[Tensor, Tensor]:
    """Low token ids, where no image or padding tokens are; and the same with one token changed."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(lm.config.vocab_size)
    low, high = min(5, vocabulary - 2), min(1000, vocabulary)
    ids = torch.randint(low, high, (1, _TOKENS), generator=generator)
    other = ids.clone()
    other[0, _CUT] = low + (ids[0, _CUT] - low + 1) % (high - low)
    return ids.to(lm.device), other.to(lm.device)


def _run_blocks(
    lm: LanguageModel, ids: Tensor, cut: int | None
) -> tuple[list[Tensor], Tensor]:
    """States after every block, and the logits; `cut` is a position hidden from later ones."""
    positions = torch.arange(ids.shape[1], device=lm.device)[None]
    stream = lm.embed(ids, positions)
    states = []
    for layer in range(lm.n_layers):
        attends = OneSequence(_mask(lm, layer, cut))
        stream = lm.run_block(
            layer, stream, lm.rotary(layer, stream, positions), attends
        ).residual
        states.append(stream)
    return states, lm.logits(stream)


def _mask(lm: LanguageModel, layer: int, cut: int | None) -> Tensor:
    """What a layer adds to its scores: minus infinity for what is later, outside its window, or cut."""
    distance = torch.arange(_TOKENS)[:, None] - torch.arange(_TOKENS)[None, :]
    hidden = (distance < 0) | (distance >= (lm.sliding_window(layer) or _TOKENS))
    if cut is not None:
        hidden[cut + 1 :, cut] = True
    return torch.zeros(_TOKENS, _TOKENS, dtype=lm.dtype).masked_fill_(
        hidden, float("-inf")
    )


def _run_model(lm: LanguageModel, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The model's own states after every block but the last (which it only gives normed), and its logits."""
    chosen = lm.config._attn_implementation
    # A kernel that needs a GPU or a compiler is no yardstick; eager attention, which every model has, serves as well.
    model = make_twin(
        lm.model, chosen if chosen in ("eager", "sdpa") else "eager", moves_inputs=True
    )
    given: Any = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    return list(given.hidden_states[1:-1]), given.logits


def _difference(mine: Tensor, theirs: Tensor) -> Tensor:
    mine, theirs = mine.float(), theirs.float().to(mine.device)
    return (mine - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp_min(1e-12)


_SPARE = 1.2  # memory that a second model needs, over that of its weights


def without_knowledge(lm: LanguageModel) -> LanguageModel:
    """A model of the same shape with random weights, on the same device."""
    model = build_shape(
        copy.deepcopy(lm.model.config), lm.model.dtype, torch.device(lm.device)
    ).eval()
    return wrap(model, lm.tokenizer, lm.name, lm.source, random_weights=True)


def has_room_for_twin(lm: LanguageModel) -> bool:
    """Whether `without_knowledge` fits beside the model; called when only the weights are in memory."""
    if lm.device.type != "cuda":
        return True
    needed = _SPARE * sum(
        parameter.numel() * parameter.element_size()
        for parameter in lm.model.parameters()
    )
    return torch.cuda.mem_get_info(lm.device)[0] >= needed
