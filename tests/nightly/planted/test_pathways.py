"""A run on the planted model, whose pathways are known: what the estimator finds there, and where it says nothing."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from planted_model import marked, plant_and_run, read_items, read_scores

ITEMS = 300
EVIDENCE = ("knockout", "patching")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = {"evidence": EVIDENCE, "bootstrap": 100, "device": "cpu"}
    return plant_and_run(recipe, ITEMS, 0, tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def found(run: Path) -> dict[str, dict[str, Any]]:
    items = read_items(run)
    rows = marked(items, read_scores(run, items), 100, 0)
    return {row["variant"]: row for row in rows}


def test_the_flips_of_the_plain_rule_follow_the_label(found) -> None:
    assert found["plain"]["recall_question_all"] < 0.6
    assert found["plain"]["label_bias_question"] > 0.8


def test_the_knockout_finds_pathways_among_true_answers_and_guesses_among_false_ones(
    found,
) -> None:
    assert found["knockout"]["auc_true"] > 0.95
    assert found["knockout"]["auc_false"] < 0.7


@pytest.mark.parametrize("control", ["none", "patch-self"])
def test_what_changes_nothing_finds_nothing(found, control: str) -> None:
    assert found[control]["auc_all"] == pytest.approx(0.5, abs=0.12)


def test_the_planted_models_parts_are_in_the_contracts_columns_and_add_up(
    run: Path,
) -> None:
    """What a question alone tells of the planted items is nothing, and the match is there once the model has it."""
    parts = pl.read_csv(run / "evidence_parts.csv").filter(pl.col("site") == "mlp")
    band = {
        (row["intervention"], row["part"]): row
        for row in parts.filter(pl.col("layer") == "band").to_dicts()
    }
    assert {name for name, _ in band} == {"knockout", "random", "permuted", "resample"}
    assert band["knockout", "question"]["share"] == pytest.approx(0, abs=0.1)
    assert band["knockout", "together"]["ci_low"] > 0.3
    assert band["permuted", "needs-question"]["share"] == pytest.approx(0, abs=0.05)
    first = parts.filter(
        (pl.col("intervention") == "knockout") & (pl.col("layer") == "0")
    )
    shares = dict(first.select("part", "share").iter_rows())
    assert shares["answer"] == pytest.approx(1, abs=0.1)
