"""|A · ∂L/∂A| against torch's own gradients of transformers' eager attention, and what must not matter or be left."""

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.batching import memory_facts, plan_batches
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.saliency import (
    ALL,
    Loss,
    Saliency,
    refuse_no_gradient,
    saliency,
)
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import LENGTHS, SHARED, shared_prefix
from hf_reference import eager, watch, weighed

TOPS = (3, 1, 2, 3, 0)  # the layer that each item's loss reads
PLACE = -2  # of the positions that are read
KEYS: dict[str, list[tuple[int, ...]]] = {
    "exact": [(8, length - 6) for length in LENGTHS],
    "shared": [(0, 3)] * len(LENGTHS),
    "none": [()] * len(LENGTHS),
}


def probe(item: int) -> Tensor:
    return torch.randn(32, generator=torch.Generator().manual_seed(item))


def probe_loss(states: Tensor, item: int) -> Tensor:
    """Cross-entropy of one item's own probe, from states [position, site, layer, d_model]."""
    return torch.nn.functional.softplus(
        -(states[PLACE, item % len(SITES), TOPS[item]].float() @ probe(item)) / 4
    )


def losses(batch: list[int], states: Tensor) -> Tensor:
    return torch.stack(
        [probe_loss(one, item) for item, one in zip(batch, states, strict=True)]
    )


def salient(
    lm: LanguageModel,
    items: list[TokenSequence],
    shared: bool = True,
    tokens: int = 10_000,
    **others: Any,
) -> Saliency:
    prefix = shared_prefix(lm) if shared else NO_PREFIX
    batches = plan_batches([len(item.ids) - prefix.length for item in items], tokens)
    given = {"keys": KEYS, "loss": losses, "tops": TOPS, "batches": batches, **others}
    return refuse_no_gradient(saliency(lm, items, prefix, **given))


def reference(model: Any, item: TokenSequence, index: int) -> NDArray[np.float32]:
    """The same by definition, [set, layer, head]: eager attention that keeps its weights and their gradients."""
    queries = range(item.answer_start, max(item.read_at) + 1)
    sets = [list(KEYS[name][index]) for name in KEYS] + [list(range(len(item.ids)))]
    found = np.zeros((len(sets), 4, 4), dtype=np.float32)
    other = eager(model)
    kept: dict[int, Tensor] = {}

    def keep(layer: int, weights: Tensor) -> Tensor:
        kept[layer] = weights
        return weights

    with weighed(other, keep):
        states = watch(other, item.ids, gradients=True)[list(item.read_at)]
    gradients = torch.autograd.grad(
        probe_loss(states, index), list(kept.values()), allow_unused=True
    )
    for (layer, weights), gradient in zip(kept.items(), gradients, strict=True):
        if gradient is None:
            continue
        single = (weights * gradient)[0].abs().detach()
        for place, keys in enumerate(sets):
            found[place, layer] = single[:, list(queries)][:, :, keys].sum(dim=(1, 2))
    return found


def assert_close(found: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(
        found, wanted, rtol=1e-3, atol=1e-5 * float(np.abs(wanted).max())
    )


@pytest.mark.every_family
def test_saliency_is_that_of_torchs_eager_gradients(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = salient(tiny, items)
    assert found.sets == ("exact", "shared", "none", ALL)
    assert found.values.shape == (len(items), 4, 4, 4)
    assert found.values.dtype == np.float32
    for index, item in enumerate(items):
        assert_close(found.values[index], reference(tiny.model, item, index))


def test_neither_prefix_nor_batches_matter(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    wanted = salient(tiny, items).values
    for shared, tokens in ((False, 10_000), (False, 20), (True, 45)):
        assert_close(salient(tiny, items, shared, tokens).values, wanted)


def test_nothing_is_held_after_a_batch(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    # A graph that waits for the garbage collector would fill a GPU within a few batches.
    seen: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def watched(batch: list[int], states: Tensor) -> Tensor:
        alive.append(sum(one() is not None for one in seen))
        seen.append(weakref.ref(states))
        return losses(batch, states)

    gc.disable()
    try:
        salient(tiny_llama, items, loss=watched, tokens=20)
    finally:
        gc.enable()
    assert len(seen) == 5
    assert alive == [0] * 5


@pytest.mark.every_family
def test_what_is_kept_for_gradients_is_within_the_plan(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    kept: dict[int, Any] = {}
    weights = {one.untyped_storage().data_ptr() for one in tiny.model.parameters()}

    def keep(one: Tensor) -> Tensor:
        storage = one.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return one

    equal = [items[2]] * 4
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        loss: Loss = lambda batch, states: states[:, -1, 0, 3].sum(dim=-1)  # noqa: E731
        saliency(tiny, equal, shared_prefix(tiny), {}, loss, [3] * 4, [range(4)])
    n_own = len(items[2].ids) - len(SHARED)
    per_token = (
        sum(storage.nbytes() for storage in kept.values()) / (4 * n_own) / tiny.n_layers
    )
    assert (
        0.3
        < per_token / memory_facts(tiny).bytes_kept_per_token(n_own, len(items[2].ids))
        < 1.05
    )


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed"
)  # torch, once, on processors without bfloat16
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_near(
    tiny_llama: LanguageModel, items: list[TokenSequence], dtype: torch.dtype
) -> None:
    low = wrap(copy.deepcopy(tiny_llama.model).to(dtype), tiny_llama.tokenizer)
    found, exact = (
        salient(lm, items).values.sum(axis=(2, 3)) for lm in (low, tiny_llama)
    )
    np.testing.assert_allclose(found, exact, rtol=0.2, atol=0.02 * float(exact.max()))


def test_a_loss_that_no_attention_reaches_is_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    flat: Loss = lambda batch, states: states[:, 0, 0, 0].sum(dim=-1) * 0  # noqa: E731
    with pytest.raises(
        InterventionNotApplied, match="no attention weight of any item has a gradient"
    ):
        salient(tiny_llama, items, loss=flat)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_without_numbers_are_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence], bad: float
) -> None:
    with pytest.raises(UserError, match="NaN or infinity in float32"):
        salient(
            tiny_llama, items, loss=lambda batch, states: losses(batch, states) * bad
        )
