"""Marks on items and scores made by hand, where the right numbers are known."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted_model import Items, Score, marked, notes_of

N = 240


def items(correct: float = 1.0, seed: int = 0) -> Items:
    rng = np.random.default_rng(seed)
    return Items(
        ids=tuple(f"i{at}" for at in range(N)),
        pathway=np.array(["question", "answer", "both"])[np.arange(N) % 3],
        truthful=(np.arange(N) // 3) % 2 == 0,
        groups=np.arange(N) // 2,
        folds=(np.arange(N) // 6) % 4,
        correct=rng.random(N) < correct,
    )


def rated(made: Items, values: np.ndarray) -> dict[str, Any]:
    (row,) = marked(made, [Score("rule", "plain", values)], 200, 0)
    return row


def test_a_rule_that_knows_finds_everything() -> None:
    made = items()
    row = rated(made, (made.pathway == "question").astype(float))
    for truth in ("all", "true", "false"):
        assert row[f"auc_{truth}"] == 1
        assert row[f"recall_question_{truth}"] == row[f"recall_answer_{truth}"] == 1
    assert row["label_bias_question"] == row["label_bias_answer"] == 0
    assert "it may not follow the label" in notes_of(made, [row])[0]


def test_a_rule_that_follows_the_label_is_fair_over_all_and_guesses_within() -> None:
    made = items()
    row = rated(made, made.truthful.astype(float))
    assert row["auc_all"] == pytest.approx(0.5, abs=0.02)
    assert row["auc_true"] == 0.5
    assert (row["recall_question_true"], row["recall_question_false"]) == (1, 0)
    assert (row["label_bias_question"], row["label_bias_answer"]) == (1, -1)
    assert "it follows the label" in notes_of(made, [row])[0]


@given(seed=st.integers(0, 1000))
def test_noise_finds_nothing(seed: int) -> None:
    row = rated(items(seed=seed), np.random.default_rng(seed).normal(size=N))
    low, high = row["auc_all_interval"]
    assert abs(row["auc_all"] - 0.5) < 5 * (high - low) / 4


def test_items_that_were_not_run_or_called_wrong_do_not_count() -> None:
    made = items(correct=0.8)
    called = (made.pathway == "question").astype(float)
    called[~made.correct] = 1 - called[~made.correct]  # would spoil it if they counted
    called[:40] = np.nan
    row = rated(made, called)
    assert row["auc_all"] == 1
    counted = made.correct & (made.pathway != "both") & (np.arange(N) >= 40)
    assert row["auc_all_n"] == counted.sum()


def test_a_control_that_tells_pathways_apart_is_named() -> None:
    made = items()
    knows = (made.pathway == "question").astype(float)
    noise = np.random.default_rng(1).normal(size=N)
    scores = [Score("knockout", "random", knows), Score("knockout", "none", noise)]
    (line, _) = notes_of(made, marked(made, scores, 200, 0))
    assert line == "Controls that tell pathways apart: 1 of 2: random."
