"""Whoever runs the model, a run gives the same bytes: tables, probes and kept states, with sampled answers."""

import hashlib
import json
from pathlib import Path

import pytest

from anchorscope.execute.choose import choose
from anchorscope.recipe import Recipe
from whole_runs import files_of, quick, tables_of


@pytest.fixture(scope="module")
def everything(small_recipe: Recipe) -> Recipe:
    """Every kind of pass: answers, samples, states, cuts, rewritings, patches, gradients, random weights."""
    update = {
        "keep": ("states", "states-cut", "detection"), "evidence": ("knockout", "saliency", "matched", "boundary"),
        "random_weights": True, "exact_tokens": "model", "batch_tokens": 400,
    }  # fmt: skip
    return small_recipe.model_copy(update=update)


@pytest.fixture(scope="module")
def alone(everything: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    quick(everything, out)
    return out


def numbers_of(out: Path) -> dict[str, str]:
    """sha256 of every table, probe, state and feature file."""
    kept = {name: one for name, one in files_of(out).items() if name.startswith(("states", "features"))}
    assert kept, "states are kept"
    return {name: hashlib.sha256(one).hexdigest() for name, one in {**tables_of(out), **kept}.items()}


def test_two_processes_give_the_same_bytes_as_one(everything: Recipe, alone: Path, tmp_path: Path) -> None:
    told = quick(everything, tmp_path / "run", choice=choose("processes:2", lease=60))
    assert numbers_of(tmp_path / "run") == numbers_of(alone)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    workers = manifest["workers"]
    assert workers["executor"] == "processes"
    assert workers["workers"] == workers["workers_asked"] == 2
    assert workers["done"] > 50
    assert workers["retried"] == workers["lost"] == 0
    assert manifest["numerics"] == json.loads((alone / "manifest.json").read_text())["numerics"]
    assert not [line for line in told if "lost" in line]
    assert not list((tmp_path / "run").rglob("*.shards"))  # nothing is left of the way


