"""One small run, half done, finished, and with its report, that tests copy and go on with; made once per version of the
code."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from run_cache import cached_run
from small_facts import quick_options, write_questions
from unprinted import unprinted
from whole_runs import SmallRun, Stop, quick, save_small_model, stopping, tables_of


def _recipe(folder: Path, report: bool = False) -> Recipe:
    small = {"folds": 2, "directions": 2, "max_new_tokens": 6, "report": report}
    return make_recipe(
        quick_options(folder / "facts.jsonl", model=str(folder / "tiny-llama"), **small)
    )


def _make(folder: Path) -> None:
    save_small_model(folder / "tiny-llama")
    write_questions(folder / "facts.jsonl")
    with stopping("facts/tables", "write"), pytest.raises(Stop):
        quick(_recipe(folder), folder / "run")
    shutil.copytree(folder / "run", folder / "half")
    quick(_recipe(folder), folder / "run")
    shutil.copytree(folder / "run", folder / "reported")
    with unprinted("delta_p"):
        run_recipe(_recipe(folder, report=True), folder / "reported")


@pytest.fixture(scope="session")
def small_run() -> SmallRun:
    folder = cached_run("small", _make)
    return SmallRun(
        _recipe(folder), folder / "run", folder / "half", tables_of(folder / "run")
    )


@pytest.fixture(scope="session")
def small_recipe(small_run: SmallRun) -> Recipe:
    return small_run.recipe


@pytest.fixture(scope="module")
def out() -> Path:
    """The run with everything, chart and report included; read only."""
    return cached_run("small", _make) / "reported"


@pytest.fixture(scope="module")
def model_folder(out: Path) -> Path:
    return out.parent / "tiny-llama"


@pytest.fixture(scope="module")
def questions(out: Path) -> Path:
    return out.parent / "facts.jsonl"


@pytest.fixture(scope="module")
def recipe(out: Path) -> Recipe:
    return _recipe(out.parent, report=True)


@pytest.fixture(scope="module")
def written(out: Path) -> Recipe:
    """The recipe that the run wrote; runs that end with the same numbers show that it repeats the run."""
    return make_recipe(read_recipe(out / "recipe.toml"))


@pytest.fixture(scope="module")
def steps(out: Path) -> list[str]:
    """The steps of a run, in the order in which they are done."""
    return list(json.loads((out / "index.json").read_text())["steps"])


def table(out: Path, name: str) -> pl.DataFrame:
    return (
        pl.read_parquet(out / name)
        if name.endswith("parquet")
        else pl.read_csv(out / name)
    )
