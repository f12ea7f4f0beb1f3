"""The whole evidence on the planted model, as a user runs it: every experiment is made, rated and told."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.catalogue import RATED
from anchorscope.errors import UserError
from anchorscope.validation import validate as validation_page
from anchorscope.validation.validate import Options, read_summary, validate
from commands import invoke
from kept_runs import questions_of, write_kept_run
from unprinted import unprinted
from whole_runs import files_of

ITEMS = 300
OPTIONS = Options(
    items=ITEMS,
    bootstrap=100,
    device="cpu",
    world_items=(120,),
    replicas=1,
    worlds=("half", "match"),
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with unprinted():  # of the run; the validation's own figures are printed
        return validate(tmp_path_factory.mktemp("validate") / "v", OPTIONS)


@pytest.fixture(scope="module")
def found(out: Path) -> dict[str, Any]:
    return read_summary(out)


def test_every_experiment_is_rated_or_the_reason_is_told(found: dict[str, Any]) -> None:
    told = {one["experiment"] for one in found["unavailable"]}
    assert set(RATED) - set(found["recovery"]) <= told
    for numbers in found["recovery"].values():
        assert 0 <= numbers["ci_low"] <= numbers["auc"] <= numbers["ci_high"] <= 1


def test_the_flips_of_the_plain_rule_follow_the_label(found: dict[str, Any]) -> None:
    rules = found["recovery"]["rules"]["ways"]
    assert rules["plain"]["recall_question"]["value"] < 0.6
    assert rules["plain"]["label_bias_question"]["value"] > 0.8
    assert any("it follows the label" in line for line in found["summary"])


def test_the_knockout_finds_pathways_among_true_answers_and_guesses_among_false_ones(
    found: dict[str, Any],
) -> None:
    knockout = found["recovery"]["knockout"]["ways"]["knockout"]
    assert knockout["within_true"]["auc"] > 0.95
    assert knockout["within_false"]["auc"] < 0.7


@pytest.mark.parametrize(
    ("experiment", "way"), [("knockout", "none"), ("patching", "patch-self")]
)
def test_what_changes_nothing_finds_nothing(
    found: dict[str, Any], experiment: str, way: str
) -> None:
    assert found["recovery"][experiment]["ways"][way]["auc"] == pytest.approx(
        0.5, abs=0.12
    )


def test_the_planted_models_parts_are_in_the_contracts_columns_and_add_up(
    out: Path,
) -> None:
    """What a question alone tells of the planted items is nothing, and the match is there once the model has it."""
    parts = pl.read_csv(out / "run" / "evidence_parts.csv").filter(
        pl.col("site") == "mlp"
    )
    band = {
        (row["intervention"], row["part"]): row
        for row in parts.filter(pl.col("layer") == "band").to_dicts()
    }
    assert {name for name, _ in band} == {"knockout", "random", "permuted", "resample"}
    assert band["knockout", "question"]["share"] == pytest.approx(0, abs=0.1)
    assert band["knockout", "together"]["ci_low"] > 0.3
    assert band["permuted", "needs-question"]["share"] == pytest.approx(0, abs=0.05)
    first = parts.filter(
        (pl.col("intervention") == "knockout") & (pl.col("layer") == "0")
    )
    assert dict(first.select("part", "share").iter_rows())["answer"] == pytest.approx(
        1, abs=0.1
    )


def test_going_on_gives_the_same_and_other_items_are_refused(
    out: Path, found: dict[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            validation_page, "save_all", lambda *_: None
        )  # the figures are there, and take the time
        validate(out, OPTIONS)
    assert read_summary(out) == found
    told = invoke("validate", "--out", str(out), "--items", "420")
    assert told.exit_code == 2
    assert "holds a validation with other items; start over with --fresh" in told.output
    assert read_summary(out) == found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--items", "9999"], "cannot be drawn"),
        (["--evidence", "saliance"], "saliency"),
        (["--worlds", "flat"], "allowed are half"),
        (["--world-items", "60"], "whole numbers from 120 to 100,000"),
    ],
)
def test_mistakes_are_told_in_one_line_and_leave_nothing(
    tmp_path: Path, options: list[str], told: str
) -> None:
    result = invoke("validate", "--out", str(tmp_path / "v"), *options)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("error:")]
    assert told in line
    assert not (tmp_path / "v" / "run").exists()


@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
@pytest.mark.parametrize(
    "mine", ["recovery.csv", "figures/mine.png", "planted.jsonl", "run/notes.txt"]
)
def test_a_folder_of_the_users_own_is_refused_and_kept(
    tmp_path: Path, mine: str, fresh: list[str]
) -> None:
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_text("mine")
    result = invoke("validate", "--out", str(tmp_path), "--items", "240", *fresh)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("error:")]
    assert "choose" in line
    assert (tmp_path / mine).read_text() == "mine"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("form", ["a run of the user's", "links"])
def test_a_run_of_something_else_is_not_replaced(
    fresh: bool, form: str, tmp_path: Path
) -> None:
    mine = write_kept_run(tmp_path / "mine" / "run", [questions_of("facts")])
    out = mine.parent
    if form == "links":
        out = tmp_path / "v"
        out.mkdir()
        for name in ("run", "figures"):
            (out / name).symlink_to(mine)
    before = files_of(tmp_path)
    with pytest.raises(UserError, match="is no part of a validation"):
        validate(out, OPTIONS, fresh=fresh)
    assert files_of(tmp_path) == before
