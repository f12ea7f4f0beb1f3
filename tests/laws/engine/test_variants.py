"""Laws of variants that run together, over every family: sharing changes no number, and saves what it says."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.rows import BatchRows, tokens_of
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from engine_cases import assert_same, make_cuts, shared_prefix, together


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
