"""One small run, finished and half done, that the tests of this folder copy and go on with."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anchorscope.recipe import Recipe, make_recipe
from small_facts import quick_options, write_questions
from whole_runs import SmallRun, Stop, quick, small_model, stopping, tables_of


@pytest.fixture(scope="session")
def small_recipe(save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    model = small_model(save_tiny("llama"))
    questions = write_questions(tmp_path_factory.mktemp("questions") / "facts.jsonl")
    return make_recipe(quick_options(questions, model=str(model), folds=2, directions=2, max_new_tokens=6))


@pytest.fixture(scope="session")
def small_run(small_recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    folder = tmp_path_factory.mktemp("small")
    with stopping("facts/tables", "write"), pytest.raises(Stop):
        quick(small_recipe, folder / "run")
    half_done = Path(shutil.copytree(folder / "run", folder / "half"))
    quick(small_recipe, folder / "run")
    return SmallRun(small_recipe, folder / "run", half_done, tables_of(folder / "run"))
