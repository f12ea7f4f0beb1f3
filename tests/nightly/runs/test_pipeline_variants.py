"""The pipeline run in other ways: a loaded model, two datasets, answers that the model writes itself."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from transformers import AutoModelForCausalLM, AutoTokenizer

from anchorscope.errors import UserError
from anchorscope.recipe import Recipe
from pipeline_fixtures import *  # noqa: F403
from pipeline_fixtures import table
from small_facts import rows, write_questions
from whole_runs import TABLES, quick


def test_a_model_that_is_already_loaded_gives_the_same_numbers(
    recipe: Recipe, out: Path, model_folder: Path, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    again = tmp_path / "run"
    quick(recipe, again, loaded=(model, AutoTokenizer.from_pretrained(model_folder)))
    for name in (name for name in TABLES if not name.endswith("safetensors")):
        first, second = (table(folder, name) for folder in (out, again))
        if "model" in first.columns:
            first, second = first.drop("model"), second.drop("model")
        assert_frame_equal(first, second, check_exact=True)


def test_two_datasets_stand_in_one_run(recipe: Recipe, out: Path, questions: Path, tmp_path: Path) -> None:
    second = write_questions(tmp_path / "more.jsonl", rows()[:80])
    both = recipe.model_copy(update={"datasets": (*recipe.datasets, f"file:{second}")})
    run = tmp_path / "run"
    quick(both, run)
    for name in (name for name in TABLES if not name.endswith("safetensors")):
        frame = table(run, name)
        assert set(frame["dataset"]) == ({"facts", "more"} if table(out, name).height else set())
        assert_frame_equal(frame.filter(pl.col("dataset") == "facts"), table(out, name), check_exact=True)
    assert len(json.loads((run / "manifest.json").read_text())["counts"]) == 2


def save_talker(model_folder: Path, folder: Path) -> Path:
    """The tiny model made to say different short words to different questions."""
    tokenizer, model = AutoTokenizer.from_pretrained(model_folder), AutoModelForCausalLM.from_pretrained(model_folder)
    letters = tokenizer("abcdefghijklmnopqrstuvwxyz", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        model.lm_head.weight[[index for index in range(260) if index not in letters]] = 0  # nothing but letters
        for name, parameter in model.named_parameters():
            if "mlp" in name or "o_proj" in name:
                parameter.mul_(2)
    model.generation_config.eos_token_id = [257, *tokenizer("rofum", add_special_tokens=False)["input_ids"]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_answers_are_generated_and_graded_where_none_are_given(
    recipe: Recipe, model_folder: Path, tmp_path: Path
) -> None:
    talker = save_talker(model_folder, tmp_path / "talker")
    asked = [{name: row[name] for name in ("id", "question", "subject", "relation")} for row in rows()[:82]]

    def run(accepted: list[str], out: Path) -> Path:
        rows_of_file = [{**row, "answer": answer} for row, answer in zip(asked, accepted, strict=True)]
        path = write_questions(tmp_path / f"{out.name}.jsonl", rows_of_file)
        quick(recipe.model_copy(update={"model": str(talker), "datasets": (f"file:{path}",)}), out)
        return out

    with pytest.raises(UserError, match="0 true and"):
        run(["Never"] * 82, tmp_path / "unknown")
    (place,) = (tmp_path / "unknown/work/unknown").glob("answers-*/records.json")
    answers = json.loads(place.read_text())
    said = [answer["text"] for answer in answers]
    assert len(set(said)) > 5
    # Half of the questions accept what the model says to them.
    out = run([text or "Never" if (index // 2) % 2 else "Never" for index, text in enumerate(said)], tmp_path / "known")
    items = table(out, "items.parquet")
    assert items["model_answer"].to_list() == said
    for index, (item, answer) in enumerate(zip(items.iter_rows(named=True), answers, strict=True)):
        if not item["model_answer"]:
            assert (item["status"], item["truthful"], item["input_ids"]) == ("empty", None, [])
            continue
        assert item["truthful"] == bool((index // 2) % 2)
        assert item["confidence_mean"] == pytest.approx(sum(answer["log_probs"]) / len(answer["log_probs"]))
        assert item["confidence_min"] == pytest.approx(min(answer["log_probs"]))
        if item["status"] == "used":
            assert item["input_ids"][-len(answer["ids"]) :] == answer["ids"]  # never tokenised again
    assert {"confidence-mean", "confidence-min"} <= set(table(out, "probe_scores.csv")["kind"])
