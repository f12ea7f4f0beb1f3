"""The whole job on a tiny model: the contract's files, the same numbers however often it is stopped, no step twice."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from transformers import AutoTokenizer

from anchorscope import cost
from anchorscope.errors import TooFewAnswers, UserError
from anchorscope.execute import ray_executor
from anchorscope.pipeline import run_recipe
from anchorscope.preview import preview_recipe
from anchorscope.recipe import Recipe
from noting import Notes
from runs_fixtures import table
from small_facts import rows, unlabelled, write_questions
from whole_runs import N_LAYERS, TABLES, files_of, quick, watching

SITES = ("attention", "mlp", "residual")
N_FOLDS, D_MODEL, N_USED = 2, 32, 80
FILES = (
    "recipe.toml",
    "manifest.json",
    "index.json",
    "observations.json",
    "answer.json",
    *TABLES,
    "figures/delta_p.png",
    "figures/delta_p.svg",
    "figures/delta_p.pdf",
    "figures/delta_p.csv",
    "report.html",
    "report.md",
)
"""As docs/run-folder.md promises, as are the columns below."""
EFFECTS = (
    "dataset item_id intervention variant site position n_cut n_candidates attention_ratio logit_clean "
    "logit_after"
)
CURVES = (
    "model dataset intervention variant site position group truth layer "
    "delta_p ci_low ci_high n n_groups"
)
SHARES = "model dataset intervention site position layer part share ci_low ci_high n n_groups method"
SHARE_ITEMS = (
    "dataset item_id intervention view site position lost label_left had label"
)
SCORES = "model dataset intervention kind site position layer auc ci_low ci_high log_loss brier n n_groups"
PATHWAYS = "dataset item_id site position reference_layer pathway"


def test_every_file_of_the_contract_is_there_and_nothing_half_written(
    out: Path,
) -> None:
    assert [name for name in FILES if not (out / name).is_file()] == []
    assert all((out / name).stat().st_size > 0 for name in FILES)
    assert {path.name for path in out.iterdir()} - {
        Path(name).parts[0] for name in FILES
    } == {".lock", "work"}
    assert not list(out.rglob("*.anchorscope-partial"))


def test_too_few_answers_have_no_parts_but_say_how_many_there_are(out: Path) -> None:
    shares, items = (
        table(out, "evidence_parts.csv"),
        table(out, "evidence_items.parquet"),
    )
    assert (shares.columns, shares.height) == (SHARES.split(), 0)
    assert (items.columns, items.height) == (SHARE_ITEMS.split(), 0)
    tests = table(out, "evidence_tests.csv")
    answers = tests.filter(pl.col("quantity") == "answers")
    assert answers["value"].to_list() == [
        float((table(out, "items.parquet")["status"] == "used").sum())
    ]
    assert "300 are needed" in answers["method"][0]
    assert {"probe", "question only", "answer only"} <= set(
        tests.filter(pl.col("quantity") == "auc")["group"]
    )


def test_items_hold_every_question_that_was_asked_used_or_not(out: Path) -> None:
    items = table(out, "items.parquet")
    written = {row["id"]: row for row in rows() if row["id"] != "few-shot"}
    assert items["item_id"].to_list() == list(written)
    assert dict(items["status"].value_counts().rows()) == {
        "used": N_USED,
        "unbalanced": 2,
        "empty": 1,
    }
    for item in items.iter_rows(named=True):
        row = written[item["item_id"]]
        assert [item[name] for name in ("question", "subject")] == [
            row[name] for name in ("question", "subject")
        ]
        assert item["truthful"] == (
            None if item["status"] == "empty" else row["truthful"]
        )
        used = item["status"] == "used"
        assert (
            (item["fold"] is not None)
            == (item["weight"] > 0)
            == (item["pathway"] is not None)
            == used
        )
        assert json.loads(item["metadata"]) == (
            {"popularity": row["popularity"]} if "popularity" in row else {}
        )
    used = items.filter(pl.col("status") == "used")
    assert set(used.group_by("relation", "truthful").len()["len"]) == {20}
    assert used["weight"].sum() == pytest.approx(82)
    assert used.group_by("group").agg(pl.col("fold").n_unique())["fold"].max() == 1
    assert used["group"].n_unique() == N_USED - 1  # two questions share a subject


def test_items_hold_the_tokens_that_were_run(out: Path, model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    for item in (
        table(out, "items.parquet")
        .filter(pl.col("status") == "used")
        .iter_rows(named=True)
    ):
        ids = item["input_ids"]
        text = tokenizer.decode(ids)
        start = text.rindex("Answer:") + len("Answer:")
        assert text.endswith(
            f"Question: {item['question']}\nAnswer: {item['model_answer']}"
        )
        spelled = "".join(
            tokenizer.decode([ids[index]]) for index in item["question_tokens"]
        )
        assert spelled == f"{item['relation']}{item['subject']}"
        at = item["probe_positions"]
        assert (at["final"], at["answer_end"]) == (
            len(ids) - 1,
            item["answer_tokens"][-1],
        )
        assert at["answer_before"] == item["answer_tokens"][0] - 1 >= start - 1
        exact = "".join(
            tokenizer.decode([ids[index]]) for index in item["answer_tokens"]
        )
        assert exact == item["model_answer"].rstrip(".").replace(" ", "")


def test_effects_have_the_contracts_columns_and_a_row_per_score(out: Path) -> None:
    effects, items = (
        table(out, "effects.parquet"),
        table(out, "items.parquet").filter(pl.col("status") == "used"),
    )
    assert effects.columns == EFFECTS.split()
    assert (
        effects.schema["logit_clean"]
        == effects.schema["logit_after"]
        == pl.List(pl.Float32)
    )
    keys = ["item_id", "intervention", "site", "position"]
    assert (
        effects.select(keys).unique().height
        == effects.height
        == N_USED * 3 * len(SITES)
    )
    assert set(effects["intervention"]) == {"knockout", "random", "none"}
    assert effects.select("dataset", "variant", "position").unique().rows() == [
        ("facts", "all", "final")
    ]
    for name in ("logit_clean", "logit_after"):
        assert effects[name].list.len().unique().to_list() == [N_LAYERS]
        assert effects[name].explode().is_finite().all()
    n_question = dict(
        zip(items["item_id"], items["question_tokens"].list.len(), strict=True)
    )
    for item_id, intervention, n_cut in (
        effects.select("item_id", "intervention", "n_cut").unique().iter_rows()
    ):
        most = 0 if intervention == "none" else n_question[item_id]
        if intervention != "random":  # whose number follows from attention
            assert n_cut == most
    drawn = effects["intervention"] == "random"
    assert (effects["n_candidates"].is_not_null() == drawn).all()
    ratios = dict(
        effects.group_by("intervention")
        .agg((pl.col("attention_ratio") - 1).abs().median())
        .iter_rows()
    )
    assert ratios["knockout"] == 0
    assert ratios["none"] == 1
    assert ratios["random"] < 0.2
    noise = effects.filter(pl.col("intervention") == "none")
    assert (
        noise["logit_after"].explode() - noise["logit_clean"].explode()
    ).abs().max() < 1e-4
    cut = effects.filter(pl.col("intervention") == "knockout")
    assert (
        cut["logit_after"].explode() - cut["logit_clean"].explode()
    ).abs().mean() > 0.01


def test_tables_have_the_contracts_columns_and_no_nan(out: Path) -> None:
    assert table(out, "curves.csv").columns == CURVES.split()
    assert table(out, "probe_scores.csv").columns == SCORES.split()
    assert table(out, "pathways.parquet").columns == PATHWAYS.split()
    for name in (name for name in TABLES if not name.endswith("safetensors")):
        assert "NaN" not in (out / name).read_text() if name.endswith("csv") else True
        frame = table(out, name)
        assert not any(
            frame[column].is_nan().any()
            for column, kind in frame.schema.items()
            if kind.is_float()
        )
    curves = table(out, "curves.csv")
    interventions, groups, truths = 3, 2, 3
    assert curves.height == interventions * len(SITES) * groups * truths * N_LAYERS
    assert set(curves["model"]) == {table(out, "probe_scores.csv")["model"][0]}
    # Answers from elsewhere come without the model's confidence: the clean pass gives it.
    kinds = {
        "transfer",
        "refit",
        "within-relation",
        "relation-only",
        "words",
        "confidence-mean",
        "confidence-min",
        "nested",
        "nested-refit",
        "nested-within-relation",
        "nested+confidence",
        "words+confidence",
    }
    assert set(table(out, "probe_scores.csv")["kind"]) == kinds


def test_pathways_of_the_headline_stand_beside_the_items(out: Path) -> None:
    items, pathways = table(out, "items.parquet"), table(out, "pathways.parquet")
    here = pathways.filter((pl.col("site") == "mlp") & (pl.col("position") == "final"))
    ways = dict(here.select("item_id", "pathway").iter_rows())
    assert len(ways) == here.height == N_USED
    assert items["pathway"].to_list() == [
        ways.get(item_id) for item_id in items["item_id"]
    ]


def test_the_manifest_says_what_was_run_and_seals_every_file(
    out: Path, model_folder: Path
) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    files = {
        str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()
    }
    own = {".lock", "index.json", "manifest.json"}
    results = {
        name: path
        for name, path in files.items()
        if name not in own and not name.startswith("work/")
    }
    hashes = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in results.items()
    }
    assert manifest["sha256"] == hashes
    assert manifest["schema_version"] == 6
    assert manifest["events"] == []
    assert manifest["seed"] == 0
    assert manifest["model"]["source"] == str(model_folder)
    assert (manifest["model"]["n_layers"], manifest["model"]["d_model"]) == (
        N_LAYERS,
        D_MODEL,
    )
    assert len(manifest["model"]["fingerprint"]) == 64
    assert manifest["versions"]["torch"] == torch.__version__
    (counts,) = manifest["counts"]
    wanted = {
        "dataset": "facts",
        "read": 84,
        "few_shot": 1,
        "asked": 83,
        "empty": 1,
        "truncated": 0,
        "true": 42,
        "false": 40,
        "used": 80,
        "used_true": 40,
        "bad": 0,
        "repeated": 0,
        "relations": 2,
    }
    assert {name: counts[name] for name in wanted} == wanted
    assert all(
        step["seconds"] >= 0 and step["peak_memory_mb"] > 0
        for step in manifest["steps"]
    )
    keys = {
        name: one["key"]
        for name, one in json.loads((out / "index.json").read_text())["steps"].items()
    }
    assert {
        step["step"]: step["key"]
        for step in manifest["steps"]
        if step["step"] != "report"
    } == keys
    assert len(manifest["reference_layers"]["facts"]) == N_FOLDS


def test_the_recipe_that_a_run_wrote_is_its_own(
    recipe: Recipe, written: Recipe
) -> None:
    assert (written.device, written.dtype) == ("cpu", "float32")
    assert written.threads == torch.get_num_threads()
    used = {
        "evidence_items": 120,
        "threads": written.threads,
    }  # what was left open is written as it was used
    assert written == recipe.model_copy(update=used)


def test_too_few_questions_are_refused_before_a_model_is_loaded_and_nothing_is_written(
    recipe: Recipe, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ray_executor.WorkerJob, "load", lambda *_: pytest.fail("a model was loaded")
    )
    few = write_questions(tmp_path / "few.jsonl", rows()[:40])
    small = recipe.model_copy(update={"datasets": (f"file:{few}",)})
    with pytest.raises(
        TooFewAnswers,
        match=r"'few' has too few questions: 40 questions: too few for a run, which",
    ):
        quick(small, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = Path(shutil.copytree(out, tmp_path / "there"))
    before = files_of(run)
    for options in (
        {"limit": 20},
        {"limit": 20, "datasets": (*recipe.datasets, f"file:{few}")},
    ):
        for fresh in (False, True):
            with pytest.raises(
                TooFewAnswers,
                match=r"20 questions: too few .*; raise --limit \(now 20\)\.$",
            ):
                quick(recipe.model_copy(update=options), run, fresh=fresh)
            assert files_of(run) == before
    lopsided = [
        row for place, row in enumerate(rows()[:82]) if row["truthful"] or place < 40
    ]
    judged = write_questions(tmp_path / "judged.jsonl", lopsided)
    with pytest.raises(
        TooFewAnswers,
        match="62 questions, by their labels at most 20 false answers: too few",
    ):
        quick(
            recipe.model_copy(update={"datasets": (f"file:{judged}",)}),
            tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"device": "tpu"},
        {"model": "/nowhere/at/all"},
        {"datasets": ("file:/nowhere/at/all.csv",)},
    ],
)
def test_a_mistake_with_fresh_keeps_what_is_there(
    recipe: Recipe, out: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    run = Path(shutil.copytree(out, tmp_path / "run"))
    before = files_of(run)
    with pytest.raises(UserError):
        run_recipe(recipe.model_copy(update=change), run, fresh=True)
    assert files_of(run) == before


def test_what_one_dataset_lacks_is_named_and_keeps_no_other_from_its_chart(
    recipe: Recipe, tmp_path: Path
) -> None:
    one_subject = [
        row | {"subject": "Nowhere", "question": f"Now, {row['question']}"}
        for row in rows()[:80]
    ]
    lumped = write_questions(tmp_path / "lumped.jsonl", one_subject)
    short = [
        write_questions(tmp_path / f"short{number}.jsonl", unlabelled(60 + number))
        for number in (3, 6)
    ]
    sets = tuple(f"file:{path}" for path in (*short, lumped))
    mixed = recipe.model_copy(update={"datasets": (*sets, *recipe.datasets)})
    notes = quick(mixed, tmp_path / "mixed")
    manifest = json.loads((tmp_path / "mixed" / "manifest.json").read_text())
    assert list(manifest["reference_layers"]) == ["facts"]
    left_out = [line for line in manifest["warnings"] if "not measured" in line]
    assert len(left_out) == 3
    assert set(left_out) <= set(notes), "said as soon as it is known, in a study too"
    assert "Dataset 'lumped': The 80 used items fall into 1 group" in left_out[2]
    with pytest.raises(TooFewAnswers) as told:
        quick(recipe.model_copy(update={"datasets": sets}), tmp_path / "none")
    for name in ("short3", "short6", "lumped"):
        assert f"Dataset '{name}'" in str(told.value)
    few = [
        write_questions(tmp_path / f"few{number}.jsonl", rows()[:number])
        for number in (40, 50)
    ]
    with pytest.raises(TooFewAnswers, match=r"'few40' has too .*'few50' has too few"):
        quick(
            recipe.model_copy(
                update={"datasets": tuple(f"file:{path}" for path in few)}
            ),
            tmp_path / "few",
        )


def test_a_run_says_beforehand_what_its_dry_run_said(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cost, and that its answers are too few for the parts of the evidence."""
    monkeypatch.setattr(cost, "measured_rate", lambda *_: 1e11)
    given = recipe.model_copy(update={"random_cuts": None, "report": False})
    notes = Notes()
    run_recipe(given, tmp_path / "run", progress=notes)
    told = preview_recipe(given)["cost"]["sentence"]
    assert "used answers in a dataset: its parts of the evidence need 300" in told
    assert told in notes.lines
    assert notes.lines.index(told) <= 1


