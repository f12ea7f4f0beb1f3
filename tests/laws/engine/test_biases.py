"""Attention weakened or strengthened by log(1 + α) before the softmax: its ends are the knockout and the clean run."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anchorscope.engine.forward import NO_PREFIX, Packed, run_layers
from anchorscope.engine.rows import BatchRows, tokens_of
from anchorscope.engine.sequences import CLEAN, EDGES, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.language_model import LanguageModel
from engine_cases import assert_same, captured, make_cuts, run, shared_prefix, together
from hf_reference import reference, windows


def biased(items: list[TokenSequence], alpha: float, edges: str = "all") -> Variant:
    return Variant({index: replace(cut, alpha=alpha) for index, cut in enumerate(make_cuts(items, edges))})


def answer_to_answer(items: list[TokenSequence], alpha: float) -> Variant:
    return Variant(
        {index: Cut(tuple(range(item.answer_start, len(item.ids))), alpha=alpha) for index, item in enumerate(items)}
    )


@pytest.mark.every_family
def test_the_ends_are_the_knockout_and_the_clean_run(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    alphas = (-1.0, -1 + 1e-12, 0.0, 1e-9)  # the ends, and next to them: a finite number is added there
    found = together(tiny, items, [CLEAN, *(biased(items, alpha) for alpha in alphas)], shared_prefix(tiny))
    knockout = run(tiny, items, shared_prefix(tiny), make_cuts(items))
    for item in range(len(items)):
        assert_same(found[1, item], knockout[item])
        assert_same(found[2, item], knockout[item])
        assert torch.equal(found[3, item], found[0, item])
        assert_same(found[4, item], found[0, item])
        assert (found[1, item] - found[0, item]).abs().max() > 1e-2


@pytest.mark.every_family
def test_finite_biases_equal_an_eager_reference_one_item_at_a_time(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    variants = [biased(items, 3.0), biased(items, -0.6, "direct"), answer_to_answer(items, 1.0)]
    found = together(tiny, items, variants, shared_prefix(tiny))
    for variant, one in enumerate(variants):
        for item in (0, 2):
            assert_same(found[variant, item], reference(tiny.model, items[item], one.cut(item), windows(tiny.model)))


@pytest.mark.parametrize("edges", EDGES)
def test_biases_in_some_layers_and_heads_equal_the_reference(
    mixed_windows: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    cuts = {index: replace(cut, alpha=2.0, heads=(1, 2)) for index, cut in enumerate(make_cuts(items, edges))}
    found = together(mixed_windows, items, [Variant(cuts, range(1, 3))], shared_prefix(mixed_windows))
    for item in (0, 2):
        wanted = reference(mixed_windows.model, items[item], cuts[item], [None, None, 8, 8], range(1, 3))
        assert_same(found[0, item], wanted)


def test_biases_and_cuts_of_all_kinds_run_together(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    plain = make_cuts(items)
    kinds = [
        [replace(cut, alpha=3.0) for cut in plain],
        [replace(cut, how="zero") for cut in plain],
        [replace(cut, alpha=0.5, heads=(0,)) for cut in plain],
        [replace(cut, alpha=(-1.0, 0.0, 1.0)[index % 3]) for index, cut in enumerate(plain)],  # in one variant too
    ]
    variants = [CLEAN, Variant(dict(enumerate(plain))), *(Variant(dict(enumerate(cuts))) for cuts in kinds)]
    prefix = shared_prefix(tiny)
    in_one, in_many = (together(tiny, items, variants, prefix, budget) for budget in (10_000, 60))
    for variant, cuts in enumerate([None, plain, *kinds]):
        wanted = run(tiny, items, prefix, cuts)
        for item in range(len(items)):
            assert_same(in_one[variant, item], wanted[item])
            assert_same(in_many[variant, item], wanted[item])


def test_biased_edges_count_as_touched_and_no_bias_as_nothing(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    variants = [biased(items, alpha) for alpha in (-1.0, 2.0, 0.0)]
    counts = captured(tiny_llama, items, variants=variants)[1]
    assert counts.lost[0].all()
    assert counts.lost[1].tolist() == counts.lost[0].tolist()
    assert not counts.lost[2].any()
    assert counts.asked.tolist() == [[True] * 4, [True] * 4, [False] * 4]
    own = len(items[0].ids)
    assert tokens_of(items[0], 0, [variants[2], CLEAN], 0, 4) == own  # the clean row serves both


def test_a_bias_that_reaches_nothing_is_refused(mixed_windows: LanguageModel) -> None:
    item = TokenSequence(ids=tuple(range(40)), answer_start=37, read_at=(39,))
    with pytest.raises(UserError, match=r"In layers \[2, 3\] the sliding window already hides the question"):
        run(mixed_windows, [item], NO_PREFIX, [Cut((5,), "direct", alpha=1.0)])
    short = replace(item, answer_start=39)
    with pytest.raises(InterventionNotApplied, match="takes no attention edge"):  # a token's edge to itself stays
        run(mixed_windows, [short], NO_PREFIX, [Cut((39,), alpha=1.0)])


def masses(lm: LanguageModel, item: TokenSequence, variant: Variant) -> Tensor:
    """Weight, all heads together, of every query on every key in the first layer, by the row that runs the variant."""
    rows = BatchRows([item], [0], [variant], 0, lm.n_layers)
    seen: list[Tensor] = []
    packed = Packed(lm, [item], rows, NO_PREFIX, watch=lambda weights: seen.append(weights.clone()) or weights)
    run_layers(lm, packed.ids, packed.positions, packed)
    n_rows, _, n_group, n_keys = seen[0].shape
    groups = lm.n_heads // seen[0].shape[1]
    per_query = seen[0].view(n_rows, -1, groups, n_group // groups, n_keys).sum(dim=(1, 2))
    (row,) = rows.readings[0].rows
    found = torch.full((len(item.ids), n_keys), torch.nan)
    found[rows.first[row] : rows.stop[row]] = per_query[row, : rows.stop[row] - rows.first[row]]
    return found


def test_more_alpha_is_more_attention_to_the_keys(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    item, keys = items[2], [8, 25]
    queries = [26, 28, 30]
    clean = masses(tiny, item, CLEAN)[queries][:, keys].sum(dim=1)
    found = [masses(tiny, item, Variant({0: Cut(tuple(keys), alpha=alpha)})) for alpha in (-1.0, -0.5, 1.0, 3.0)]
    removed, less, more, most = (one[queries][:, keys].sum(dim=1) for one in found)
    assert (removed == 0).all()
    for lower, higher in ((removed, less), (less, clean), (clean, more), (more, most)):
        assert (lower < higher).all()
    assert (most < 4 * clean).all()  # odds are multiplied by 1 + α, and weights sum to 1
