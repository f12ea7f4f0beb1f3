"""What cannot be measured is told with its reason, and does not keep the rest from being measured."""

from typing import Any

import numpy as np
import pytest
import torch
from anchorscope.evidence.measuring import Plan, measure_all
from anchorscope.interventions.rewriting import Spoken, Writer

from anchorscope.engine.batching import Budget
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Silent

N = 10


def probes(lm: LanguageModel) -> ProbeSet:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 2, lm.n_layers, lm.d_model, generator=generator)
    ones = np.ones((3, 2, lm.n_layers))
    return ProbeSet(weight, torch.zeros(3, 2, lm.n_layers), ones, ones, ())


def measured(lm: LanguageModel, question: int, **plan: Any) -> tuple[list[str], list[str]]:
    """Names of what was measured, and reasons; every item has its exact token at one place, the answer at 20."""
    rng = np.random.default_rng(0)
    items = []
    for _ in range(N):
        sequence = TokenSequence((256, 5, 6, *rng.integers(0, 256, 21).tolist()), answer_start=20, read_at=(23,))
        tokens = ItemTokens(sequence, (question,), prefix_length=3)
        items.append(Spoken(None, None, None, None, tokens))  # type: ignore[arg-type]  # nothing is rewritten here
    scorer = Scorer([[probes(lm) for _ in SITES]], np.arange(N) % 2, lm.device)
    settings = {"evidence": ("edges",), "edges": "all", "headline": (0, 1), "needed": 5, "most_items": None, "seed": 0}
    found = measure_all(
        lm, items, Writer(lm.tokenizer, None), compute_prefix(lm, items[0].tokens.sequence.ids[:3]), scorer,
        Plan(**(settings | plan)), Budget(300), Silent(),
    )  # type: ignore[arg-type]  # fmt: skip
    return [one.intervention for one in found.effects], [one.reason for one in found.missing]


@pytest.mark.parametrize("tiny", ["mistral", "gemma3_text"], indirect=True)
def test_direct_edges_that_a_window_hides_are_left_out_and_the_rest_is_measured(tiny: LanguageModel) -> None:
    near, far = measured(tiny, question=17), measured(tiny, question=5)
    assert near == (["knockout", "random", "none", "direct"], [])
    assert far[0] == ["knockout", "random", "none"]
    assert "sliding window already hides the exact tokens" in far[1][0]


def test_direct_edges_repeat_the_knockout_or_do_not_reach_what_is_read(tiny_llama: LanguageModel) -> None:
    names, (reason,) = measured(tiny_llama, 5, edges="direct")
    assert names == ["knockout", "random", "none"]
    assert "run with --edges all" in reason
    names, (reason,) = measured(tiny_llama, 5, before_answer=True)
    assert names == ["knockout", "random", "none"]
    assert "a position before the answer's tokens is read" in reason
    assert measured(tiny_llama, 5)[0] == ["knockout", "random", "none", "direct"]