def test_labels_alone_are_enough_for_a_run(recipe: Recipe, tmp_path: Path) -> None:
    """Supplied labels need no accepted answers, also where experiments look for other questions' answers."""
    given = [
        {name: value for name, value in row.items() if name != "answers"}
        for row in rows()
    ]
    options = {
        "datasets": (f"file:{write_questions(tmp_path / 'judged.jsonl', given)}",),
        "evidence": ("knockout", "patching", "matched"),
        "report": False,
    }
    notes = Notes()
    run_recipe(recipe.model_copy(update=options), tmp_path / "run", progress=notes)
    directions = [title for title in notes.titles if "principal" in title]
    assert len(directions) == len(set(directions)) > 3, "each says what it is of"
    items = table(tmp_path / "run", "items.parquet")
    assert items["answers"].list.len().max() == 0
    assert items.filter(pl.col("status") == "used")["truthful"].sum() == N_USED // 2


def test_too_few_answers_are_refused_and_the_answers_kept(
    recipe: Recipe, tmp_path: Path
) -> None:
    few = write_questions(tmp_path / "few.jsonl", unlabelled(72))
    small = recipe.model_copy(update={"datasets": (f"file:{few}",)})
    with pytest.raises(
        UserError, match=r"'few' has too few answers .* 24 true and 24 false are usable"
    ):
        quick(small, tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert not list((tmp_path / "run").rglob("*.anchorscope-partial"))
    more = recipe.model_copy(update={"datasets": (f"file:{few}",), "balance": "none"})
    with (
        watching() as made,
        pytest.raises(UserError, match="24 true and 48 false are usable"),
    ):
        quick(more, tmp_path / "run")
    assert made == ["few/labels"]
