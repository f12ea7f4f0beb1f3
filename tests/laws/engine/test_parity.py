"""The engine against transformers itself: its own forward pass, and an eager one with masks written out by hand."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from anchorscope.engine.forward import NO_PREFIX, Prefix
from anchorscope.engine.sequences import Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import assert_same, make_cuts, run, shared_prefix, together
from hf_reference import WINDOWS, eager, reference, watch, windows

pytestmark = pytest.mark.every_family

KINDS: dict[str, tuple[Callable[[Cut], Cut], range]] = {
    "all edges": (lambda cut: cut, range(4)),
    "outside edges": (lambda cut: replace(cut, edges="outside"), range(4)),
    "direct edges": (lambda cut: replace(cut, edges="direct"), range(4)),
    "first layer": (lambda cut: cut, range(1)),
    "last layer": (lambda cut: cut, range(3, 4)),
    "middle layers": (lambda cut: replace(cut, edges="outside"), range(1, 3)),
    "zeroed": (lambda cut: replace(cut, how="zero"), range(4)),
    "zeroed outside": (
        lambda cut: replace(cut, how="zero", edges="outside"),
        range(2, 4),
    ),
    "zeroed direct": (lambda cut: replace(cut, how="zero", edges="direct"), range(4)),
    "strengthened": (lambda cut: replace(cut, alpha=3.0), range(4)),
    "weakened direct": (
        lambda cut: replace(cut, alpha=-0.6, edges="direct"),
        range(1, 4),
    ),
    **{
        f"head {head}": (
            lambda cut, head=head: replace(cut, heads=(head,)),
            range(1, 3),
        )
        for head in range(4)
    },
    "all heads": (lambda cut: replace(cut, heads=(0, 1, 2, 3)), range(4)),
    "zeroed heads": (lambda cut: replace(cut, how="zero", heads=(1, 2)), range(1, 3)),
    "strengthened heads": (
        lambda cut: replace(cut, alpha=2.0, heads=(0, 2), edges="outside"),
        range(2, 3),
    ),
}
"""How a cut is changed, and in which layers it is made. In most families two query heads share their keys, so that a
wrong order of heads would cut a neighbour."""


def check_every_kind(
    lm: LanguageModel,
    items: list[TokenSequence],
    cuts: list[Cut],
    prefix: Prefix,
    seen: list[int | None],
    tokens: int,
) -> None:
    """All kinds in one pass, in batches of some tokens; each is what the eager reference gives for its item alone."""
    variants = [
        Variant({index: change(cut) for index, cut in enumerate(cuts)}, layers)
        for change, layers in KINDS.values()
    ]
    found = together(lm, items, variants, prefix, tokens)
    clean = {item: reference(lm.model, items[item], Cut(()), seen) for item in (0, 2)}
    for number, variant in enumerate(variants):
        for item in (0, 2):
            wanted = reference(
                lm.model, items[item], variant.cut(item), seen, variant.layers
            )
            assert_same(found[number, item], wanted)
            assert (wanted - clean[item]).abs().max() > 1e-3  # the cut is felt


def test_captured_states_are_those_of_the_models_own_pass(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = run(tiny, items, shared_prefix(tiny))
    for item, states in zip(items, found, strict=True):
        assert_same(states, watch(tiny.model, item.ids)[list(item.read_at)])


def test_the_windows_of_the_sliding_families_are_felt(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    # Without this the sliding-window laws could pass on a model that sees everything.
    longest = max(items, key=lambda item: len(item.ids))
    free = reference(tiny.model, longest, Cut(()), [None] * 4)
    change = (
        (watch(tiny.model, longest.ids)[list(longest.read_at)] - free)[-1].abs().max()
    )
    assert (
        (change > 1e-2) if tiny.model.config.model_type in WINDOWS else (change < 1e-4)
    )


def test_every_kind_of_cut_equals_an_eager_reference(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    check_every_kind(
        tiny, items, make_cuts(items), shared_prefix(tiny), windows(tiny.model), 10_000
    )


def test_many_keys_anywhere_equal_the_eager_reference(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    # Without a prefix any key may be cut, the very first token and neighbours included.
    cuts = [
        Cut(keys=tuple(range(index % 2, len(item.ids) - 4, 3)))
        for index, item in enumerate(items)
    ]
    assert cuts[0].keys[0] == 0
    check_every_kind(tiny, items, cuts, NO_PREFIX, windows(tiny.model), 400)


def test_what_a_cut_token_was_cannot_be_known_later(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    # The knockout's meaning in one law: with every later edge cut, another token in its place changes nothing after it.
    item = items[2]
    others = [
        TokenSequence(
            (*item.ids[:8], (item.ids[8] + 1 + i) % 256, *item.ids[9:]), 28, (30,)
        )
        for i in range(3)
    ]
    cut = [Cut(keys=(8,))] * 3
    assert_same(*run(tiny, others, NO_PREFIX, cut)[:2])
    free = run(tiny, others, NO_PREFIX)
    assert (free[0] - free[1]).abs().max() > 1e-4


def test_the_engine_gives_the_same_with_eager_attention(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    other = wrap(copy.deepcopy(eager(tiny.model)), tiny.tokenizer)
    for cuts in (None, make_cuts(items)):
        assert_same(
            run(other, items, shared_prefix(other), cuts),
            run(tiny, items, shared_prefix(tiny), cuts),
        )


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed"
)  # torch, once, on processors without bfloat16
def test_low_precision_stays_near_the_models_own_pass(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    low = wrap(copy.deepcopy(tiny.model).to(torch.bfloat16), tiny.tokenizer)
    states = run(low, items, shared_prefix(low))
    assert states.dtype == torch.bfloat16
    found = states.float()
    exact = run(tiny, items, shared_prefix(tiny))
    floor = (
        torch.stack([watch(low.model, item.ids)[list(item.read_at)] for item in items])
        - exact
    ).abs()
    # The yardstick is what the model's own bfloat16 pass loses against float32.
    assert (found - exact).abs().mean() < 1.5 * floor.mean()
    assert (found - exact).abs().max() < 3 * floor.max()
