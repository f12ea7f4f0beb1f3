"""Finished runs in experiment trackers: MLflow, Weights & Biases.

log_run("runs/demo", to="mlflow", tracking_uri="sqlite:///mlflow.db")
"""

import hashlib
import importlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope import Run, UserError, open_run

_SUMMARY = ("quantity", "intervention", "group", "site", "position")
_FILES = (
    "report.html",
    "report.md",
    "recipe.toml",
    "manifest.json",
    "answer.json",
    "observations.json",
)
_TABLES = (
    "summary",
    "probe_scores",
    "curves",
    "evidence_parts",
    "evidence_tests",
    "experiments",
)
_OF_MODEL = (
    "name",
    "source",
    "fingerprint",
    "tokenizer",
    "n_layers",
    "dtype",
    "device",
)
_LETTERS = re.compile(r"[^\w\-. /]")
"""What names may not have in one tracker or another."""


def log_run(
    run: Run | str | Path,
    to: str,
    *,
    project: str = "anchorscope",
    name: str | None = None,
    **options: Any,
) -> str:
    """Logs a finished run, `Run` or its folder, and returns the tracker's id of it.

    The recipe becomes parameters; model, question files and versions tags; numbers of the summary metrics, each with
    its interval (NAME.low, NAME.high); curves metrics whose steps are layers; tables, figures and report files.
    `project` is MLflow's experiment; `options` are the library's own: `tracking_uri` for MLflow; `mode`, `entity`,
    `dir`, `group` for W&B.
    """
    if to not in TRACKERS:
        raise _unknown("tracker", to, TRACKERS)
    log, allowed = TRACKERS[to]
    for option in options:
        if option not in allowed:
            raise _unknown(
                f"option of log_run to {to}", option, ("project", "name", *allowed)
            )
    finished = run if isinstance(run, Run) else open_run(run)
    records = records_of(finished)
    try:
        library = importlib.import_module(to)
    except ImportError as error:
        raise UserError(
            f"{to} cannot be imported ({error}); pip install 'anchorscope-integrations[{to}]'."
        ) from None
    try:
        return log(library, records, project, name or records.name, **options)
    except Exception as error:  # each library and its server have errors of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{to} did not take the whole run ({reason}); delete it there, and log it again."
        ) from error


def _unknown(kind: str, name: str, allowed: Iterable[str]) -> UserError:
    return UserError(f"Unknown {kind} {name!r}; allowed: {', '.join(allowed)}.")


@dataclass(frozen=True)
class RunRecords:
    """What a tracker is told of a run."""

    name: str
    parameters: dict[str, str]
    tags: dict[str, str]
    """Model, weights, question files, versions."""
    metrics: dict[str, float]
    """Single numbers, each with the ends of its interval."""
    curves: dict[int, dict[str, float]]
    """The same by layer, at the run's own site and position."""
    files: list[tuple[Path, str]]
    """Each with the folder that it goes into."""


def records_of(run: Run) -> RunRecords:
    parameters = {
        name: _parameter(value) for name, value in run.recipe.model_dump().items()
    }
    return RunRecords(
        name=run.path.name,
        parameters=parameters,
        tags=_tags_of(run),
        metrics=_metrics_of(run),
        curves=_curves_of(run),
        files=_files_of(run.path),
    )


