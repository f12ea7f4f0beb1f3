"""A run in MLflow and W&B themselves, read back."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import anchorscope
from anchorscope_integrations.tracking import RunRecords, log_run, records_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own


@pytest.fixture
def records(folder: Path) -> RunRecords:
    return records_of(anchorscope.open_run(folder))


def test_mlflow(folder: Path, records: RunRecords, tmp_path: Path) -> None:
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow.MlflowClient(uri).create_experiment(
        "mine", artifact_location=(tmp_path / "artefacts").as_uri()
    )
    name = log_run(folder, to="mlflow", project="mine", tracking_uri=uri)
    client = mlflow.MlflowClient(uri)
    run = client.get_run(name)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "mine"
    assert run.data.params == records.parameters
    assert run.data.tags.items() >= records.tags.items()
    assert {key: run.data.metrics[key] for key in records.metrics} == pytest.approx(
        records.metrics
    )
    key = next(key for key in records.curves[0] if "/delta_p/" in key)
    steps = {one.step: one.value for one in client.get_metric_history(name, key)}
    assert steps == pytest.approx(
        {layer: found[key] for layer, found in records.curves.items() if key in found}
    )
    assert {one.path for one in client.list_artifacts(name)} >= {
        "report.html",
        "tables",
        "figures",
        "manifest.json",
    }


def test_wandb(folder: Path, records: RunRecords, tmp_path: Path) -> None:
    name = log_run(
        folder, to="wandb", project="mine", mode="offline", dir=str(tmp_path)
    )
    (kept,) = (tmp_path / "wandb").glob(f"offline-run-*-{name}")
    sent = _wandb_records(next(kept.glob("*.wandb")))
    assert sent.config["recipe"] == records.parameters
    assert sent.config["made_of"] == records.tags
    metrics = {key: sent.summary[key] for key in records.metrics}
    assert metrics == pytest.approx(records.metrics)
    by_layer = {
        row["layer"]: {key: row[key] for key in records.curves[row["layer"]]}
        for row in sent.rows
        if "layer" in row
    }
    assert by_layer == {
        layer: pytest.approx(found) for layer, found in records.curves.items()
    }
    assert sent.files >= {"report.html", "figures/delta_p.png", "tables/summary.csv"}


@dataclass
class Sent:
    """What an offline run of W&B would send."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)


def _wandb_records(path: Path) -> Sent:
    sent = Sent()
    for record in _whole_wandb_file(path):
        if record.HasField("history"):
            sent.rows.append(_values(record.history.item))
        if record.HasField("summary"):
            sent.summary |= _values(record.summary.update)
        if record.HasField("run"):
            sent.config |= {
                entry.key: json.loads(entry.value_json)
                for entry in record.run.config.update
            }
        if record.HasField("request") and record.request.HasField("log_artifact"):
            logged = record.request.log_artifact.artifact
            sent.files |= {entry.path for entry in logged.manifest.contents}
        if record.HasField("artifact"):
            sent.files |= {entry.path for entry in record.artifact.manifest.contents}
    return sent


def _whole_wandb_file(path: Path) -> list[Any]:
    """Its records up to the last one: W&B's own process writes the last block a moment after the run is finished."""
    from wandb.proto import wandb_internal_pb2

    for _ in range(300):
        records = [
            wandb_internal_pb2.Record.FromString(data)
            for data in _wandb_blocks(path.read_bytes())
        ]
        if records and records[-1].HasField("exit"):
            return records
        time.sleep(0.1)
    raise AssertionError("W&B did not finish its file within 30 seconds")


def _wandb_blocks(content: bytes) -> Iterator[bytes]:
    """Its file is a log as LevelDB writes it: blocks of 32 kB, with checksum, size and kind before every piece."""
    # After ":W&B", a magic number and the version.
    at = 7
    whole = b""
    while at + 7 <= len(content):
        left = 0x8000 - at % 0x8000
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<4xHB", content, at)
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


def _values(items: Any) -> dict[str, Any]:
    return {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for item in items
    }
