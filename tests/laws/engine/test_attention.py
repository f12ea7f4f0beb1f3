"""The attention that tokens receive, and that to the token before (RAUQ), are transformers' own, weight by weight."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from anchorscope.engine.capture import PREVIOUS, AttentionMass, AttentionSums
from anchorscope.engine.forward import NO_PREFIX, Prefix
from anchorscope.engine.sequences import TokenSequence
from anchorscope.evidence.further_runs import rauq
from anchorscope.models.language_model import LanguageModel
from engine_cases import SHARED, captured, shared_prefix
from hf_reference import eager, watch, weighed


def attention_mass(
    lm: LanguageModel,
    items: list[TokenSequence],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    edges: str = "all",
) -> dict[int, AttentionMass]:
    sums: list[AttentionSums] = []
    captured(
        lm,
        items,
        prefix,
        batches=batches,
        attention=edges,
        receive_attention=sums.append,
    )
    return {item: mass for one in sums for item, mass in one.masses(items).items()}


def test_states_are_equal_to_the_bit_where_attention_is_summed(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    plain, summed = (
        captured(tiny, items, shared_prefix(tiny), attention=edges)[0]
        for edges in (None, "all")
    )
    assert all(torch.equal(states, plain[key]) for key, states in summed.items())


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
@pytest.mark.parametrize("edges", ["all", "direct"])
def test_mass_is_the_sum_of_transformers_own_weights(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    found = attention_mass(tiny, items, shared_prefix(tiny), [range(len(items))], edges)
    for index in (0, 2):
        wanted = reference(tiny, items[index], edges)
        assert found[index].first == len(SHARED)
        assert found[index].received == pytest.approx(wanted[len(SHARED) :], abs=1e-4)


def test_neither_batches_nor_the_shared_prefix_change_the_mass(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    whole = attention_mass(tiny, items, NO_PREFIX, [range(len(items))])
    parts = attention_mass(tiny, items, shared_prefix(tiny), [[3], [1, 4], [0, 2]])
    assert set(parts) == set(whole) == set(range(len(items)))
    for index, one in parts.items():
        assert one.received == pytest.approx(
            whole[index].received[len(SHARED) :], abs=1e-4
        )
        # Every query gives a weight of 1 in every layer and head; the last token's is all its own or earlier ones'.
        assert (
            0
            < whole[index].of(range(len(items[index].ids)))
            < len(items[index].ids) * 4 * 4
        )
        assert whole[index].received[-1] == 0


@pytest.mark.every_family
def test_attention_to_the_token_before_is_transformers_own(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    sums: list[AttentionSums] = []
    batches = [range(len(items))]
    captured(
        tiny,
        items,
        shared_prefix(tiny),
        batches=batches,
        attention=PREVIOUS,
        receive_attention=sums.append,
    )
    masses = {item: mass for part in sums for item, mass in part.masses(items).items()}
    for index in (0, 2):
        item, wanted = items[index], {}

        def weigh(layer: int, weights: Tensor) -> Tensor:
            queries = range(item.answer_start + 1, len(item.ids))  # noqa: B023 - used within this turn
            by_head = [
                [float(head[query, query - 1]) for query in queries]
                for head in weights[0]
            ]
            wanted[layer] = max(by_head, key=sum)  # noqa: B023
            return weights

        with weighed(tiny.model, weigh):
            watch(eager(tiny.model), item.ids)
        assert len(masses[index].previous) == tiny.n_layers
        for layer, given in enumerate(masses[index].previous):
            assert given == pytest.approx(wanted[layer], abs=1e-5)


def test_uncertainty_is_the_recursion_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    for n_layers, n_tokens in ((4, 5), (12, 3), (30, 1)):
        log_probs, previous = (
            -rng.exponential(size=n_tokens),
            rng.uniform(size=(n_layers, n_tokens - 1)).tolist(),
        )
        largest = -math.inf
        for layer in range(n_layers // 3, math.ceil(n_layers * 2 / 3) + 1):
            confidence = math.exp(log_probs[0])
            total = math.log(confidence)
            for token in range(1, n_tokens):
                confidence = (
                    0.2 * math.exp(log_probs[token])
                    + 0.8 * previous[layer][token - 1] * confidence
                )
                total += math.log(confidence)
            largest = max(largest, -total / n_tokens)
        assert rauq(log_probs, previous) == pytest.approx(largest)
