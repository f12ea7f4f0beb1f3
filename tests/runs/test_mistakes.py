"""Mistakes that were once costly: each is one line now, and nothing is lost by it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import anchorscope
from anchorscope.artefacts.formats import records
from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.step import MadeFrom, StepResult
from anchorscope.cli.main import app
from anchorscope.errors import UserError
from anchorscope.models import loading
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from small_facts import quick_options, write_questions
from whole_runs import files_of


@pytest.fixture(scope="module")
def model(save_tiny: Callable[[str], Path]) -> Path:
    return save_tiny("llama")


@pytest.mark.parametrize(
    "change", [{"device": "tpu"}, {"model": "/nowhere/at/all"}, {"datasets": ("file:/nowhere/at/all.csv",)}]
)
def test_starting_over_with_a_mistake_keeps_the_run_that_is_there(
    change: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    with open_run(tmp_path / "run") as folder:
        folder.write_recipe('model = "smollm2-135m"\n')
        StepResult(folder, "facts/answers", (), MadeFrom(), records(list[int]), lambda: [1]).value  # noqa: B018
    before = files_of(tmp_path / "run")
    options = quick_options(write_questions(tmp_path / "facts.jsonl"), model=str(model)) | change
    with pytest.raises(UserError):
        run_recipe(make_recipe(options), tmp_path / "run", fresh=True)
    assert files_of(tmp_path / "run") == before
    assert len(before) == 2 + 1  # index, recipe, and one step


def test_a_cut_that_the_probe_cannot_feel_is_refused() -> None:
    with pytest.raises(UserError, match="'answer_before' stands before them: nothing would change"):
        make_recipe({"edges": "direct", "position": "answer_before"})


def test_a_loaded_model_needs_its_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs its tokenizer"):
        anchorscope.run(object(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_do_not_fit_are_told_whatever_the_device_says(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: Any, **__: Any) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(torch.nn.Module, "to", too_large)
    with pytest.raises(UserError, match="do not fit into the memory of cpu in float32"):
        loading.load(str(model))


def test_a_wrong_device_leaves_no_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["validate", "--device", "tpu", "--out", "a/b/c"])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
