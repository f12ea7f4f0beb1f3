"""RAUQ: attention to the token before is transformers' own, and the uncertainty is the paper's recursion."""

import math

import numpy as np
import pytest
from torch import Tensor

from anchorscope.engine.capture import PREVIOUS, AttentionSums
from anchorscope.engine.sequences import TokenSequence
from anchorscope.evidence.further_runs import rauq
from anchorscope.models.language_model import LanguageModel
from engine_cases import captured, shared_prefix
from hf_reference import eager, watch, weighed


@pytest.mark.every_family
def test_attention_to_the_token_before_is_transformers_own(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    sums: list[AttentionSums] = []
    batches = [range(len(items))]
    captured(tiny, items, shared_prefix(tiny), batches=batches, attention=PREVIOUS, receive_attention=sums.append)
    masses = {item: mass for part in sums for item, mass in part.masses(items).items()}
    for index in (0, 2):
        item, wanted = items[index], {}

        def weigh(layer: int, weights: Tensor) -> Tensor:
            queries = range(item.answer_start + 1, len(item.ids))  # noqa: B023 - used within this turn
            by_head = [[float(head[query, query - 1]) for query in queries] for head in weights[0]]
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
        log_probs, previous = -rng.exponential(size=n_tokens), rng.uniform(size=(n_layers, n_tokens - 1)).tolist()
        largest = -math.inf
        for layer in range(n_layers // 3, math.ceil(n_layers * 2 / 3) + 1):
            confidence = math.exp(log_probs[0])
            total = math.log(confidence)
            for token in range(1, n_tokens):
                confidence = 0.2 * math.exp(log_probs[token]) + 0.8 * previous[layer][token - 1] * confidence
                total += math.log(confidence)
            largest = max(largest, -total / n_tokens)
        assert rauq(log_probs, previous) == pytest.approx(largest)
