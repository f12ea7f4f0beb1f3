"""Strengthened attention of single items: who has no edge to strengthen runs as it is; nothing is silently skipped."""

import math

import pytest
import torch

from anchorscope.catalogue import DETECTION_RUNS, boost_name
from anchorscope.evidence.further_runs import ItemPasses, agreement_columns, boosted_states, clean_states_at
from anchorscope.execute.executor import LocalExecutor
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from made_items import make_item, make_setting, planner_of

PREFIX = (256, 7, 8)
ANSWERS = (1, 4, 1, 2)
"""Tokens of each item's answer."""


def items() -> list[Item]:
    generator = torch.Generator().manual_seed(3)
    found = []
    for number, n in enumerate(ANSWERS):
        own = torch.randint(0, 256, (9 + number + n,), generator=generator).tolist()
        ids = (*PREFIX, *own)
        found.append(make_item(ids, len(ids) - n, (4, 6), len(PREFIX), name=f"item {number}"))
    return found


def test_an_answer_of_one_token_has_its_clean_states(tiny_llama: LanguageModel) -> None:
    made, setting = items(), make_setting(("final", "answer_end"))
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 60)
    passes = ItemPasses(executor, planner, made, setting, (0, 1), Silent())
    clean, found = clean_states_at(passes, "clean"), boosted_states(passes)
    assert list(found) == [name for name in DETECTION_RUNS if name.startswith("boost-")]
    assert list(found) == [boost_name(part, alpha) for part in ("question", "answer") for alpha in (1.0, 3.0)]
    for name, states in found.items():
        assert states.shape == clean.shape == (4, len(made), 32)
        for index, n in enumerate(ANSWERS):
            moved = float((states[:, index] - clean[:, index]).abs().max())
            if n == 1 and "answer" in name:
                assert moved < 1e-5  # other neighbours, the same run
            else:
                assert moved > 1e-3, (name, index)


def test_samples_are_counted_item_by_item_the_first_five_and_all() -> None:
    made = items()[:2]  # both answer "so"
    samples = [["so", "So.", "Paris", "It is Paris", "so", *["else"] * 5], ["a"] * 10]
    found = agreement_columns(made, samples)
    assert found["self_consistency_5"].tolist() == [0.6, 0]
    assert found["self_consistency_10"].tolist() == [0.3, 0]
    shares = {"semantic_entropy_5": (0.6, 0.4), "semantic_entropy_10": (0.3, 0.2, 0.5)}
    for name, parts in shares.items():
        assert found[name] == pytest.approx([-sum(part * math.log(part) for part in parts), 0])
