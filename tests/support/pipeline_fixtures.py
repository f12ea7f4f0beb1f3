"""One whole run on a tiny model, and what compares it with others: for the tests of the pipeline."""

import json
from pathlib import Path

import polars as pl
import pytest

from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from run_cache import cached_run
from small_facts import quick_options, write_questions
from unprinted import unprinted
from whole_runs import save_small_model


def _recipe(folder: Path) -> Recipe:
    return make_recipe(quick_options(folder / "facts.jsonl", model=str(folder / "tiny-llama"), report=True))


def _make(folder: Path) -> None:
    save_small_model(folder / "tiny-llama")
    write_questions(folder / "facts.jsonl")
    with unprinted("delta_p"):
        run_recipe(_recipe(folder), folder / "run")


@pytest.fixture(scope="module")
def out() -> Path:
    """One run with everything, chart and report included; read only."""
    return cached_run("pipeline", _make) / "run"


@pytest.fixture(scope="module")
def model_folder(out: Path) -> Path:
    """Its model."""
    return out.parent / "tiny-llama"


@pytest.fixture(scope="module")
def questions(out: Path) -> Path:
    return out.parent / "facts.jsonl"


@pytest.fixture(scope="module")
def recipe(out: Path) -> Recipe:
    return _recipe(out.parent)


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
