"""Recovery on items and scores made by hand, where the right numbers are known."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.validation.recovery import Items, Score, recovery_table, sentences

N = 240


def items(correct: float = 1.0, seed: int = 0) -> Items:
    rng = np.random.default_rng(seed)
    pathway = np.array(["question", "answer", "both"])[np.arange(N) % 3]
    truthful = (np.arange(N) // 3) % 2 == 0
    return Items(
        tuple(f"i{at}" for at in range(N)),
        pathway,
        truthful,
        np.arange(N) // 2,
        (np.arange(N) // 6) % 4,
        rng.random(N) < correct,
    )


def value(table: pl.DataFrame, quantity: str, truth: str = "all") -> float:
    (found,) = table.filter(
        (pl.col("quantity") == quantity) & (pl.col("truth") == truth)
    )["value"]
    return float(found)


def rated(
    made: Items, called: np.ndarray, values: np.ndarray | None = None
) -> pl.DataFrame:
    score = Score("rules", "mine", called if values is None else values, called)
    return recovery_table(made, [score], 200, 0)


def test_a_rule_that_knows_finds_everything() -> None:
    made = items()
    table = rated(made, (made.pathway == "question").astype(float))
    for truth in ("all", "true", "false"):
        assert (
            value(table, "auc", truth) == value(table, "balanced_accuracy", truth) == 1
        )
    assert value(table, "label_bias_question") == value(table, "label_bias_answer") == 0


def test_a_rule_that_follows_the_label_is_fair_over_all_and_guesses_within() -> None:
    made = items()
    table = rated(made, made.truthful.astype(float))
    assert value(table, "auc") == pytest.approx(0.5, abs=0.02)
    assert value(table, "auc", "true") == 0.5
    assert (
        value(table, "recall_question", "true"),
        value(table, "recall_question", "false"),
    ) == (1, 0)
    assert (value(table, "label_bias_question"), value(table, "label_bias_answer")) == (
        1,
        -1,
    )
    assert any(
        "so it follows the label" in line
        for line in sentences(made, table.with_columns(rule_or_variant=pl.lit("plain")))
    )


@given(seed=st.integers(0, 1000))
def test_noise_finds_nothing(seed: int) -> None:
    made = items(seed=seed)
    noise = np.random.default_rng(seed).normal(size=N)
    (row,) = (
        rated(made, (noise > 0).astype(float), noise)
        .filter((pl.col("quantity") == "auc") & (pl.col("truth") == "all"))
        .to_dicts()
    )
    assert abs(row["value"] - 0.5) < 5 * (row["ci_high"] - row["ci_low"]) / 4


def test_items_that_were_not_run_or_called_wrong_do_not_count() -> None:
    made = items(correct=0.8)
    called = (made.pathway == "question").astype(float)
    called[~made.correct] = (
        1 - called[~made.correct]
    )  # would spoil everything if they counted
    called[:40] = np.nan
    table = rated(made, called)
    assert value(table, "balanced_accuracy") == 1
    n = int((made.correct & (made.pathway != "both") & (np.arange(N) >= 40)).sum())
    assert table.filter((pl.col("quantity") == "auc") & (pl.col("truth") == "all"))[
        "n"
    ].to_list() == [n]
