"""The Python door: a run from a model that is already loaded, and what it gives back."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode does not make helper modules importable

from small_facts import quick_options, write_questions  # isort: skip
from unprinted import unprinted  # isort: skip

import anchorscope
from anchorscope.models.language_model import LanguageModel


def test_a_loaded_model_runs_and_gives_data_frames_and_a_figure(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    options = quick_options(write_questions(tmp_path / "facts.jsonl"))
    here = tmp_path / "run"
    with unprinted():
        run = anchorscope.run(tiny_llama.model, tokenizer=tiny_llama.tokenizer, out=here, **options)
    assert run.items.filter(pl.col("status") == "used").height == 80
    assert run.effects["intervention"].unique().sort().to_list() == ["knockout", "none", "random", "random-mass"]
    assert set(run.curves["assignment"].unique()) == {"plain", "cross-fitted", "corrected", "retained"}
    assert run.pathways.height > 0
    assert run.probe_scores.height > 0
    assert run.summary.height > 0
    assert set(run.question_share["intervention"]) >= {"knockout", "random", "none", "permuted"}
    assert run.question_share_items["item_id"].n_unique() == (run.items["status"] == "used").sum()
    assert "thirds_difference" in run.question_share_tests["quantity"]
    assert run.figure().axes[0].get_title().startswith("plain")
    again = anchorscope.open_run(here)
    assert again.curves.equals(run.curves)
    assert "llama" in repr(again)


def test_every_public_name_is_there_and_importing_costs_nothing() -> None:
    for name in anchorscope.__all__:
        assert getattr(anchorscope, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        anchorscope.rum  # noqa: B018
    code = "import anchorscope, sys; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_name_of_a_folder_is_told() -> None:
    with pytest.raises(anchorscope.UserError, match="folder's name is empty"):
        anchorscope.run(out=" ")


def test_an_unfinished_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(anchorscope.UserError, match="not a finished run"):
        anchorscope.open_run(tmp_path)
