"""The resample cut and the paraphrase floor: made where patching and wordings are asked for, of the items that can be
rewritten, beside parts that stay as they are. Bad input is refused in one line, or has no parts."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe, make_recipe
from small_facts import FALSE_ENDS, SYLLABLES, TRUE_ENDS, quick_options
from whole_runs import quick, save_small_model, watching

N, ALONE = 320, 6
"""Items, and how many of them have a relation of their own: no donor, and no other sentence."""
SENTENCES = {
    "capital": "What is the main capital of {}?",
    "currency": "Which currency has {}?",
}


def _rows() -> list[dict[str, object]]:
    rng, rows = np.random.default_rng(0), []
    for index in range(N):
        relation = list(SENTENCES)[index % 2] if index >= ALONE else f"alone {index}"
        subject = "".join(
            SYLLABLES[index // 15**power % 15] for power in range(3)
        ).title()
        truthful = (index // 2) % 2 == 0
        ends = TRUE_ENDS if truthful == (rng.random() < 0.9) else FALSE_ENDS
        rows.append(
            {
                "id": f"item-{index}",
                "question": SENTENCES.get(relation, "Whom does {} know?").format(
                    subject
                ),
                "answers": ["Never"],
                "subject": subject,
                "relation": relation,
                "property_words": [relation] if relation in SENTENCES else [],
                "model_answer": f"Bo{SYLLABLES[index % 7]}{rng.choice(ends)}",
                "truthful": truthful,
            }
        )
    return rows


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("controls")
    save_small_model(folder / "tiny-llama")
    questions = folder / "atlas.jsonl"  # relations of this name have other sentences
    questions.write_text(
        "".join(json.dumps(row) + "\n" for row in _rows()), encoding="utf-8"
    )
    options = quick_options(
        questions,
        model=str(folder / "tiny-llama"),
        random_cuts=1,
        balance="none",
        directions=None,
    )
    return make_recipe(options)


@pytest.fixture(scope="module")
def out(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the defaults that is then asked for both."""
    out = tmp_path_factory.mktemp("controls-run") / "run"
    quick(recipe, out)
    (out / "evidence_parts.csv").rename(out.parent / "before.csv")
    with watching() as made:
        run_recipe(
            recipe.model_copy(
                update={"evidence": ("knockout", "patching", "wordings")}
            ),
            out,
        )
    assert {
        "atlas/evidence-resample",
        "atlas/evidence-paraphrase",
        "atlas/evidence-parts",
    } <= set(made)
    assert "atlas/evidence-terms" not in made
    return out


def test_controls_are_rows_beside_parts_that_stay(out: Path) -> None:
    before, rows = (
        pl.read_csv(path)
        for path in (out.parent / "before.csv", out / "evidence_parts.csv")
    )
    assert set(before["intervention"]) == {"knockout", "random", "permuted"}
    further = pl.col("intervention").is_in(["resample", "paraphrase"])
    assert rows.filter(~further).equals(before)
    parts = (
        rows.filter(further)
        .group_by("intervention")
        .agg(pl.col("part").n_unique(), pl.col("n", "n_groups").max())
    )
    expected = {"resample": (6, N - ALONE), "paraphrase": (1, N - ALONE)}
    assert {name: (parts, n) for name, parts, n, _ in parts.iter_rows()} == expected
    assert set(rows.filter(pl.col("intervention") == "paraphrase")["part"]) == {
        "needs-question"
    }


def test_their_shares_are_those_of_their_items_and_displacements_stand_beside(
    out: Path,
) -> None:
    items = pl.read_parquet(out / "evidence_items.parquet")
    rows = pl.read_csv(
        out / "evidence_parts.csv", schema_overrides={"layer": pl.String}
    )
    for name in ("resample", "paraphrase"):
        mine = items.filter(
            (pl.col("intervention") == name) & (pl.col("view") == "cut")
        )
        assert (mine.height, mine["item_id"].n_unique()) == (N - ALONE, N - ALONE)
        lost, left, had, label = (
            np.array(mine[column].to_list()).sum(axis=0)
            for column in ("lost", "label_left", "had", "label")
        )
        share = rows.filter(
            (pl.col("intervention") == name)
            & (pl.col("part") == "needs-question")
            & (pl.col("layer") != "band")
        )["share"]
        np.testing.assert_allclose(share, (lost / left) / (had / label), rtol=1e-3)
    tests = pl.read_csv(out / "evidence_tests.csv").filter(
        pl.col("quantity") == "displacement"
    )
    moved = dict(tests.select("intervention", "value").iter_rows())
    assert moved["resample"] > 0
    assert moved["paraphrase"] > 0
