"""Questions longer than the model's context: counted, told and left out before any pass; the dry run says it too."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.cli.run import render_preview
from anchorscope.errors import UserError
from anchorscope.preview import preview_recipe
from anchorscope.recipe import make_recipe
from small_facts import quick_options, rows, write_questions
from tiny_models import byte_tokenizer, tiny_model
from whole_runs import quick

CONTEXT = 100


@pytest.fixture(scope="module")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a learned table of 100 positions: one token more would end the run."""
    folder = tmp_path_factory.mktemp("models") / "short"
    tiny_model("gpt2", max_position_embeddings=CONTEXT).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def long_rows() -> list[dict[str, Any]]:
    """The usual rows; one question and one answer are too long."""
    question, answer, *others = rows()
    question["question"] = (
        "What is the capital of " + "very " * 1000 + f"far {question['subject']}?"
    )
    answer["model_answer"] = "Mira" * 500
    return [question, answer, *others]


def options(
    model: Path, path: Path, chosen: list[dict[str, Any]], **others: Any
) -> dict[str, Any]:
    small = {"model": str(model), "evidence": ("knockout",), "prompt": "zero-shot"}
    return quick_options(write_questions(path, chosen), **small, **others)


def test_what_does_not_fit_is_left_out_and_told(
    short_model: Path, tmp_path: Path
) -> None:
    chosen = options(
        short_model, tmp_path / "facts.jsonl", long_rows(), balance="dataset"
    )
    recipe = make_recipe(chosen)
    quick(recipe, tmp_path / "run")
    items = pl.read_parquet(tmp_path / "run" / "items.parquet")
    long = items.filter(pl.col("status") == "too_long")
    assert long["item_id"].to_list() == ["item-0", "item-1"]
    assert long["truthful"].null_count() == 2
    assert long["input_ids"].list.len().to_list() == [0, 0]
    assert long["model_answer"][1] == "Mira" * 500
    assert items.filter(pl.col("status") == "used").height == 80
    assert items["input_ids"].list.len().max() <= CONTEXT
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (told,) = [one for one in manifest["warnings"] if "context" in one]
    assert told.startswith(
        "facts: 2 of 83 questions do not fit the model's context of 100 tokens"
    )
    assert manifest["counts"][0]["too_long"] == 2
    preview = preview_recipe(recipe)
    assert preview["model"]["context"] == CONTEXT
    assert told == "facts: " + preview["datasets"][0]["too_long"]
    assert f"  too long   {told}" in render_preview(preview).splitlines()


def test_where_none_fits_it_is_one_line(short_model: Path, tmp_path: Path) -> None:
    every = [{**row, "question": row["question"] + " " + "x" * 100} for row in rows()]
    recipe = make_recipe(options(short_model, tmp_path / "facts.jsonl", every))
    with pytest.raises(
        UserError,
        match=r"83 of 83 questions do not fit the model's context of 100 tokens",
    ) as told:
        quick(recipe, tmp_path / "run")
    assert "\n" not in str(told.value)
    preview = preview_recipe(recipe)
    assert not preview["datasets"][0]["enough"]
    assert "83 of 83 questions do not fit" in render_preview(preview)
