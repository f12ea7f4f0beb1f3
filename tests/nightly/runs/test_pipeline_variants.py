"""The pipeline run in other ways: a loaded model, two datasets, answers that the model writes itself."""

import json
from pathlib import Path

import polars as pl
import torch
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM, AutoTokenizer

from anchorscope.recipe import Recipe
from runs_fixtures import table
from small_facts import rows, write_questions
from whole_runs import TABLES, quick


def test_a_model_that_is_already_loaded_gives_the_same_numbers(
    recipe: Recipe, out: Path, model_folder: Path, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    again = tmp_path / "run"
    quick(recipe, again, loaded=(model, AutoTokenizer.from_pretrained(model_folder)))
    for name in (name for name in TABLES if not name.endswith("safetensors")):
        first, second = (table(folder, name) for folder in (out, again))
        if "model" in first.columns:
            first, second = first.drop("model"), second.drop("model")
        assert_frame_equal(first, second, check_exact=True)


def test_two_datasets_stand_in_one_run(
    recipe: Recipe, out: Path, questions: Path, tmp_path: Path
) -> None:
    second = write_questions(tmp_path / "more.jsonl", rows()[:80])
    both = recipe.model_copy(update={"datasets": (*recipe.datasets, f"file:{second}")})
    run = tmp_path / "run"
    quick(both, run)
    for name in (name for name in TABLES if not name.endswith("safetensors")):
        frame = table(run, name)
        assert set(frame["dataset"]) == (
            {"facts", "more"} if table(out, name).height else set()
        )
        assert_frame_equal(
            frame.filter(pl.col("dataset") == "facts"),
            table(out, name),
            check_exact=True,
        )
    assert len(json.loads((run / "manifest.json").read_text())["counts"]) == 2
