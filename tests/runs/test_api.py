"""The Python door: a run from a model that is already loaded, and what it gives back."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import anchorscope
from anchorscope.api import question_files
from anchorscope.datasets.catalog import parse_spec
from anchorscope.models.loading import load as load_model
from anchorscope.recipe import Recipe
from compared_runs import write_run
from report_shares import run_with_shares
from small_facts import quick_options, write_questions
from unprinted import unprinted
from whole_runs import small_model


@pytest.fixture(scope="module")
def made(
    save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> anchorscope.Run:
    folder, lm = (
        tmp_path_factory.mktemp("made"),
        load_model(str(small_model(save_tiny("llama")))),
    )
    small = {"folds": 2, "random_cuts": 1, "directions": 2}
    options = quick_options(write_questions(folder / "facts.jsonl"), **small)
    with unprinted():
        return anchorscope.run(
            lm.model, tokenizer=lm.tokenizer, out=folder / "run", **options
        )


def test_a_loaded_model_runs_and_gives_data_frames_and_a_figure(
    made: anchorscope.Run,
) -> None:
    run, here = made, made.path
    assert run.items.filter(pl.col("status") == "used").height == 80
    assert run.effects["intervention"].unique().sort().to_list() == [
        "knockout",
        "none",
        "random",
    ]
    assert set(run.curves["group"]) == {"Q-Anchored", "A-Anchored"}
    assert run.pathways.height > 0
    assert run.probe_scores.height > 0
    assert run.summary.height > 0
    assert (run.evidence_parts.height, run.evidence_items.height) == (
        0,
        0,
    )  # 80 answers, 300 are needed
    assert run.evidence_tests.filter(pl.col("quantity") == "answers")[
        "value"
    ].to_list() == [80.0]
    assert run.figure().axes[0].get_ylabel() == "ΔP"
    assert run.figures[0] == "delta_p"
    assert run.card.record() == anchorscope.open_run(here).card.record()
    seconds = sum(step["seconds"] for step in run.manifest["steps"])
    assert seconds <= run.manifest["elapsed_seconds"] + 0.1  # none counts twice
    again = anchorscope.open_run(here)
    assert again.curves.equals(run.curves)
    assert "llama" in repr(again)


def test_every_public_name_is_there_and_importing_costs_nothing() -> None:
    for name in anchorscope.__all__:
        assert getattr(anchorscope, name) is not None
    assert set(anchorscope.__all__) == {
        name for name in dir(anchorscope) if not name.startswith("_")
    }
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        anchorscope.rum  # noqa: B018
    code = "import anchorscope, sys; sys.exit('torch' in sys.modules or 'polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_loaded_model_needs_its_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(anchorscope.UserError, match="needs its tokenizer"):
        anchorscope.run(object(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("finished") / "run",
        run_with_shares(datasets=("popqa",)),
    )


def test_a_finished_run_is_opened_and_shown_without_torch(finished: Path) -> None:
    code = (
        "import sys, anchorscope\n"
        f"run = anchorscope.open_run({str(finished)!r})\n"
        "assert run.curves.height and run.items.height\n"
        "assert 'answer-card' in run._repr_html_()\n"
        "assert run.figure('probe_auc')._repr_png_()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_option_is_one_line() -> None:
    with pytest.raises(
        anchorscope.UserError,
        match=r"Unknown option 'random_cut'.*Did you mean 'random_cuts'\?",
    ):
        anchorscope.run(out="run", random_cut=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["zeroing,layers", ["layers", "zeroing"]])
def test_lists_may_be_written_with_commas(
    given: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Recipe] = []

    def listen(recipe: Recipe, *_: object, **__: object) -> Path:
        seen.append(recipe)
        raise KeyboardInterrupt

    monkeypatch.setattr("anchorscope.pipeline.run_recipe", listen)
    monkeypatch.setattr(
        "anchorscope.api.check_inputs", lambda *_: None
    )  # the file is not there
    with pytest.raises(KeyboardInterrupt):
        anchorscope.run(datasets="atlas,popqa=x.csv", evidence=given, out="run", seed=7)  # type: ignore[arg-type]
    assert seen[0].evidence == ("knockout", "zeroing", "layers")
    assert (seen[0].datasets, seen[0].seed) == (("atlas", "popqa=x.csv"), 7)


def test_questions_in_memory_become_a_file_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd
    from datasets import Dataset

    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path))
    rows = [
        {"question": "Where is Rome?", "answer": "Italy"},
        {"question": "Где Рим?", "answer": "Италия"},
    ]
    tables = [rows, pl.DataFrame(rows), pd.DataFrame(rows), Dataset.from_list(rows)]
    ((name,),) = {tuple(question_files(table)) for table in tables}
    assert question_files(["atlas", rows]) == ["atlas", name]
    path = parse_spec(name).path
    assert path is not None
    assert [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
    ] == rows
    with pytest.raises(
        anchorscope.UserError,
        match=r"A dataset is a int; give a name or a file, a list of dicts",
    ):
        question_files(["atlas", 3])
