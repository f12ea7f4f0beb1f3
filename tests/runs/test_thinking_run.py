"""A run with --thinking: what the model thinks is a source of its items; what it may not be asked is refused."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe
from chat_templates import MARKED
from small_facts import SYLLABLES, quick_options
from tiny_models import build_tiny, speaker
from whole_runs import quick

ROWS = [
    {
        "id": f"item-{index}",
        "question": f"Where is {SYLLABLES[index // 15].title()}{SYLLABLES[index % 15]}?",
    }
    | {
        "answers": ["Paris" if index % 2 else "Rome"],
        "subject": f"{SYLLABLES[index // 15]}{SYLLABLES[index % 15]}",
    }
    for index in range(64)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that thinks "hm, wel" after every line break, and then says Paris."""
    path: Path = tmp_path_factory.mktemp("thinking")
    tokenizer = deepcopy(build_tiny("llama").tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = MARKED
    lm = speaker(tokenizer, "\n", "hm, wel", "</think>", "Paris", "</s>")
    lm.model.save_pretrained(path / "speaker")
    tokenizer.save_pretrained(path / "speaker")
    return path


def recipe_of(folder: Path, rows: list[dict[str, Any]], thinking: int) -> Recipe:
    (folder / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"model": str(folder / "speaker"), "prompt": "chat", "thinking": thinking}
    return make_recipe(
        quick_options(
            folder / "facts.jsonl", folds=2, random_cuts=1, directions=2, **options
        )
    )


def test_the_items_of_a_run_have_what_the_model_thought(folder: Path) -> None:
    quick(recipe_of(folder, ROWS, 30), folder / "run")
    items = pl.read_parquet(folder / "run" / "items.parquet")
    assert set(items["thinking"]) == {"hm, wel"}
    values = pl.read_parquet(folder / "run" / "experiment_items.parquet").filter(
        pl.col("experiment") == "sources"
    )
    assert "thinking" in values["variant"].to_list()


@pytest.mark.parametrize(
    ("changes", "thinking", "reason"),
    [
        ({}, 5, "closes its thinking within 5 tokens; raise --thinking"),
        ({}, 4090, "the model's context has 4,096; give fewer tokens"),
        ({"model_answer": "Paris"}, 30, "64 questions bring their thinking or answer"),
        ({"thinking": "hm"}, 30, "64 questions bring their thinking or answer"),
    ],
)
def test_what_cannot_be_thought_is_refused_in_one_line(
    folder: Path, tmp_path: Path, changes: dict[str, str], thinking: int, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        quick(
            recipe_of(folder, [row | changes for row in ROWS], thinking),
            tmp_path / "run",
        )
