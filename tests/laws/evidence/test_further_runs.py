"""Strengthened attention of single items: who has no edge to strengthen runs as it is; nothing is silently skipped."""

import math

import pytest
import torch

from anchorscope.catalogue import DETECTION_RUNS, boost_name
from anchorscope.engine.sequences import NO_CUT
from anchorscope.evidence.further_runs import (
    agreement_columns,
    answer_boost,
    boosted_states,
    clean_states_at,
    question_boost,
)
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


def test_the_edges_that_are_strengthened() -> None:
    made = items()
    assert question_boost(made[1], "outside", 3.0).keys == (4, 6)
    assert question_boost(made[1], "outside", 3.0).edges == "outside"
    start = made[1].located.answer_start
    assert answer_boost(made[1], 3.0).keys == (start, start + 1, start + 2)  # nobody comes after the last
    assert answer_boost(made[0], 3.0) is NO_CUT


def test_an_answer_of_one_token_has_its_clean_states(tiny_llama: LanguageModel) -> None:
    made, setting = items(), make_setting(("final", "answer_end"))
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 60)
    clean = clean_states_at(executor, planner, made, setting, (0, 1), "clean", Silent())
    found = boosted_states(executor, planner, made, setting, (0, 1), False, Silent())
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


def test_all_answers_of_one_token_are_no_error(tiny_llama: LanguageModel) -> None:
    made = [item for item, n in zip(items(), ANSWERS, strict=True) if n == 1]
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 60)
    setting = make_setting(("final",))
    clean = clean_states_at(executor, planner, made, setting, (0, 2), "clean", Silent())
    found = boosted_states(executor, planner, made, setting, (0, 2), False, Silent())
    torch.testing.assert_close(found[boost_name("answer", 3.0)], clean, rtol=1e-5, atol=1e-5)