def _parameter(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _tags_of(run: Run) -> dict[str, str]:
    """The model and the question files with their fingerprints, and versions."""
    manifest = run.manifest
    content = (run.path / "manifest.json").read_bytes()
    tags = {
        "schema_version": str(manifest["schema_version"]),
        "manifest.sha256": hashlib.sha256(content).hexdigest(),
    }
    for name in _OF_MODEL:
        value = manifest["model"].get(name)
        if value is not None:
            tags[f"model.{name}"] = str(value)
    for name, value in manifest.get("inputs", {}).items():
        tags[f"dataset.{_metric_name(name)}.sha256"] = str(value)
    for name, value in manifest.get("versions", {}).items():
        tags[f"version.{name}"] = str(value)
    return tags


def _metrics_of(run: Run) -> dict[str, float]:
    """The numbers of the summary, and the AUCs that belong to no layer."""
    metrics: dict[str, float] = {}
    for row in run.summary.iter_rows(named=True):
        name = _metric_name(row["dataset"], *(row[column] for column in _SUMMARY))
        metrics |= _interval(name, row, "value")
    of_no_layer = run.probe_scores.filter(pl.col("layer").is_null())
    for row in of_no_layer.iter_rows(named=True):
        name = _metric_name(row["dataset"], "auc", row["kind"], row["intervention"])
        metrics |= _interval(name, row, "auc")
    return metrics


def _curves_of(run: Run) -> dict[int, dict[str, float]]:
    """AUC, ΔP and the parts of the evidence, layer by layer, at the run's site and position."""
    by_layer: dict[int, dict[str, float]] = {}
    headline = (pl.col("site") == run.recipe.site) & (
        pl.col("position") == run.recipe.position
    )

    def add(table: pl.DataFrame, value: str, title: str, *columns: str) -> None:
        rows = table.filter(headline).with_columns(
            pl.col("layer").cast(pl.Int64, strict=False)  # the band is no layer
        )
        for row in rows.drop_nulls("layer").iter_rows(named=True):
            name = _metric_name(
                row["dataset"], title, *(row[column] for column in columns)
            )
            found = by_layer.setdefault(row["layer"], {})
            found.update(_interval(name, row, value))

    curves = run.curves.filter(pl.col("truth") == "all")
    kinds = ("intervention", "variant", "group")
    add(run.probe_scores, "auc", "auc by layer", "kind", "intervention")
    add(curves, "delta_p", "delta_p", *kinds)
    add(run.evidence_parts, "share", "evidence", "intervention", "part")
    return dict(sorted(by_layer.items()))


def _files_of(folder: Path) -> list[tuple[Path, str]]:
    files = [(folder / name, "") for name in _FILES]
    files += [(folder / f"{name}.csv", "tables") for name in _TABLES]
    files += [(path, "figures") for path in sorted((folder / "figures").glob("*"))]
    return [(path, inside) for path, inside in files if path.is_file()]


def _interval(name: str, row: Mapping[str, Any], value: str) -> dict[str, float]:
    """A number and the ends of its interval; those that are missing or not finite are left out."""
    numbers = {
        name: row[value],
        f"{name}.low": row["ci_low"],
        f"{name}.high": row["ci_high"],
    }
    return {
        key: float(number)
        for key, number in numbers.items()
        if number is not None and isfinite(number)
    }


def _metric_name(*parts: object) -> str:
    return "/".join(_LETTERS.sub("_", str(part)) for part in parts if part is not None)


def _to_mlflow(
    library: Any,
    records: RunRecords,
    project: str,
    name: str,
    tracking_uri: str | None = None,
) -> str:
    """Through its client, so that the caller's open run is left alone."""
    client = library.MlflowClient(tracking_uri=tracking_uri)
    existing = client.get_experiment_by_name(project)
    if existing is None:
        experiment = client.create_experiment(project)
    else:
        experiment = existing.experiment_id
    run = str(client.create_run(experiment, run_name=name).info.run_id)
    status = "FAILED"
    try:
        for batch in _mlflow_batches(library.entities, records):
            client.log_batch(run, **batch)
        for path, folder in records.files:
            client.log_artifact(run, str(path), folder or None)
        status = "FINISHED"
    finally:
        client.set_terminated(run, status)
    return run


def _mlflow_batches(entities: Any, records: RunRecords) -> Iterable[dict[str, Any]]:
    """What `log_batch` takes, within MLflow's limits: letters of a text, and entries of one request."""
    now = int(time.time() * 1000)
    tags = [entities.RunTag(key, value[:5000]) for key, value in records.tags.items()]
    parameters = [
        entities.Param(key, value[:6000]) for key, value in records.parameters.items()
    ]
    metrics = []
    for step, numbers in [(0, records.metrics), *records.curves.items()]:
        for key, value in numbers.items():
            metrics.append(entities.Metric(key, value, now, step))
    for start in range(0, len(tags), 100):
        yield {"tags": tags[start : start + 100]}
    for start in range(0, len(parameters), 100):
        yield {"params": parameters[start : start + 100]}
    for start in range(0, len(metrics), 1000):
        yield {"metrics": metrics[start : start + 1000]}


def _to_wandb(
    library: Any, records: RunRecords, project: str, name: str, **options: Any
) -> str:
    """Numbers in its summary, curves with the layer as their axis, files as an artefact."""
    settings = library.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
    )
    run = library.init(
        project=project,
        name=name,
        config={"recipe": records.parameters, "made_of": records.tags},
        job_type="anchorscope",
        settings=settings,
        reinit="create_new",
        **options,
    )
    exit_code = 1
    try:
        _fill_wandb(library, run, records)
        exit_code = 0
    finally:
        run.finish(exit_code=exit_code)
    return str(run.id)


def _fill_wandb(library: Any, run: Any, records: RunRecords) -> None:
    run.define_metric("layer")
    names = {key for numbers in records.curves.values() for key in numbers}
    for key in sorted(names):
        run.define_metric(key, step_metric="layer", summary="none")
    for layer, numbers in records.curves.items():
        run.log({"layer": layer, **numbers})
    run.summary.update(records.metrics)
    artefact = library.Artifact(
        f"run-{run.id}", type="anchorscope-run", metadata=records.tags
    )
    for path, folder in records.files:
        inside = f"{folder}/{path.name}" if folder else path.name
        artefact.add_file(str(path), name=inside)
    run.log_artifact(artefact)


TRACKERS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "mlflow": (_to_mlflow, ("tracking_uri",)),
    "wandb": (_to_wandb, ("mode", "entity", "dir", "group")),
}
"""By the library's name, with the options that `log_run` passes on."""
