"""A run on the planted model that reads sources: what answers go by is known, and the report has to find it."""

import json
from pathlib import Path

import polars as pl
import pytest

from anchorscope.evidence.source_use import FOLLOWED
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from repo import SUPPORT
from train_source_model import CONTEXT, IGNORED, NOTHING, THINKING, source_rows


@pytest.fixture(scope="module", params=[CONTEXT, THINKING])
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> pl.DataFrame:
    """What the experiment says of 1,000 items whose passage, or thinking, is followed, ignored or of no use."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    (folder / "planted.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in source_rows(1000, request.param))
    )
    options = {
        "model": str(SUPPORT / "source-model"),
        "datasets": [str(folder / "planted.jsonl")],
        "device": "cpu",
    }
    recipe = make_recipe(
        {
            **options,
            "prompt": "zero-shot",
            "random_cuts": 1,
            "bootstrap": 200,
            "report": False,
        }
    )
    out = run_recipe(recipe, folder / "run")
    found = pl.read_csv(out / "experiments.csv").filter(
        pl.col("experiment") == "sources"
    )
    assert request.param in found["variant"].to_list()
    return found


def test_the_evidence_needs_the_source_where_it_is_followed_and_only_there(
    rows: pl.DataFrame,
) -> None:
    needs = dict(
        rows.filter(pl.col("quantity") == "need")
        .drop_nulls("group")
        .select("group", "value")
        .iter_rows()
    )
    assert needs[FOLLOWED] > 0.9
    assert abs(needs[IGNORED]) < 0.15
    assert abs(needs[NOTHING]) < 0.15


def test_numbers_of_single_items_tell_who_followed_where_words_cannot(
    rows: pl.DataFrame,
) -> None:
    """Half of the ignored sources say the answer: their words are no proof of use."""
    areas = dict(
        rows.filter(pl.col("quantity") == "auc_followed")
        .select("variant", "value")
        .iter_rows()
    )
    assert (
        min(areas["context-used"], areas["evidence-moved"], areas["state-moved"])
        >= 0.95
    )
    assert areas["overlap"] < 0.9
