"""A whole run on questions with passages and thinking: shares of every source, the page's sentence, mistakes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.errors import UserError
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe
from small_facts import SYLLABLES, quick_options, write_questions
from unprinted import unprinted
from whole_runs import quick, save_small_model

N = 320


def rows() -> list[dict[str, Any]]:
    """Answers whose label shows in the passage, for half of them also in the answer; every fourth has thinking."""
    rng = np.random.default_rng(0)
    made = []
    for index in range(N):
        truthful = index % 2 == 0
        name = f"{SYLLABLES[index // 15 % 15].title()}{SYLLABLES[index % 15]}{index // 225 or ''}"
        sign = "ok" if truthful == (rng.random() < 0.8) else "no"
        ending = "la" if truthful == (rng.random() < 0.7) else "ux"
        passages = [f"{name} is {sign}.", "It rains."][: 1 + index % 2]
        row = {
            "id": f"item-{index}",
            "question": f"What of {name}?",
            "answers": ["Never"],
            "subject": name,
            "context": passages,
            "model_answer": f"Bo{ending}",
            "truthful": truthful,
            "kind": ("changed", "stated")[index % 4 // 2],
            "passage_says": "Bola",
        }
        if index % 4 == 0:
            row["model_answer"] = f"<think>Hm, {sign}.</think>{row['model_answer']}"
        made.append(row)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources")
    save_small_model(path / "tiny-llama")
    write_questions(path / "facts.jsonl", rows())
    return path


def recipe_of(folder: Path, **options: Any) -> Recipe:
    short = {"prompt": "zero-shot", "random_cuts": 1}
    return make_recipe(
        quick_options(
            folder / "facts.jsonl", model=str(folder / "tiny-llama"), **short, **options
        )
    )


@pytest.fixture(scope="module")
def out(folder: Path) -> Path:
    with unprinted("delta_p"):
        return run_recipe(recipe_of(folder, report=True), folder / "run")


def test_every_source_has_its_rows_and_the_pair_sums_to_one(out: Path) -> None:
    parts = pl.read_csv(out / "evidence_parts.csv")
    names = ["context", "question", "context[1]", "context[2]", "thinking", "answer"]
    for how, wanted in (
        ("source", names),
        ("random-span", names[:-1]),
        ("source-resample", ["context", "thinking"]),
    ):
        mine = parts.filter(pl.col("intervention") == how)
        assert set(mine["part"]) == {f"needs-{name}" for name in wanted}
        assert set(mine["layer"]) == {"band", "0", "1"}
    pair = parts.filter(pl.col("intervention") == "context,answer")
    assert set(pair["part"]) == {"together", "context", "answer", "either"}
    assert pair.group_by("layer").agg(pl.col("share").sum())[
        "share"
    ].to_list() == pytest.approx([1.0] * 3)
    assert "sources" in (out / "recipe.toml").read_text()


def test_the_page_begins_with_the_passage_and_lists_what_ignored_it(out: Path) -> None:
    sentence = json.loads((out / "answer.json").read_text())["sentence"]
    page = (out / "report.html").read_text()
    assert "Sources: passage, thinking, memory" in page
    assert "Answers that ignored their source" in page
    items = pl.read_parquet(out / "experiment_items.parquet").filter(
        pl.col("quantity") == "context_used"
    )
    ignored = items.filter(
        (pl.col("variant") == "context") & (pl.col("value") < 0.1)
    ).height
    # A model that was never trained has too little evidence to divide: no share is quoted.
    assert sentence.startswith(
        f"{ignored} of {N} answers ignored the passage. Inconclusive: "
    )


def test_the_items_of_a_run_bring_their_sources(out: Path) -> None:
    again = list(open_dataset(DatasetSpec("again", out / "items.parquet")))
    assert [question.context for question in again] == [
        tuple(row["context"]) for row in rows()
    ]
    assert sum(question.thinking is not None for question in again) == N // 4


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["context"], "name two different sources"),
        (
            ["context", "system"],
            "Unknown source in --parts 'system'; allowed: answer, context, context[1]",
        ),
    ],
)
def test_an_impossible_pair_is_refused_in_one_line(
    folder: Path, tmp_path: Path, parts: list[str], reason: str
) -> None:
    with pytest.raises(UserError, match=re.escape(reason)):
        quick(recipe_of(folder, parts=parts), tmp_path / "run")
