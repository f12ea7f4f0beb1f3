"""Whoever runs the model, a run gives the same bytes: tables, probes and kept states, with sampled answers."""

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import needs
from anchorscope.errors import UserError
from anchorscope.execute import numerics
from anchorscope.execute.choose import choose
from anchorscope.execute.ray_executor import WarmModels
from anchorscope.models.process_settings import threads
from anchorscope.recipe import Recipe
from whole_runs import SmallRun, files_of, quick, tables_of


@pytest.fixture(scope="module")
def everything(small_recipe: Recipe) -> Recipe:
    """Every kind of pass: answers, samples, states, cuts, rewritings, patches, gradients, random weights."""
    update = {
        "keep": ("states", "states-cut", "detection"),
        "evidence": ("knockout", "saliency", "matched", "boundary"),
        "random_weights": True,
        "batch_tokens": 400,
        "max_per_class": 30,
        "max_new_tokens": 4,
        "folds": 2,  # no more than there has to be
    }
    return small_recipe.model_copy(update=update)


@pytest.fixture(scope="module")
def alone(everything: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    quick(everything, out)
    return out


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmModels]:
    """Two workers, started once."""
    needs.ray()
    made = WarmModels()
    yield made
    made.close()


def numbers_of(out: Path) -> dict[str, str]:
    """sha256 of every table, probe, state and feature file."""
    kept = {
        name: one
        for name, one in files_of(out).items()
        if name.startswith(("states", "features"))
    }
    assert kept, "states are kept"
    return {
        name: hashlib.sha256(one).hexdigest()
        for name, one in {**tables_of(out), **kept}.items()
    }


def test_two_workers_give_the_bytes_of_one_process(
    everything: Recipe, alone: Path, tmp_path: Path, warm: WarmModels
) -> None:
    quick(everything, tmp_path / "run", choice=choose(workers=2), warm=warm)
    assert numbers_of(tmp_path / "run") == numbers_of(alone)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["workers"] == {"executor": "ray", "workers": 2}
    assert not list((tmp_path / "run" / "work").glob("states.*")), (
        "files of states are removed"
    )
    assert (
        manifest["numerics"]
        == json.loads((alone / "manifest.json").read_text())["numerics"]
    )


def test_a_run_is_not_resumed_with_other_numerics(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = small_run.copy("half_done", tmp_path / "run")
    recipe = small_run.recipe.model_copy(
        update={"evidence": ("knockout", "saliency")}
    )  # the model is needed
    monkeypatch.setattr(numerics, "_processor", lambda: "cpu: another")
    with pytest.raises(
        UserError,
        match=r"begun with other numerics: device cpu: another instead of.*--fresh",
    ):
        quick(recipe, out)


def test_a_model_in_memory_stays_in_this_process(
    small_recipe: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="in memory runs in this process"):
        quick(
            small_recipe,
            tmp_path / "run",
            loaded=(object(), object()),
            choice=choose(workers=2),
        )
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_the_number_of_threads_that_it_was_begun_with(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("half_done", tmp_path / "run")
    before = torch.get_num_threads()
    with threads(before + 1):  # another machine, or another setting
        told = quick(small_run.recipe, out)
    assert any(
        f"{before} threads are used, as the run was begun with" in line for line in told
    )
    assert tables_of(out) == small_run.tables
    assert tomllib.loads((out / "recipe.toml").read_text())["threads"] == before
    assert torch.get_num_threads() == before
