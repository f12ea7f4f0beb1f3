"""The attention that tokens receive is transformers' own, weight by weight, however items are batched."""

import pytest
from torch import Tensor

from anchorscope.engine.attention_mass import AttentionMass, attention_mass
from anchorscope.engine.sequences import Cut, TokenSequence
from anchorscope.models.language_model import LanguageModel
from engine_cases import SHARED, no_prefix, shared_prefix
from hf_reference import eager, watch, weighed


def reference(lm: LanguageModel, item: TokenSequence, edges: str) -> list[float]:
    """Every weight of every layer and head, one edge after the other, from the family's own eager attention."""
    received = [0.0] * len(item.ids)

    def weigh(layer: int, weights: Tensor) -> Tensor:
        for query in range(len(item.ids)):
            for key in range(query):
                if edges != "direct" or query >= item.answer_start:
                    received[key] += float(weights[0, :, query, key].sum())
        return weights

    with weighed(lm.model, weigh):
        watch(eager(lm.model), item.ids)
    return received


@pytest.mark.every_family
def test_mass_is_the_sum_of_the_weights_of_transformers_own_attention(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = attention_mass(tiny, items, shared_prefix(tiny), [range(len(items))])
    for index in (0, 2):
        wanted = reference(tiny, items[index], "all")
        assert found[index].first == len(SHARED)
        assert found[index].received == pytest.approx(wanted[len(SHARED) :], abs=1e-4)


def test_where_edges_are_direct_only_the_answers_tokens_count(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    found = attention_mass(tiny_llama, items, shared_prefix(tiny_llama), [range(len(items))], "direct")
    wanted = reference(tiny_llama, items[1], "direct")
    assert found[1].received == pytest.approx(wanted[len(SHARED) :], abs=1e-4)


def test_neither_batches_nor_the_shared_prefix_change_the_mass(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    whole = attention_mass(tiny, items, no_prefix(), [range(len(items))])
    parts = attention_mass(tiny, items, shared_prefix(tiny), [[3], [1, 4], [0, 2]])
    assert set(parts) == set(whole) == set(range(len(items)))
    for index, one in parts.items():
        assert one.received == pytest.approx(whole[index].received[len(SHARED) :], abs=1e-4)
        # Every query gives a weight of 1 in every layer and head; the last token's is all its own or earlier ones'.
        assert 0 < whole[index].of(range(len(items[index].ids))) < len(items[index].ids) * 4 * 4
        assert whole[index].received[-1] == 0


def test_mass_of_tokens_that_are_not_known_is_refused() -> None:
    mass = AttentionMass(5, (1.0, 2.0, 4.0))
    assert mass.of(Cut((5, 7)).keys) == 5.0
    assert mass.of(()) == 0
    for key in (4, 8):
        with pytest.raises(ValueError, match="attention is known from 5 on"):
            mass.of((key,))
