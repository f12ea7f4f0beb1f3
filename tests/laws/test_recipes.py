"""The recipes that come with the project: they name what exists, and one command with other files runs them."""

import json
from pathlib import Path

import pytest

from anchorscope.cli.main import app
from anchorscope.datasets.catalog import SOURCES
from anchorscope.recipe import make_recipe, read_recipe
from anchorscope.study.grid import read_study
from repo import ROOT

RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_names_known_datasets_and_a_hub_id_and_tells_the_other_model(
    path: Path,
) -> None:
    recipe = make_recipe(read_recipe(path))
    assert recipe.datasets == tuple(SOURCES)
    assert recipe.model.count("/") == 1
    assert (
        path.read_text(encoding="utf-8").count(f"anchorscope run recipes/{path.name}")
        == 2
    )


@pytest.mark.embedded
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_can_be_previewed_with_another_model(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        app(
            [
                "run",
                str(path),
                "--model",
                "smollm2-135m",
                "--dataset",
                "atlas",
                "--limit",
                "5",
                "--dry-run",
                "--json",
            ]
        )
    assert left.value.code == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model"]["name"], shown["datasets"][0]["questions"]) == (
        "SmolLM2-135M-Instruct",
        5,
    )


STUDIES = {path.stem: path for path in (ROOT / "recipes" / "studies").glob("*.toml")}


@pytest.mark.parametrize("path", STUDIES.values(), ids=lambda path: path.name)
def test_a_study_names_hub_ids_and_known_datasets_and_tells_its_commands(
    path: Path,
) -> None:
    study = read_study(path)
    assert {run.recipe.datasets for run in study.runs} == {tuple(SOURCES)}
    assert all(run.recipe.model.count("/") == 1 for run in study.runs)
    text = path.read_text(encoding="utf-8")
    assert f"anchorscope study run recipes/studies/{path.name} --out " in text
    assert "Access to the hub is needed" in text
