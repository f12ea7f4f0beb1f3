"""What trackers are told of a run, without any of them; the libraries themselves are in tests/adapters."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import anchorscope
from anchorscope.finished import open_finished
from anchorscope.tracking import RunRecords, records_of
from compared_runs import made_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture(scope="module")
def records(folder: Path) -> RunRecords:
    return records_of(open_finished(folder))


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


class FullDisk:
    """Stands for MLflow's client where files cannot be stored."""

    status: str

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_batch(self, run: str, **parts: Any) -> None:
        assert all(
            len(part) <= (1000 if kind == "metrics" else 100)
            for kind, part in parts.items()
        )

    def log_artifact(self, run: str, path: str, folder: str | None) -> None:
        raise OSError("no\nspace")

    def set_terminated(self, run: str, status: str) -> None:
        self.status = status


def test_a_run_that_was_not_taken_whole_is_marked_and_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, entity = FullDisk(), lambda *fields: fields
    entities = SimpleNamespace(RunTag=entity, Param=entity, Metric=entity)
    mlflow = SimpleNamespace(
        MlflowClient=lambda tracking_uri: client, entities=entities
    )
    monkeypatch.setattr("importlib.import_module", lambda name: mlflow)
    with pytest.raises(
        anchorscope.UserError, match=r"did not take the whole run \(no space\)"
    ):
        anchorscope.log_run(folder, to="mlflow")
    assert client.status == "FAILED"
