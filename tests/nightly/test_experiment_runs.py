"""Whole runs beyond the plain one: other words cut, other prompts, random weights, a dataset that is too small."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from transformers import AutoTokenizer

from anchorscope.errors import TooFewAnswers, UserError
from anchorscope.models.sources import SHAPES
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from chat_templates import CHATML
from small_facts import quick_options, rows, write_questions
from unprinted import unprinted
from whole_runs import quick, small_model

SMALL = {"folds": 2, "random_cuts": 1, "directions": 2, "report": True}


@pytest.fixture(scope="module")
def model_folder(save_tiny: Callable[[str], Path]) -> Path:
    folder = small_model(save_tiny("llama"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    return folder


def run(
    folder: Path,
    model: Path | str,
    chosen: list[dict[str, Any]] | None = None,
    figure: str = "",
    **options: Any,
) -> Path:
    questions = write_questions(folder / "facts.jsonl", chosen)
    return finish(
        quick_options(questions, model=str(model), **SMALL, **options),
        folder / "run",
        figure,
    )


def finish(options: dict[str, Any], out: Path, figure: str = "") -> Path:
    """A run to its end; of its figures the one that is looked at is printed."""
    with unprinted(figure):
        return run_recipe(make_recipe(options), out)


def manifest(out: Path) -> dict[str, Any]:
    return json.loads((out / "manifest.json").read_text(encoding="utf-8"))


def test_other_choices_of_words_give_curves_a_figure_and_a_table(
    model_folder: Path, tmp_path: Path
) -> None:
    chosen = rows()
    for row in chosen[
        :12
    ]:  # these questions say nothing but their subject, so the property cannot be cut in them
        row["exact_question"] = [row["subject"]]
    out = run(
        tmp_path,
        model_folder,
        chosen,
        figure="exact_tokens",
        evidence=("exact-tokens",),
    )
    effects = pl.read_parquet(out / "effects.parquet")
    ran = dict(
        effects.group_by("intervention").agg(pl.col("item_id").n_unique()).iter_rows()
    )
    controls = {"random": 80, "none": 80}
    assert ran == {
        "knockout": 80,
        **controls,
        "subject": 80,
        "property": 68,
        "content": 80,
    }
    cut = dict(effects.group_by("intervention").agg(pl.col("n_cut").mean()).iter_rows())
    assert cut["subject"] + cut["property"] * 68 / 80 == pytest.approx(cut["knockout"])
    assert cut["content"] >= cut["knockout"]
    assert (out / "figures" / "exact_tokens.svg").is_file()
    assert "Which words are cut" in (out / "report.html").read_text(encoding="utf-8")
    items = pl.read_parquet(out / "items.parquet").filter(pl.col("status") == "used")
    assert items.filter(pl.col("exact_question").list.len() > 0).height == 12
    assert manifest(out)["counts"][0]["words_by_own"] == 12


def test_a_dataset_with_too_few_answers_is_reported_and_the_others_go_on(
    model_folder: Path, tmp_path: Path
) -> None:
    others = [{**row, "question": f"Now, {row['question']}"} for row in rows()[:20]]
    few = write_questions(tmp_path / "few.jsonl", others)
    questions = write_questions(tmp_path / "facts.jsonl")
    options = quick_options(questions, model=str(model_folder), **SMALL)
    quick(
        make_recipe({**options, "datasets": (f"file:{few}", f"file:{questions}")}),
        out := tmp_path / "run",
    )
    warning, *_ = manifest(out)["warnings"]
    assert warning.startswith("not measured: Dataset 'few' has too few answers")
    items = pl.read_parquet(out / "items.parquet")
    assert items.filter(pl.col("dataset") == "few")["status"].unique().to_list() == [
        "too few"
    ]
    assert (
        items.filter(
            (pl.col("dataset") == "facts") & (pl.col("status") == "used")
        ).height
        == 80
    )
    counts = manifest(out)["counts"]
    assert [one["dataset"] for one in counts] == ["facts", "few"]
    assert (
        sum(counts[0][f"words_by_{rule}"] for rule in ("own", "metadata", "rules"))
        == 80
    )
    with pytest.raises(TooFewAnswers, match="'few' has too few"):
        run_recipe(
            make_recipe({**options, "datasets": (f"file:{few}",)}), tmp_path / "alone"
        )


def test_a_chat_runs_to_tables_and_rules_alone_do_not_look_at_the_dataset_whose_column_has_another_name(
    model_folder: Path, tmp_path: Path
) -> None:
    renamed = [
        {
            ("prompt" if name == "question" else name): value
            for name, value in row.items()
        }
        for row in rows()
    ]
    questions = write_questions(tmp_path / "facts.jsonl", renamed)
    options = {
        "prompt": "chat",
        "exact_tokens": "rules",
        "columns": ("question=prompt",),
    }
    quick(
        make_recipe(
            quick_options(questions, model=str(model_folder), **SMALL, **options)
        ),
        out := tmp_path / "run",
    )
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    item = (
        pl.read_parquet(out / "items.parquet")
        .filter(pl.col("status") == "used")
        .row(0, named=True)
    )
    text = tokenizer.decode(item["input_ids"])
    assert text.endswith(
        f"[user]{item['question']}[end]\n[assistant]\n{item['model_answer']}"
    )
    words = tokenizer.decode(
        [item["input_ids"][index] for index in item["question_tokens"]]
    )
    assert words == f"capital{item['subject']}"
    counts = manifest(out)["counts"][0]
    assert counts["words_by_rules"] == counts["used"] == 80


def test_memory_that_ran_out_is_reported(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anchorscope.models.language_model import LanguageModel

    embed = LanguageModel.embed

    def small(
        self: LanguageModel, ids: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        if ids.numel() > 600:  # one item with all its cuts fits
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return embed(self, ids, positions)

    monkeypatch.setattr(LanguageModel, "embed", small)
    out = run(tmp_path, model_folder)
    tokens = manifest(out)["batch_tokens"]
    assert tokens["asked"] == 2048
    assert 0 < tokens["final"] < 1000
    assert f"lowered to {tokens['final']} when memory ran out" in (
        out / "report.md"
    ).read_text(encoding="utf-8")


@pytest.mark.embedded
def test_random_weights_are_refused_or_marked_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        SHAPES, "llama-3.2-1b", replace(SHAPES["llama-3.2-1b"], layers=3)
    )
    with pytest.raises(
        UserError, match=r"random weights and knows nothing.*--allow-random-weights"
    ):
        run(tmp_path, "shape:llama-3.2-1b/64")
    out = run(
        tmp_path, "shape:llama-3.2-1b/64", figure="delta_p", allow_random_weights=True
    )
    mark = "RANDOM WEIGHTS"
    assert mark in manifest(out)["model"]["name"]
    assert mark in manifest(out)["warnings"][0]
    assert pl.read_csv(out / "curves.csv")["model"].str.contains(mark).all()
    assert pl.read_csv(out / "probe_scores.csv")["model"].str.contains(mark).all()
    for name in (
        "report.html",
        "report.md",
        "observations.json",
        "figures/delta_p.svg",
    ):
        assert mark in (out / name).read_text(encoding="utf-8"), name
