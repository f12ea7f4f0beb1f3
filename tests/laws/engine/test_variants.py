"""Laws of variants that run together, over every family: sharing changes no number, and saves what it says."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anchorscope.engine.forward import NO_PREFIX, Packed, run_layers
from anchorscope.engine.rows import BatchRows, tokens_of
from anchorscope.engine.sequences import CLEAN, EDGES, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from engine_cases import assert_same, make_cuts, run, shared_prefix, together


@pytest.mark.parametrize(("shared", "tokens"), [(True, 60), (False, 10_000)])
def test_variants_that_share_give_what_each_gives_alone(
    tiny: LanguageModel, items: list[TokenSequence], shared: bool, tokens: int
) -> None:
    prefix = shared_prefix(tiny) if shared else NO_PREFIX
    cuts = [make_cuts(items, edges) for edges in EDGES]
    found = together(tiny, items, [CLEAN, *(Variant(dict(enumerate(one))) for one in cuts)], prefix, tokens)
    for variant, alone in enumerate([None, *cuts]):
        wanted = run(tiny, items, prefix, alone)
        for item in range(len(items)):
            assert_same(found[variant, item], wanted[item])


def one_layer_at_a_time(lm: LanguageModel, item: TokenSequence, cut: Cut, layers: range) -> Tensor:
    """The same by definition: the whole sequence, every layer, an explicit choice of who is cut where."""
    states = torch.empty(len(item.read_at), 3, lm.n_layers, lm.d_model)
    rows = [
        BatchRows([item], [0], [variant], 0, lm.n_layers) for variant in (CLEAN, Variant({0: cut}, range(lm.n_layers)))
    ]
    free = Packed(lm, [item], rows[0], NO_PREFIX)

    class Chosen:
        """Clean attention, and in the chosen layers the mask with every cut edge."""

        def enter(self, layer: int) -> None:
            free.enter(layer)
            if layer in layers:
                mask = free.plan.mask.clone()
                for query, key in itertools.product(range(len(item.ids)), cut.keys):
                    if query > key:
                        mask[0, query, key] = float("-inf")
                free.plan = type(free.plan)(**{**vars(free.plan), "mask": mask, "masks": {}})

        attend = free.attend

    def visit(layer: int, output: object) -> None:
        for site, name in enumerate(("attention", "mlp", "residual")):
            states[:, site, layer] = getattr(output, name)[0, list(item.read_at)]

    run_layers(lm, free.ids, free.positions, Chosen(), visit)
    return states


@pytest.mark.parametrize("layers", [range(1), range(2, 3), range(3, 4), range(1, 3), range(2, 4)])
def test_windows_start_in_the_middle_and_give_the_same(
    tiny: LanguageModel, items: list[TokenSequence], layers: range
) -> None:
    cuts = make_cuts(items)
    found = together(tiny, items, [Variant(dict(enumerate(cuts)), layers)], shared_prefix(tiny))
    for index, (item, cut) in enumerate(zip(items, cuts, strict=True)):
        assert_same(found[0, index], one_layer_at_a_time(tiny, item, cut, layers))


def test_all_single_layers_run_together(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    cuts = dict(enumerate(make_cuts(items)))
    single = [Variant(cuts, range(layer, layer + 1)) for layer in range(4)]
    found = together(tiny, items, [*single, CLEAN], shared_prefix(tiny), tokens=200)
    for layer in range(4):
        alone = together(tiny, items, [single[layer]], shared_prefix(tiny))
        for item in range(len(items)):
            assert_same(found[layer, item], alone[0, item])
            below = found[layer, item][:, :, :layer]
            assert torch.equal(below, found[4, item][:, :, :layer])  # not run again, so the same to the last bit
            assert not torch.equal(found[layer, item][:, :, layer], found[4, item][:, :, layer])


def test_a_variant_runs_only_the_items_that_it_names(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    cuts = make_cuts(items)
    found = together(
        tiny_llama, items, [Variant({1: cuts[1], 3: Cut(())}), Variant({1: cuts[1]})], shared_prefix(tiny_llama)
    )
    assert sorted(found) == [(0, 1), (0, 3), (1, 1)]
    assert_same(found[0, 1], found[1, 1])  # two rows of one batch: kernels may add them up in another order


@given(st.sets(st.integers(6, 20), max_size=6), st.sets(st.integers(6, 20), min_size=1, max_size=6), st.integers(0, 3))
def test_only_what_differs_is_run_twice(some: set[int], others: set[int], opens: int) -> None:
    item = TokenSequence(ids=(1,) * 24, answer_start=22, read_at=(23,))
    variants = [Variant({0: Cut(tuple(sorted(some)))}), Variant({0: Cut(tuple(sorted(others)))}, range(opens, 4))]
    tokens = tokens_of(item, 0, variants, 6, 4)
    stem = 0 if not some else min(some) + 1 - 6
    clean = 18 if not some or opens else max(stem, min(others) + 1 - 6)
    assert tokens == clean + (24 - min(some) - 1 if some else 0) + (24 - min(others) - 1)
    rows = BatchRows([item], [0], variants, 6, 4)
    assert rows.own[-1] == tokens
