"""One whole run on a tiny model, and what compares it with others: for the tests of the pipeline."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from small_facts import quick_options, write_questions
from unprinted import unprinted
from whole_runs import small_model


@pytest.fixture(scope="module")
def model_folder(save_tiny: Callable[[str], Path]) -> Path:
    """A tiny model on disk."""
    return small_model(save_tiny("llama"))


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("questions") / "facts.jsonl")


@pytest.fixture(scope="module")
def recipe(model_folder: Path, questions: Path) -> Recipe:
    return make_recipe(quick_options(questions, model=str(model_folder), report=True))


@pytest.fixture(scope="module")
def out(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run with everything, chart and report included."""
    with unprinted("delta_p"):
        return run_recipe(recipe, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def steps(out: Path) -> list[str]:
    """The steps of a run, in the order in which they are done."""
    return list(json.loads((out / "index.json").read_text())["steps"])


def table(out: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(out / name) if name.endswith("parquet") else pl.read_csv(out / name)


@pytest.fixture(scope="module")
def written(out: Path) -> Recipe:
    """The recipe that the run wrote; the runs below that end with the same numbers show that it repeats the run."""
    return make_recipe(read_recipe(out / "recipe.toml"))
