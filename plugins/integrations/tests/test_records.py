"""What trackers are told of a run, and what users are told who ask for something else."""

import hashlib
from pathlib import Path

import polars as pl
import pytest

import anchorscope
from anchorscope_integrations.tracking import RunRecords, log_run, records_of


@pytest.fixture(scope="module")
def records(folder: Path) -> RunRecords:
    return records_of(anchorscope.open_run(folder))


def test_the_recipe_and_what_the_run_is_made_of(
    records: RunRecords, folder: Path
) -> None:
    run = anchorscope.open_run(folder)
    assert records.name == "mine"
    assert records.parameters["datasets"] == "popqa"
    assert records.parameters["site"] == "mlp"
    assert records.tags["model.fingerprint"] == run.manifest["model"]["fingerprint"]
    assert records.tags["dataset.popqa.sha256"] == "a1" * 32
    assert records.tags["version.anchorscope"] == "0.1.0"
    wanted = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert records.tags["manifest.sha256"] == wanted


def test_every_number_of_the_summary_is_there_with_its_interval(
    records: RunRecords, folder: Path
) -> None:
    summary = anchorscope.open_run(folder).summary
    columns = ("dataset", "quantity", "intervention", "group", "site", "position")
    names = {
        "/".join(str(row[one]) for one in columns if row[one] is not None): row
        for row in summary.iter_rows(named=True)
    }
    assert len(names) == summary.height
    for name, row in names.items():
        for ending, column in (("", "value"), (".low", "ci_low"), (".high", "ci_high")):
            wanted = row[column]
            if wanted is not None and wanted == wanted:
                assert records.metrics[name + ending] == wanted


def test_curves_are_by_layer_at_the_headline_place(
    records: RunRecords, folder: Path
) -> None:
    run = anchorscope.open_run(folder)
    row = run.curves.filter(
        (pl.col("intervention") == "knockout")
        & (pl.col("site") == "mlp")
        & (pl.col("position") == "final")
        & (pl.col("truth") == "all")
    ).row(3, named=True)
    name = f"popqa/delta_p/knockout/{row['variant']}/{row['group']}"
    assert records.curves[row["layer"]][name] == row["delta_p"]
    assert records.curves[row["layer"]][f"{name}.low"] == row["ci_low"]
    share = (
        run.evidence_parts.filter(
            (pl.col("intervention") == "knockout") & (pl.col("layer") == "3")
        )
        .filter((pl.col("site") == "mlp") & (pl.col("position") == "final"))
        .row(0, named=True)
    )
    found = records.curves[3][f"popqa/evidence/knockout/{share['part']}"]
    assert found == share["share"]
    assert [*records.curves] == sorted(records.curves)
    names = {
        "report.html",
        "recipe.toml",
        "manifest.json",
        "delta_p.png",
        "summary.csv",
        "curves.csv",
    }
    assert {path.name for path, _ in records.files} >= names


def test_a_wrong_name_and_a_folder_that_is_no_run_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(anchorscope.UserError, match="allowed: mlflow, wandb"):
        log_run(folder, to="trackio")
    with pytest.raises(
        anchorscope.UserError, match="allowed: project, name, tracking_uri"
    ):
        log_run(folder, to="mlflow", entity="me")
    with pytest.raises(anchorscope.UserError, match=r"not a run|no run|manifest"):
        log_run(tmp_path, to="mlflow")
