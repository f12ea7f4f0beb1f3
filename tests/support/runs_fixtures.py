"""One small run, finished and half done, that tests copy and go on with; made once per version of the code."""

import shutil
from pathlib import Path

import pytest

from anchorscope.recipe import Recipe, make_recipe
from run_cache import cached_run
from small_facts import quick_options, write_questions
from whole_runs import SmallRun, Stop, quick, save_small_model, stopping, tables_of


def _recipe(folder: Path) -> Recipe:
    options = {"model": str(folder / "tiny-llama"), "folds": 2, "directions": 2, "max_new_tokens": 6}
    return make_recipe(quick_options(folder / "facts.jsonl", **options))


def _make(folder: Path) -> None:
    save_small_model(folder / "tiny-llama")
    write_questions(folder / "facts.jsonl")
    with stopping("facts/tables", "write"), pytest.raises(Stop):
        quick(_recipe(folder), folder / "run")
    shutil.copytree(folder / "run", folder / "half")
    quick(_recipe(folder), folder / "run")


@pytest.fixture(scope="session")
def small_run() -> SmallRun:
    folder = cached_run("small", _make)
    return SmallRun(_recipe(folder), folder / "run", folder / "half", tables_of(folder / "run"))


@pytest.fixture(scope="session")
def small_recipe(small_run: SmallRun) -> Recipe:
    return small_run.recipe
